"""Set a replay's time and its stop beside the claimed ones, on the same hardware class only.

The ranked time is the measured one, so a slower replay is reported and never rejects.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.definition_tables import ReplayPolicy
from finishline.rules.benchmarks.quality import QualityTarget
from finishline.rules.measurements import QUIET_CPU_SHARE
from finishline.rules.scoring.calibrated_runs import curves_at
from finishline.rules.scoring.scoring import RunScore
from finishline.rules.scoring.violations import FIXED_STOP_P_VALUE, first_beyond_floor
from finishline.rules.statistics.aggregate import (
    SHORTEST_SECONDS,
    Spread,
    mean,
    measured_seconds,
    olympic_mean,
    olympic_weight,
    reference_of,
    standard_deviation,
)
from finishline.rules.statistics.gaps import (
    gap_to_claim,
    interval_of,
    p_value_of_mean_beyond,
    t_quantile,
)
from finishline.rules.submissions.claim import Claim
from finishline.rules.text import count_text
from finishline.rules.verification.job import Case
from finishline.rules.verification.judge_convergence import (
    Curve,
    curve_of_replay,
    evaluation_at_target,
)
from finishline.rules.verification.messages import ReplayReport, ReplayRun
from finishline.rules.verification.replay_plan import batch_size_of, is_calibrated
from finishline.rules.verification.verdict import SHARES, Reason, Weight, rejects_in


def judge_time(
    benchmark: Benchmark,
    claim: Claim,
    counted: Sequence[RunScore],
    report: ReplayReport,
    policy: ReplayPolicy,
) -> list[Reason]:
    """Compare the sealed runs' time with the claim's, or say why it was not compared.

    `policy.time_tolerance` is how much more a run may take on another machine of the class; beyond
    it and beyond chance (p < alpha) the claim is flagged as slower than claimed.
    """
    if claim.trained_with == "own":
        message = "time was not compared: the claim was trained with its own code"
        return [Reason("time_not_compared", "note", message)]
    why = why_not_timed(report, hardware_class=claim.system.hardware_class)
    if why is not None:
        return [why]
    dropped = benchmark.runs.dropped
    claimed_times = [run.tta_seconds for run in counted]
    claimed = olympic_mean(claimed_times, dropped=dropped) if len(counted) > 2 * dropped else None
    replayed = [
        run.tta_seconds
        for run in report.runs
        if run.tta_seconds is not None and evaluation_at_target(benchmark, run) is not None
    ]
    tolerated = 1 + policy.time_tolerance
    gap = None
    if claimed is not None:
        gap = gap_to_claim(
            replayed,
            claimed,
            claimed_runs=[time for time in claimed_times if time is not None],
            weight=olympic_weight(len(counted), dropped=dropped),
        )
    if claimed is None or gap is None:
        message = "time was not compared: a comparison needs a claimed time and two replays"
        return [Reason("time_not_compared", "note", message)]
    p_slower = gap.over(tolerated).p_more
    numbers = {
        "claimed_seconds": claimed,
        "replayed_mean_seconds": mean(replayed),
        "ratio": gap.ratio,
        "tolerated_ratio": tolerated,
        "p_value": p_slower,
    }
    words = f"claimed {claimed:.3g} s, measured here {_measured(replayed)}"
    if p_slower < policy.alpha:
        return [Reason("slower_than_claimed", "note", words, numbers)]
    return [Reason("time_agrees", "supports", words, numbers)]


def why_not_timed(report: ReplayReport, *, hardware_class: str) -> Reason | None:
    """Reason why a report's times do not count on a claim's hardware class; None if they do."""
    ours = report.system.hardware_class
    if ours != hardware_class:
        message = (
            f"time was not compared: the claim was made on {hardware_class}, the replay on {ours}"
        )
        return Reason("hardware_differs", "note", message)
    if report.drift is not None:
        message = f"time was not compared: the worker was {report.drift}"
        return Reason("worker_drifted", "note", message)
    share = cpu_share(report)
    if share < QUIET_CPU_SHARE:
        message = "time was not compared: the worker's processor was shared with other work"
        numbers = {"cpu_share": share, "needed": QUIET_CPU_SHARE}
        return Reason("noisy_host", "note", message, numbers)
    return None


def open_unless_timed(case: Case) -> list[Reason]:
    """The reason why the times of a case don't count, which leaves its verdict open."""
    hardware_class = case.require_claim().system.hardware_class
    found = why_not_timed(case.report, hardware_class=hardware_class)
    return [] if found is None else [replace(found, weight="leaves_open")]


def _measured(seconds: Sequence[float]) -> str:
    found = measured_seconds(seconds)
    if found is None:
        return f"{mean(seconds):.3g} s"
    logs = [math.log(max(each, SHORTEST_SECONDS)) for each in seconds]
    spread = Spread(standard_deviation(logs, ddof=1), len(logs) - 1)
    interval = interval_of(found, runs=len(seconds), spread=spread)
    between = f" ({interval.low:.3g} to {interval.high:.3g})" if interval is not None else ""
    return f"{found:.3g} s{between}"


def cpu_share(report: ReplayReport) -> float:
    """Lowest share of the processor of any run; 1.0 on an accelerator, where it tells nothing."""
    if report.system.accelerator_count:
        return 1.0
    shares = [
        run.cpu_seconds / run.parent_seconds
        for run in report.runs
        if run.cpu_seconds is not None and run.parent_seconds
    ]
    return min(shares, default=1.0)


FEWEST_RUNS = 2


