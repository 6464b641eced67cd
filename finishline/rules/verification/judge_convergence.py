"""Compare the claimed epochs and quality with calibration and replays."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.definition_tables import ReplayPolicy
from finishline.rules.run import Evaluation
from finishline.rules.scoring.scoring import RunScore
from finishline.rules.scoring.tta import (
    crossing_epochs,
    curves_at,
    find_crossing,
    first_evaluation_at_target,
    interpolated_epochs,
    pooled,
)
from finishline.rules.scoring.violations import FIXED_STOP_P_VALUE, first_beyond_floor
from finishline.rules.statistics.aggregate import (
    Reference,
    mean,
    olympic_mean,
    olympic_weight,
    reference_of,
)
from finishline.rules.statistics.gaps import lowest_mean, p_value_of_mean_beyond, t_quantile
from finishline.rules.submissions.claim import Claim
from finishline.rules.text import count_text
from finishline.rules.verification.control_points import (
    batch_size_of,
    has_default_settings,
    is_calibrated,
)
from finishline.rules.verification.job import Case
from finishline.rules.verification.messages import ReplayReport, ReplayRun
from finishline.rules.verification.verdict import SHARES, Reason, Weight, rejects_in

Curve = Sequence[Evaluation]
REFERENCE_INTERVAL_EPOCHS = 1.0  # Calibrated runs and replays are evaluated after each epoch.
SAME_INTERVAL = 1e-3
# The straight line between two evaluations is no truer than this share of their distance.
LINE_SHARE = 0.1
NO_BOUND = "which are too few, or too far apart, to call any mean too low"


@dataclass(frozen=True)
class Convergence:
    """Claimed epochs to the target (None if missed) and the reference, in steps of `quantum`."""

    claimed: tuple[float | None, ...]
    reference: Reference
    quantum: float


def judge_convergence(case: Case, policy: ReplayPolicy) -> Reason:
    """Test if the claim converges faster than calibrated runs and replays together allow.

    In the open division the model may differ from the reference, so it is left open.
    """
    found, dropped = convergence_of(case), case.benchmark.runs.dropped
    claimed = None if found is None else olympic_mean(found.claimed, dropped=dropped)
    if found is None or claimed is None:
        message = "the claim or the replays lack epochs to the target to compare"
        return Reason("claim_has_no_time", "leaves_open", message)
    reference = found.reference
    lowest = lowest_mean(
        reference,
        weight=olympic_weight(len(found.claimed), dropped=dropped),
        alpha=policy.alpha * SHARES.convergence,
        quantum=found.quantum,
    )
    numbers = {
        "claimed_mean_epochs": claimed,
        "reference_mean_epochs": reference.mean,
        "reference_stdev_epochs": reference.stdev,
        "reference_runs": float(reference.count),
        "lowest_mean_epochs": lowest,
    }
    if claimed < lowest:
        message = (
            f"the claim reaches the target after {claimed:.2f} epochs on average; "
            f"reference and replays need {reference.mean:.2f}, and a mean below "
            f"{lowest:.2f} is not chance"
        )
        weight = rejects_in(case.require_claim().division)
        return Reason("converges_faster_than_replay", weight, message, numbers)
    bound = f"least allowed {lowest:.2f}" if lowest else NO_BOUND
    message = (
        f"the claimed {claimed:.2f} epochs agree with {reference.mean:.2f} of "
        f"{reference.count} reference runs and replays ({bound})"
    )
    return Reason("convergence_agrees", "supports", message, numbers)


def convergence_of(case: Case) -> Convergence | None:
    """Return claimed and reference epochs, if both sides have them.

    They are fractions if all curves were evaluated as often as the reference, else whole.
    """
    counted, dropped = case.runs, case.benchmark.runs.dropped
    if len(counted) <= 2 * dropped:
        return None
    if any(run.reached and run.epochs_to_target is None for run in counted):
        return None
    claimed: tuple[float | None, ...] = tuple(run.epochs_to_target for run in counted)
    if olympic_mean(claimed, dropped=dropped) is None:
        return None
    fractions = _fractions(case)
    reference = _reference(case, fractional=fractions is not None)
    if reference is None:
        return None
    if fractions is not None:
        return Convergence(fractions, reference, quantum=LINE_SHARE * REFERENCE_INTERVAL_EPOCHS)
    return Convergence(claimed, reference, quantum=REFERENCE_INTERVAL_EPOCHS)


def _fractions(case: Case) -> tuple[float | None, ...] | None:
    """Return the epochs to the crossing of every run, if all curves can be read off."""
    if len(case.curves) != len(case.runs):
        return None
    fractions: list[float | None] = []
    for run, curve in zip(case.runs, case.curves, strict=True):
        if run.epochs_to_target is None:
            fractions.append(None)
            continue
        crossing = find_crossing(curve, case.benchmark.target, case.benchmark.reach)
        if crossing is None or crossing.interval_epochs is None:
            return None
        if abs(crossing.interval_epochs - REFERENCE_INTERVAL_EPOCHS) > SAME_INTERVAL:
            return None
        fractions.append(crossing.fraction)
    return tuple(fractions)


def _reference(case: Case, *, fractional: bool) -> Reference | None:
    benchmark, claim = case.benchmark, case.require_claim()
    target, reach = benchmark.target, benchmark.reach
    crossings = [find_crossing(c, target, reach) for c in map(curve_of_replay, case.report.runs)]
    epochs = [(c.fraction if fractional else c.epoch) for c in crossings if c is not None]
    batch_size = batch_size_of(benchmark, claim)
    if is_calibrated(benchmark, claim):
        curves = curves_at(benchmark, batch_size)
        epochs += crossing_epochs(curves, target, reach, fractional=fractional)
    replays = reference_of(epochs) if len(epochs) >= 2 else None
    if not has_default_settings(benchmark, claim) or is_calibrated(benchmark, claim):
        return replays
    between = interpolated_epochs(benchmark, batch_size, fractional=fractional)
    if between is None or not epochs:
        return between or replays
    return pooled(between, replays or Reference(epochs[0], 0.0, 1))


def curve_of_replay(run: ReplayRun) -> list[Evaluation]:
    """Return the curve of a replay that reached the target by the worker's word, else none."""
    return evaluations_of(run) if run.status == "reached" else []


