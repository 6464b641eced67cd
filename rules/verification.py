"""Judge a claim by what its replay did: verified, rejected or inconclusive, with reasons."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from rules.aggregate import mean, median_window, olympic_mean, olympic_weight
from rules.benchmark import Benchmark, ReplayPolicy
from rules.claim import Claim
from rules.control_points import BandBreak, first_break
from rules.errors import RuleError
from rules.messages import ReplayReport, ReplayRun
from rules.replay_plan import band_for, batch_size_of, is_calibrated
from rules.run import Evaluation
from rules.scoring import RunScore
from rules.significance import Reference, lowest_mean, reference_of, slower_than_claimed
from rules.tta import first_evaluation_at_target

Outcome = Literal["verified", "rejected", "inconclusive"]
ReasonCode = Literal[
    "reached_target",
    "within_band",
    "convergence_agrees",
    "time_agrees",
    "did_not_reach",
    "below_band",
    "above_band",
    "converges_faster_than_replay",
    "slower_than_claimed",
    "hardware_differs",
    "noisy_host",
    "time_not_compared",
    "claim_has_no_time",
    "infrastructure",
    "replay_failed",
]
Weight = Literal["supports", "rejects", "leaves_open", "note"]

QUIET_CPU_SHARE = 0.8
TEST_SHARE_OF_ALPHA = 0.25
EXCUSED_FAILURES = ("infrastructure", "rules")


@dataclass(frozen=True)
class Reason:
    """One finding of a verdict: what it is, what it does to the outcome, the numbers behind it."""

    code: ReasonCode
    weight: Weight
    message: str
    numbers: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """What a verification ends in, with every reason that counted."""

    outcome: Outcome
    reasons: tuple[Reason, ...]


def judge(
    benchmark: Benchmark,
    claim: Claim,
    runs: Sequence[RunScore],
    report: ReplayReport,
    *,
    runs_planned: int | None = None,
) -> Verdict:
    """Hold a claim's scored runs against its replay.

    Rejected if more replays than the benchmark drops leave the band downwards or miss the target,
    if the claim converges faster than reference and replays together allow, or if the replay on
    the same hardware class is slower than claimed beyond tolerance and noise. Left open
    if a replay is above the band, if nothing could be compared, or if the machinery failed before
    all of `runs_planned` (default: those in the report) were trained. Raises RuleError if the
    benchmark has no replay.

    Band, convergence and time get their shares of the benchmark's alpha, so that those three
    together reject an honest claim at most that often. Missing the target has no share: the
    reference is expected to reach it, as the claim says it does.
    """
    policy = benchmark.replay
    if policy is None:
        raise RuleError("no replay policy", file=benchmark.benchmark_id, expected="[replay]")
    planned = max(1, len(report.runs) if runs_planned is None else runs_planned)
    times = [run.tta_seconds for run in runs]
    rule = benchmark.runs
    counted = runs[median_window(times, count=rule.count, dropped=rule.dropped)]
    reasons = [
        *_judge_reach(benchmark, report, planned),
        *_judge_band(benchmark, claim, report, planned),
        *_judge_convergence(benchmark, claim, counted, report, policy),
        *_judge_time(benchmark, claim, counted, report, policy),
    ]
    weights = {reason.weight for reason in reasons}
    outcome: Outcome = "verified"
    if "rejects" in weights:
        outcome = "rejected"
    elif "leaves_open" in weights:
        outcome = "inconclusive"
    return Verdict(outcome=outcome, reasons=tuple(reasons))


def _judge_reach(benchmark: Benchmark, report: ReplayReport, planned: int) -> list[Reason]:
    trained = [run for run in report.runs if not _is_excused(run)]
    reached = sum(_evaluation_at_target(benchmark, run) is not None for run in trained)
    started = len(trained)
    target = benchmark.target
    numbers = {"reached": float(reached), "started": float(started)}
    missed = started - reached
    if missed > benchmark.runs.dropped:
        return [
            Reason(
                "did_not_reach",
                "rejects",
                f"{missed} of {started} replays did not reach {target.metric} {target.value:g}",
                numbers,
            )
        ]
    if started < planned:
        return [
            Reason(
                "infrastructure",
                "leaves_open",
                f"only {started} of {planned} replays were trained, for no fault of the claim",
                numbers | {"planned": float(planned)},
            )
        ]
    return [
        Reason(
            "reached_target",
            "supports",
            f"{reached} of {started} replays reached {target.metric} {target.value:g}",
            numbers,
        )
    ]


def _is_excused(run: ReplayRun) -> bool:
    """Whether a run ended for a reason that tells nothing about the claim."""
    if run.failure is not None:
        return run.failure.kind in EXCUSED_FAILURES
    return run.status == "cancelled"


def _evaluation_at_target(benchmark: Benchmark, run: ReplayRun) -> Evaluation | None:
    """Where a replay reached the target: by its evaluations, whatever else the worker says."""
    if run.status != "reached" or not run.evaluations:
        return None
    curve = [Evaluation(e.epoch, e.seconds, e.quality) for e in run.evaluations]
    return first_evaluation_at_target(curve, benchmark.target, benchmark.reach)


def _judge_band(
    benchmark: Benchmark, claim: Claim, report: ReplayReport, planned: int
) -> list[Reason]:
    points = band_for(benchmark, claim, runs=planned)
    if not points:
        return []
    higher = benchmark.target.direction == "higher"
    breaks = []
    for run in report.runs:
        broken = first_break([e.quality for e in run.evaluations], points, higher_is_better=higher)
        if broken is not None:
            breaks.append((run, broken))
    if breaks:
        # One straggler in forty is real even at calibrated settings: it is dropped as the slowest.
        below = sum(broken.side == "below" for _, broken in breaks)
        weight: Weight = "rejects" if below > benchmark.runs.dropped else "note"
        return [_band_reason(run, broken, below=weight) for run, broken in breaks]
    judged = sum(min(len(run.evaluations), len(points)) for run in report.runs)
    if judged == 0:
        return []
    return [
        Reason(
            "within_band",
            "supports",
            f"all {judged} evaluations of the replays lie in the reference band",
            {"control_points": float(judged)},
        )
    ]


def _band_reason(run: ReplayRun, broken: BandBreak, *, below: Weight) -> Reason:
    numbers = {
        "run": float(run.index),
        "evaluation": float(broken.index),
        "quality": broken.quality,
        "lower": broken.lower,
        "upper": broken.upper,
    }
    where = (
        f"replay {run.index + 1} had {broken.quality:.2f} at control point {broken.index}, where "
        f"the reference lies between {broken.lower:.2f} and {broken.upper:.2f}"
    )
    if broken.side == "below":
        return Reason("below_band", below, where, numbers)
    return Reason("above_band", "leaves_open", f"{where}: too fast, to be explained", numbers)


def _judge_convergence(
    benchmark: Benchmark,
    claim: Claim,
    counted: Sequence[RunScore],
    report: ReplayReport,
    policy: ReplayPolicy,
) -> list[Reason]:
    dropped = benchmark.runs.dropped
    claimed = _claimed_epochs(counted, dropped=dropped)
    reached = [_evaluation_at_target(benchmark, run) for run in report.runs]
    replayed = [e.epoch for e in reached if e is not None and e.epoch is not None]
    reference = _epochs_reference(benchmark, claim, replayed)
    if claimed is None or reference is None:
        return [
            Reason(
                "claim_has_no_time",
                "leaves_open",
                "there are no epochs to the target to compare on both sides",
            )
        ]
    test = lowest_mean(
        claimed,
        reference,
        weight=olympic_weight(len(counted), dropped=dropped),
        alpha=policy.alpha * TEST_SHARE_OF_ALPHA,
        quantum=_quantum(replayed),
    )
    numbers = {
        "claimed_mean_epochs": test.sample_mean,
        "reference_mean_epochs": reference.mean,
        "reference_stdev_epochs": reference.stdev,
        "reference_runs": float(reference.count),
        "lowest_mean_epochs": test.lowest,
    }
    if test.is_too_low:
        return [
            Reason(
                "converges_faster_than_replay",
                "rejects",
                f"the claim reaches the target after {test.sample_mean:.2f} epochs on average; "
                f"reference and replays need {reference.mean:.2f}, and a mean below "
                f"{test.lowest:.2f} is not chance",
                numbers,
            )
        ]
    return [
        Reason(
            "convergence_agrees",
            "supports",
            f"the claimed {test.sample_mean:.2f} epochs agree with {reference.mean:.2f} of "
            f"{reference.count} reference runs and replays (least allowed {test.lowest:.2f})",
            numbers,
        )
    ]


def _claimed_epochs(runs: Sequence[RunScore], *, dropped: int) -> float | None:
    """Olympic mean of the epochs to the target, None where a log does not tell.

    The least and the greatest are dropped as from the times: else one slow run, which costs the
    claim nothing, would make up for all the others.
    """
    if len(runs) <= 2 * dropped:
        return None
    if any(run.reached and run.epochs_to_target is None for run in runs):
        return None
    return olympic_mean([run.epochs_to_target for run in runs], dropped=dropped)


def _epochs_reference(
    benchmark: Benchmark, claim: Claim, replayed: Sequence[float]
) -> Reference | None:
    """Epochs to the target of the replays, with the calibrated runs of the same settings."""
    epochs = list(replayed)
    if is_calibrated(benchmark, claim):
        for run in benchmark.reference_runs_at(batch_size_of(benchmark, claim)):
            curve = [Evaluation(float(j), 0.0, q) for j, q in enumerate(run.quality, 1)]
            hit = first_evaluation_at_target(curve, benchmark.target, benchmark.reach)
            epochs += [hit.epoch] if hit is not None and hit.epoch is not None else []
    return reference_of(epochs) if len(epochs) >= 2 else None


def _quantum(replayed: Sequence[float]) -> float:
    """Epochs between evaluations; the references evaluate after each epoch."""
    return 1.0 if replayed else 0.0


def _judge_time(
    benchmark: Benchmark,
    claim: Claim,
    counted: Sequence[RunScore],
    report: ReplayReport,
    policy: ReplayPolicy,
) -> list[Reason]:
    if claim.system.hardware_class != report.system.hardware_class:
        return [
            Reason(
                "hardware_differs",
                "note",
                f"time was not compared: the claim was made on {claim.system.hardware_class}, "
                f"the replay on {report.system.hardware_class}",
            )
        ]
    if _cpu_share(report) < QUIET_CPU_SHARE:
        return [
            Reason(
                "noisy_host",
                "note",
                "time was not compared: the worker's processor was shared with other work",
                {"cpu_share": _cpu_share(report), "needed": QUIET_CPU_SHARE},
            )
        ]
    dropped = benchmark.runs.dropped
    times = [run.tta_seconds for run in counted]
    claimed = olympic_mean(times, dropped=dropped) if len(times) > 2 * dropped else None
    replayed = [
        run.tta_seconds
        for run in report.runs
        if run.tta_seconds is not None and _evaluation_at_target(benchmark, run) is not None
    ]
    slower = 1 + policy.time_tolerance
    test = (
        None
        if claimed is None
        else slower_than_claimed(
            replayed,
            claimed,
            claimed_runs=[seconds for seconds in times if seconds is not None],
            weight=olympic_weight(len(times), dropped=dropped),
            tolerated_ratio=slower,
        )
    )
    if test is None or claimed is None:
        return [
            Reason(
                "time_not_compared",
                "note",
                "time was not compared: that takes a claimed time and two replays",
            )
        ]
    numbers = {
        "claimed_seconds": claimed,
        "replayed_mean_seconds": mean(replayed),
        "ratio": test.ratio,
        "tolerated_ratio": slower,
        "p_value": test.p_slower,
    }
    if test.p_slower < policy.alpha * TEST_SHARE_OF_ALPHA:
        return [
            Reason(
                "slower_than_claimed",
                "rejects",
                f"on the same hardware class the replay took {test.ratio:.2f} times the claimed "
                f"time, more than the tolerated {slower:.2f} and more than chance",
                numbers,
            )
        ]
    return [
        Reason(
            "time_agrees",
            "supports",
            f"on the same hardware class the replay took {test.ratio:.2f} times the claimed time",
            numbers,
        )
    ]


def _cpu_share(report: ReplayReport) -> float:
    """Processor seconds per second of training; 1.0 on an accelerator, where it tells nothing."""
    if report.system.accelerator_count:
        return 1.0
    shares = [
        run.cpu_seconds / run.parent_seconds
        for run in report.runs
        if run.cpu_seconds is not None and run.parent_seconds
    ]
    return min(shares, default=1.0)