def judge_mean_at_stop(benchmark: Benchmark, claim: Claim, trained: Sequence[ReplayRun]) -> Reason:
    """Test if the mean quality of the replays at their stop beats the target.

    The claim has proven this of its own runs. Replays that prove it too support it, a mean that
    misses the target beyond chance rejects it, anything between leaves it open. The spread is that
    of the replays pooled with that of the calibrated runs: three replays alone prove little.
    Source: modded-nanogpt, rules of the speedrun (one-sided t-test, p < 0.01).
    """
    target = benchmark.target
    finals = _finals([curve_of_replay(run) for run in trained])
    calibrated: list[float] = []
    if is_calibrated(benchmark, claim):
        known = curves_at(benchmark, batch_size_of(benchmark, claim))
        calibrated = [curve[-1] for curve in known]
    beats = p_value_of_mean_beyond(
        finals, target.value, direction=target.direction, beside=calibrated
    )
    if beats is None:
        return Reason(
            "infrastructure",
            "leaves_open",
            f"{len(finals)} of {count_text(len(trained), 'replay')} reached their stop; a mean "
            "needs two",
        )
    weight: Weight = "leaves_open"
    if beats < FIXED_STOP_P_VALUE:
        weight = "supports"
    elif 1 - beats < FIXED_STOP_P_VALUE:
        weight = "rejects"
    return Reason(
        "reached_target" if weight == "supports" else "did_not_reach",
        weight,
        f"at their stop {len(finals)} replays have {target.metric} {mean(finals):.4g} on average, "
        f"p-value {beats:.2g} of a mean beyond {target.value:g}",
        {"mean": mean(finals), "started": float(len(trained)), "p_value": beats},
    )


def judge_stop(
    benchmark: Benchmark,
    claim: Claim,
    counted: Sequence[RunScore],
    report: ReplayReport,
    policy: ReplayPolicy,
    *,
    curves: Sequence[Curve] = (),
) -> list[Reason]:
    """Test that the claim stops where the replays do, no better than they and calibration allow.

    The step at which the reference stops is one of its settings. A claim that stops earlier did
    not train with the settings it states.
    """
    replays = [curve for curve in map(curve_of_replay, report.runs) if curve]
    stops = [curve[-1].epoch for curve in replays if curve[-1].epoch is not None]
    claimed_stops = [run.epochs_to_target for run in counted if run.epochs_to_target is not None]
    if not stops or not claimed_stops or len(claimed_stops) < len(counted):
        message = "the claim or the replays lack the epoch at which they stopped"
        return [Reason("claim_has_no_time", "leaves_open", message)]
    if min(claimed_stops) < min(stops):
        return [
            Reason(
                "converges_faster_than_replay",
                rejects_in(claim.division),
                f"the claim stops after {min(claimed_stops):g} epochs; with its settings the "
                f"reference stops after {min(stops):g}",
                {"claimed_stop_epochs": min(claimed_stops), "stop_epochs": min(stops)},
            )
        ]
    known = _finals(replays)
    if is_calibrated(benchmark, claim):
        known += [curve[-1] for curve in curves_at(benchmark, batch_size_of(benchmark, claim))]
    claimed = _finals(curves)
    if len(known) < FEWEST_RUNS or not claimed:
        message = "the claim or the replays lack a quality at the stop to compare"
        return [Reason("claim_has_no_time", "leaves_open", message)]
    return [_judge_quality(benchmark.target, claim, claimed, known, policy)]


def _judge_quality(
    target: QualityTarget,
    claim: Claim,
    claimed: Sequence[float],
    known: Sequence[float],
    policy: ReplayPolicy,
) -> Reason:
    """Student's t-test of the claimed mean quality, with the spread of the reference alone."""
    reference = reference_of(known)
    quantile = t_quantile(1 - policy.alpha * SHARES.convergence, reference.count - 1)
    error = reference.stdev * math.sqrt(1 / reference.count + 1 / len(claimed))
    allowed = max(quantile * error, target.resolution or 0.0)
    better = mean(claimed) - reference.mean
    if target.direction == "lower":
        better = -better
    figures = (
        f"the claimed mean {target.metric} at the stop is {mean(claimed):.4g}, that of "
        f"{reference.count} reference runs and replays {reference.mean:.4g}"
    )
    numbers = {
        "claimed_mean": mean(claimed),
        "reference_mean": reference.mean,
        "reference_stdev": reference.stdev,
        "allowed_difference": allowed,
    }
    if better > allowed:
        weight = rejects_in(claim.division)
        words = f"{figures}: more than {allowed:.2g} better is not chance"
        return Reason("converges_faster_than_replay", weight, words, numbers)
    return Reason("convergence_agrees", "supports", figures, numbers)


def judge_floor(
    benchmark: Benchmark, runs: Sequence[RunScore], curves: Sequence[Curve], report: ReplayReport
) -> list[Reason]:
    """Curves that are better than the data allows: a claimed one is made up, a replay is broken."""
    found = [
        _beyond_floor(benchmark, run.file, curve, "rejects")
        for run, curve in zip(runs, curves, strict=False)
    ]
    found += [
        _beyond_floor(benchmark, f"replay {run.index + 1}", curve_of_replay(run), "leaves_open")
        for run in report.runs
    ]
    return [reason for reason in found if reason is not None]


def _beyond_floor(benchmark: Benchmark, name: str, curve: Curve, weight: Weight) -> Reason | None:
    target = benchmark.target
    impossible = first_beyond_floor(curve, benchmark)
    if impossible is None or target.floor is None:
        return None
    return Reason(
        "below_entropy",
        weight,
        f"{name} has {target.metric} {impossible.quality:.4g}, and the data allow no better than "
        f"{target.floor:g}",
        {"quality": impossible.quality, "floor": target.floor},
    )


def _finals(curves: Sequence[Curve]) -> list[float]:
    return [curve[-1].quality for curve in curves if curve]