def evaluations_of(run: ReplayRun) -> list[Evaluation]:
    """Return the curve that a worker measured, with or without reaching the target."""
    return [Evaluation(e.epoch, e.seconds, e.quality) for e in run.evaluations]


def evaluation_at_target(benchmark: Benchmark, run: ReplayRun) -> Evaluation | None:
    """Find where a replay reached the target: by its evaluations, not the worker's word."""
    curve = curve_of_replay(run)
    if not curve:
        return None
    return first_evaluation_at_target(curve, benchmark.target, benchmark.reach)


def goal_words(benchmark: Benchmark, *, missed: bool = False) -> str:
    """Say of runs that they reached or missed their goal."""
    if benchmark.reach.budget_seconds is not None:
        goal = f"an evaluation within the budget of {benchmark.reach.budget_seconds:g} s"
        return f"did not have {goal}" if missed else f"had {goal}"
    goal = f"{benchmark.target.called} {benchmark.target.value:g}"
    return f"did not reach {goal}" if missed else f"reached {goal}"


def judge_mean_at_stop(benchmark: Benchmark, claim: Claim, trained: Sequence[ReplayRun]) -> Reason:
    """Test if the mean quality of the replays at their stop beats the target.

    A mean that misses the target beyond chance rejects the claim, anything between leaves it open.
    The spread of the replays is pooled with the calibrated runs' spread.
    Source: modded-nanogpt, rules of the speedrun (one-sided t-test, p < 0.01).
    """
    target = benchmark.target
    finals = _finals([curve_of_replay(run) for run in trained])
    calibrated = _calibrated_finals(benchmark, claim)
    beats = p_value_of_mean_beyond(
        finals, target.value, direction=target.direction, beside=calibrated
    )
    if beats is None:
        replays = count_text(len(trained), "replay")
        message = f"{len(finals)} of {replays} reached their stop; a mean needs two"
        return Reason("infrastructure", "leaves_open", message)
    message = (
        f"at their stop {len(finals)} replays have {target.called} {mean(finals):.4g} on average, "
        f"p-value {beats:.2g} of a mean beyond {target.value:g}"
    )
    numbers = {"mean": mean(finals), "started": float(len(trained)), "p_value": beats}
    if beats < FIXED_STOP_P_VALUE:
        return Reason("reached_target", "supports", message, numbers)
    weight: Weight = "rejects" if 1 - beats < FIXED_STOP_P_VALUE else "leaves_open"
    return Reason("did_not_reach", weight, message, numbers)


