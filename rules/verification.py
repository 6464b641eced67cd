"""Judge a claim by what its replay did: verified, rejected or inconclusive, with reasons."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from rules.aggregate import mean
from rules.benchmark import Benchmark, ReplayPolicy
from rules.claim import Claim
from rules.control_points import BandBreak, first_break
from rules.errors import RuleError
from rules.messages import ReplayReport, ReplayRun
from rules.replay_plan import band_for, batch_size_of, is_calibrated
from rules.scoring import Result
from rules.significance import Reference, lowest_mean, reference_of, welch_slower

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
]
Weight = Literal["supports", "rejects", "leaves_open", "note"]

QUIET_CPU_SHARE = 0.8
TEST_SHARE_OF_ALPHA = 0.25


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


def judge(benchmark: Benchmark, claim: Claim, result: Result, report: ReplayReport) -> Verdict:
    """Hold a claim's result against its replay. Raises RuleError if the benchmark has no replay.

    Rejected if a replay leaves the band downwards, if more replays miss the target than the
    benchmark drops, if the claim converges faster than reference and replays together allow, or
    if the replay on the same hardware class is slower than claimed beyond tolerance and noise.
    Left open if a replay is above the band or nothing could be compared. Each test gets its share
    of the benchmark's alpha, so that
    all of them together reject an honest claim at most that often.
    """
    policy = benchmark.replay
    if policy is None:
        raise RuleError("no replay policy", file=benchmark.benchmark_id, expected="[replay]")
    reasons = [
        *_judge_reach(benchmark, report),
        *_judge_band(benchmark, claim, report),
        *_judge_convergence(benchmark, claim, result, report, policy),
        *_judge_time(claim, result, report, policy),
    ]
    weights = {reason.weight for reason in reasons}
    outcome: Outcome = "verified"
    if "rejects" in weights:
        outcome = "rejected"
    elif "leaves_open" in weights:
        outcome = "inconclusive"
    return Verdict(outcome=outcome, reasons=tuple(reasons))


def _judge_reach(benchmark: Benchmark, report: ReplayReport) -> list[Reason]:
    reached = sum(run.status == "reached" for run in report.runs)
    started = len(report.runs)
    target = benchmark.target
    numbers = {"reached": float(reached), "started": float(started)}
    missed = started - reached
    if started == 0 or missed > benchmark.runs.dropped:
        return [
            Reason(
                "did_not_reach",
                "rejects",
                f"{missed} of {started} replays did not reach {target.metric} {target.value:g}",
                numbers,
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


def _judge_band(benchmark: Benchmark, claim: Claim, report: ReplayReport) -> list[Reason]:
    points = band_for(benchmark, claim, runs=len(report.runs))
    if not points:
        return []
    higher = benchmark.target.direction == "higher"
    reasons = []
    for run in report.runs:
        broken = first_break([e.quality for e in run.evaluations], points, higher_is_better=higher)
        if broken is not None:
            reasons.append(_band_reason(run, broken))
    if reasons:
        return reasons
    judged = sum(min(len(run.evaluations), len(points)) for run in report.runs)
    return [
        Reason(
            "within_band",
            "supports",
            f"all {judged} evaluations of the replays lie in the reference band",
            {"control_points": float(judged)},
        )
    ]


def _band_reason(run: ReplayRun, broken: BandBreak) -> Reason:
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
        return Reason("below_band", "rejects", where, numbers)
    return Reason("above_band", "leaves_open", f"{where}: too fast, to be explained", numbers)


def _judge_convergence(
    benchmark: Benchmark,
    claim: Claim,
    result: Result,
    report: ReplayReport,
    policy: ReplayPolicy,
) -> list[Reason]:
    claimed = [r.epochs_to_target for r in result.runs if r.epochs_to_target is not None]
    replayed = [run.evaluations[-1].epoch for run in report.runs if run.status == "reached"]
    reference = _epochs_reference(benchmark, claim, replayed)
    if not claimed or reference is None:
        return [
            Reason(
                "claim_has_no_time",
                "leaves_open",
                "there are no epochs to the target to compare on both sides",
            )
        ]
    test = lowest_mean(
        claimed, reference, alpha=policy.alpha * TEST_SHARE_OF_ALPHA, quantum=_quantum(replayed)
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


def _epochs_reference(
    benchmark: Benchmark, claim: Claim, replayed: Sequence[float]
) -> Reference | None:
    """Epochs to the target of the replays, with the calibrated runs of the same settings."""
    epochs = list(replayed)
    if is_calibrated(benchmark, claim):
        for run in benchmark.reference_runs_at(batch_size_of(benchmark, claim)):
            hits = [j for j, q in enumerate(run.quality, 1) if benchmark.target.is_reached(q)]
            epochs += [float(hits[0])] if hits else []
    return reference_of(epochs) if len(epochs) >= 2 else None


def _quantum(replayed: Sequence[float]) -> float:
    """Epochs between evaluations; the references evaluate after each epoch."""
    return 1.0 if replayed else 0.0


def _judge_time(
    claim: Claim, result: Result, report: ReplayReport, policy: ReplayPolicy
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
    claimed = [run.tta_seconds for run in result.runs if run.tta_seconds is not None]
    replayed = [run.tta_seconds for run in report.runs if run.tta_seconds is not None]
    slower = 1 + policy.time_tolerance
    test = welch_slower(replayed, claimed, null_ratio=slower)
    if test is None:
        return [
            Reason(
                "time_not_compared",
                "note",
                "time was not compared: that takes two runs with a time on each side",
            )
        ]
    numbers = {
        "claimed_mean_seconds": mean(claimed),
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
