"""Claims and replays of digits to be judged, and what a verdict says of them."""

from finishline.rules.scoring.scoring import RunScore
from finishline.rules.submissions.claim import Claim, System
from finishline.rules.verification.job import Case
from finishline.rules.verification.messages import (
    ReplayEvaluation,
    ReplayReport,
    ReplayRun,
    WorkerSystem,
)

LAPTOP = System("laptop", "cpu-x86_64", "any")
HONEST_EPOCHS = [7, 8, 8]
SECONDS_PER_EPOCH = 0.11

CLAIM = Claim(
    "digits", "closed", "reference", "torch", LAPTOP, ("run_0.log",), trained_with="reference"
)
WORKER = WorkerSystem("w", "cpu-x86_64", "any", 2, 24.0, None, 0, 1, {})


def case_of(benchmark, claim, runs, report, *, runs_planned=None, curves=()):
    """A replay's case, of as many planned runs as it reports unless told otherwise."""
    planned = [None] * (len(report.runs) if runs_planned is None else runs_planned)
    return Case(benchmark, planned, report, claim, runs, curves)


def claimed(epochs, *, seconds=None):
    """Claimed runs; None did not reach the target."""
    times = seconds or [None if e is None else e * SECONDS_PER_EPOCH for e in epochs]
    return [
        RunScore(f"run_{i}.log", i, time is not None, time, epoch, 98.0, SECONDS_PER_EPOCH)
        for i, (epoch, time) in enumerate(zip(epochs, times, strict=True))
    ]


def replay(index, curve, *, slowness=1.0, **others):
    evaluations = [
        ReplayEvaluation(float(j), j * 1152, j * SECONDS_PER_EPOCH * slowness, quality, {})
        for j, quality in enumerate(curve, 1)
    ]
    settings = {
        "seed": 1000 + index,
        "status": "reached",
        "tta_seconds": evaluations[-1].seconds if evaluations else None,
        "parent_seconds": 1.0,
        "child_seconds": 1.0,
        "cpu_seconds": 0.98,
    }
    return ReplayRun(index=index, evaluations=evaluations, ledger={}, **(settings | others))


def trained(points, *, index=0, status="reached", **others):
    evaluations = [
        ReplayEvaluation(float(j), 1152 * j, seconds, quality, {"train": seconds})
        for j, (seconds, quality) in enumerate(points, 1)
    ]
    seconds = evaluations[-1].seconds
    settings = {
        "seed": 100 + index,
        "ledger": {"train": seconds},
        "tta_seconds": seconds if status == "reached" else None,
        "parent_seconds": seconds,
        "child_seconds": seconds,
    }
    return ReplayRun(index=index, status=status, evaluations=evaluations, **(settings | others))


def report(runs, *, hardware_class="cpu-x86_64"):
    system = WorkerSystem("w1", hardware_class, "any", 2, 24.0, None, 0, 1, {})
    return ReplayReport(list(runs), system)


def codes(verdict):
    return [reason.code for reason in verdict.reasons]


def weight_of(verdict, code):
    return next(reason.weight for reason in verdict.reasons if reason.code == code)