def judge_stop(case: Case, policy: ReplayPolicy) -> Reason:
    """Test that the claim stops where the replays do, no better than they and calibration allow.

    A claim that stops earlier did not train with its stated settings.
    """
    claim, counted = case.require_claim(), case.runs
    replays = [curve for curve in map(curve_of_replay, case.report.runs) if curve]
    stops = [curve[-1].epoch for curve in replays if curve[-1].epoch is not None]
    claimed_stops = [run.epochs_to_target for run in counted if run.epochs_to_target is not None]
    if not stops or not claimed_stops or len(claimed_stops) < len(counted):
        message = "the claim or the replays lack the epoch at which they stopped"
        return Reason("claim_has_no_time", "leaves_open", message)
    first, stop = min(claimed_stops), min(stops)
    if first < stop:
        message = (
            f"the claim stops after {first:g} epochs; with its settings the reference stops after "
            f"{stop:g}"
        )
        numbers = {"claimed_stop_epochs": first, "stop_epochs": stop}
        weight = rejects_in(claim.division)
        return Reason("converges_faster_than_replay", weight, message, numbers)
    known = _finals(replays) + _calibrated_finals(case.benchmark, claim)
    claimed, target = _finals(case.curves), case.benchmark.target
    if len(known) < FEWEST_RUNS or not claimed:
        message = "the claim or the replays lack a quality at the stop to compare"
        return Reason("claim_has_no_time", "leaves_open", message)
    # Student's t-test of the claimed mean quality, with only the spread of the reference.
    reference = reference_of(known)
    quantile = t_quantile(1 - policy.alpha * SHARES.convergence, reference.count - 1)
    error = reference.stdev * math.sqrt(1 / reference.count + 1 / len(claimed))
    allowed = max(quantile * error, target.resolution or 0.0)
    better = mean(claimed) - reference.mean
    if target.direction == "lower":
        better = -better
    figures = (
        f"the claimed mean {target.called} at the stop is {mean(claimed):.4g}, that of "
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
    """Find curves better than the data allow: a claimed one is made up, a replay is broken."""
    target = benchmark.target
    named: list[tuple[str, Curve, Weight]] = [
        (run.file, curve, "rejects") for run, curve in zip(runs, curves, strict=False)
    ]
    named += [
        (f"replay {run.index + 1}", curve_of_replay(run), "leaves_open") for run in report.runs
    ]
    reasons = []
    for name, curve, weight in named:
        impossible = first_beyond_floor(curve, benchmark)
        if impossible is not None and target.floor is not None:
            message = (
                f"{name} has {target.called} {impossible.quality:.4g}, and the data allow no "
                f"better than {target.floor:g}"
            )
            numbers = {"quality": impossible.quality, "floor": target.floor}
            reasons.append(Reason("below_entropy", weight, message, numbers))
    return reasons


def _calibrated_finals(benchmark: Benchmark, claim: Claim) -> list[float]:
    if not is_calibrated(benchmark, claim):
        return []
    return [curve[-1] for curve in curves_at(benchmark, batch_size_of(benchmark, claim))]


def _finals(curves: Sequence[Curve]) -> list[float]:
    return [curve[-1].quality for curve in curves if curve]


FEWEST_RUNS = 2
