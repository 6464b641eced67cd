"""Hold the claim's own curves against the calibrated ones: too high, in jumps, by chance."""

import itertools
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import lru_cache

from rules.aggregate import mean, standard_deviation
from rules.benchmark import Benchmark, QualityTarget, ReachRule, ReplayPolicy
from rules.calibrated_runs import (
    Curves,
    CurveStatistics,
    as_evaluations,
    curve_statistics,
    curves_at,
)
from rules.claim import Claim
from rules.claim_checks_log import MISSING
from rules.crossing import find_crossing
from rules.judge_convergence import (
    REFERENCE_INTERVAL_EPOCHS,
    Curve,
    curve_of_replay,
)
from rules.judge_copies import judge_copies
from rules.messages import ReplayReport
from rules.prediction import upper_deviations
from rules.replay_plan import batch_size_of, is_calibrated
from rules.scoring import RunScore
from rules.verdict import SHARES, Reason

FEWEST_CURVES = 5
LOOK_AHEAD = 3
MOST_EPOCHS = 1000
# As far as the evaluations of a log may be apart that has one after each epoch.
LONGEST_LINE_EPOCHS = MISSING * REFERENCE_INTERVAL_EPOCHS


def judge_curves(
    benchmark: Benchmark,
    claim: Claim,
    counted: Sequence[RunScore],
    curves: Sequence[Curve],
    report: ReplayReport,
    policy: ReplayPolicy,
) -> list[Reason]:
    """Reasons why the curves of the runs that count want an explanation; none for honest ones.

    A curve above the band of the calibrated ones, one that jumps, one that crosses the target out
    of the blue, or one that follows a calibrated curve too closely leaves the claim open. A curve
    far below the band is slow, which harms nobody. Empty where the curves are not known.
    """
    if not curves or len(curves) != len(counted):
        return []
    known: Curves = ()
    if is_calibrated(benchmark, claim):
        known = curves_at(benchmark, batch_size_of(benchmark, claim))
    names = [run.file for run in counted]
    reasons: list[Reason] = []
    if benchmark.reach.name != "fixed_stop":  # There the target need not be crossed.
        reasons = _judge_crossings(benchmark, names, curves, known, report, policy)
    if len(known) < FEWEST_CURVES:
        return reasons
    target = benchmark.target
    statistics = curve_statistics(known)
    by_epoch = [qualities_by_epoch(curve) for curve in curves]
    return [
        *_judge_band(target, names, by_epoch, statistics, policy),
        *_judge_jumps(target, names, by_epoch, known, policy),
        *reasons,
        *judge_copies(names, _readings(curves, by_epoch), known, policy),
    ]


def qualities_by_epoch(curve: Curve) -> list[float | None]:
    """The quality after each whole epoch, None where it is not between two evaluations.

    The last evaluation of an epoch counts. Where evaluations are elsewhere, the straight line
    between the two around an epoch tells, so that epochs told a little off keep no curve from being
    judged. A curve that flattens lies above its lines, which so flatter nobody; those that are much
    longer than an epoch tell nothing. Epochs beyond any calibration are left out.
    """
    found = {e.epoch: e.quality for e in curve if e.epoch is not None}
    places = sorted(found)
    last = min(math.floor(places[-1]), MOST_EPOCHS) if places else 0
    return [_quality_at(float(epoch), places, found) for epoch in range(1, last + 1)]


def _quality_at(
    epoch: float, places: Sequence[float], qualities: Mapping[float, float]
) -> float | None:
    after = bisect_left(places, epoch)
    if places[after] == epoch:
        return qualities[epoch]
    if after == 0 or places[after] - places[after - 1] > LONGEST_LINE_EPOCHS:
        return None
    begin, end = places[after - 1], places[after]
    share = (epoch - begin) / (end - begin)
    return qualities[begin] + share * (qualities[end] - qualities[begin])


def _readings(
    curves: Sequence[Curve], by_epoch: Sequence[Sequence[float | None]]
) -> list[list[Sequence[float | None]]]:
    """Each curve by its epochs, and in its order too where an evaluation is at no whole epoch.

    A copy whose epochs are told half an epoch off is the other one in its order alone, also where
    one of them is left as it was.
    """
    found: list[list[Sequence[float | None]]] = []
    for curve, by_whole in zip(curves, by_epoch, strict=True):
        is_off = any(e.epoch is None or e.epoch % REFERENCE_INTERVAL_EPOCHS for e in curve)
        found.append([by_whole, [e.quality for e in curve]] if is_off else [by_whole])
    return found


def _judge_band(
    target: QualityTarget,
    names: Sequence[str],
    by_epoch: Sequence[Sequence[float | None]],
    known: CurveStatistics,
    policy: ReplayPolicy,
) -> list[Reason]:
    """The first point of each claimed curve above the band, if there is one."""
    judged = sum(min(len(curve), len(known.means)) for curve in by_epoch)
    if judged == 0:
        return []
    alpha = policy.alpha * SHARES.claim_band
    deviations = upper_deviations(known.count, alpha=alpha, figures=judged)
    reasons = []
    for name, curve in zip(names, by_epoch, strict=True):
        for epoch, (quality, centre, spread) in enumerate(
            zip(curve, known.means, known.stdevs, strict=False), 1
        ):
            if quality is None:
                continue
            half = max(target.resolution or 0.0, deviations * spread)
            if _gain(target, quality, centre) > half:
                limit = centre + half if target.direction == "higher" else centre - half
                reasons.append(_above_band(name, epoch, quality, limit, target))
                break
    return reasons


def _above_band(
    name: str, epoch: int, quality: float, limit: float, target: QualityTarget
) -> Reason:
    return Reason(
        "claim_above_band",
        "leaves_open",
        f"{name} claims {target.metric} {quality:.2f} at epoch {epoch}, where the reference comes "
        f"no further than {limit:.2f}: too fast, to be explained",
        {"epoch": float(epoch), "quality": quality, "limit": limit},
    )


def _judge_jumps(
    target: QualityTarget,
    names: Sequence[str],
    by_epoch: Sequence[Sequence[float | None]],
    known: Curves,
    policy: ReplayPolicy,
) -> list[Reason]:
    """The first step of each curve that is larger than the reference's steps can be.

    A straggler that catches up takes such steps too: only one that ends better than the reference's
    mean is told, as it is where two runs are joined or a value is made up.
    """
    steps = curve_statistics(_steps(known))
    centres = curve_statistics(known).means
    judged = sum(min(max(0, len(curve) - 1), len(steps.means)) for curve in by_epoch)
    if judged == 0:
        return []
    alpha = policy.alpha * SHARES.curve_jumps
    deviations = upper_deviations(steps.count, alpha=alpha, figures=judged)
    reasons = []
    for name, curve in zip(names, by_epoch, strict=True):
        for epoch, (before, after) in enumerate(itertools.pairwise(curve), 2):
            if epoch - 2 >= len(steps.means) or before is None or after is None:
                continue
            step, centre = _gain(target, after, before), steps.means[epoch - 2]
            half = max(2 * (target.resolution or 0.0), deviations * steps.stdevs[epoch - 2])
            limit = centre + half if target.direction == "higher" else half - centre
            if step > limit and _gain(target, after, centres[epoch - 1]) > 0:
                reasons.append(_jump(name, epoch, step, limit, target))
                break
    return reasons


def _jump(name: str, epoch: int, step: float, limit: float, target: QualityTarget) -> Reason:
    return Reason(
        "claim_curve_jumps",
        "leaves_open",
        f"{name} gains {step:.2f} {target.metric} from epoch {epoch - 1} to {epoch}, where the "
        f"reference gains no more than {limit:.2f}: is the log of one run?",
        {"epoch": float(epoch), "step": step, "limit": limit},
    )


def _steps(curves: Curves) -> Curves:
    return tuple(tuple(b - a for a, b in itertools.pairwise(curve)) for curve in curves)


def _judge_crossings(
    benchmark: Benchmark,
    names: Sequence[str],
    curves: Sequence[Curve],
    known: Curves,
    report: ReplayReport,
    policy: ReplayPolicy,
) -> list[Reason]:
    """Curves that cross the target from further below than any reference run does, or fall back.

    A log that ends at the crossing is judged by the evaluation before it, one that goes on by those
    after it too. The reference is calibration and replays, at least FEWEST_CURVES of them; replays
    stop at the target and tell nothing of what comes after.
    """
    target, reach = benchmark.target, benchmark.reach
    replays = [curve_of_replay(run) for run in report.runs]
    told_before = [shortfall(curve, target, reach, ahead=False) for curve in replays]
    reference = {
        ahead: list(_calibrated_shortfalls(known, target, reach, ahead=ahead))
        for ahead in (False, True)
    }
    reference[False] += [figure for figure in told_before if figure is not None]
    alpha = policy.alpha * SHARES.crossing
    reasons = []
    for ahead, told in reference.items():
        if len(told) < FEWEST_CURVES:
            continue
        deviations = upper_deviations(len(told), alpha=alpha, figures=2 * len(curves))
        spread = max(standard_deviation(told, ddof=1), target.resolution or 0.0)
        limit = mean(told) + deviations * spread
        for name, curve in zip(names, curves, strict=True):
            short = shortfall(curve, target, reach, ahead=ahead)
            if short is not None and short > limit:
                reasons.append(_lucky(name, short, limit, target, ahead=ahead))
    return reasons


@lru_cache(maxsize=64)
def _calibrated_shortfalls(
    known: Curves, target: QualityTarget, reach: ReachRule, *, ahead: bool
) -> tuple[float, ...]:
    figures = (shortfall(as_evaluations(curve), target, reach, ahead=ahead) for curve in known)
    return tuple(figure for figure in figures if figure is not None)


def shortfall(
    curve: Curve, target: QualityTarget, reach: ReachRule, *, ahead: bool
) -> float | None:
    """How far from the target a curve is just before its crossing, or the worst of some after it.

    In the unit of the metric, negative where all are beyond it; None where there is none. Before
    the crossing counts the evaluation there, or the line to it an epoch earlier if it is further
    away: who evaluates less often than the reference has come further between two of them.
    """
    crossing = find_crossing(curve, target, reach)
    if crossing is None:
        return None
    if ahead:
        last = crossing.index + reach.evaluations
        after = [item.quality for item in curve[last : last + LOOK_AHEAD]]
        return max((_gain(target, target.value, quality) for quality in after), default=None)
    if crossing.index == 0:
        return None
    at, before = curve[crossing.index], curve[crossing.index - 1].quality
    interval = crossing.interval_epochs or 0.0
    if interval > REFERENCE_INTERVAL_EPOCHS:
        before = at.quality - (at.quality - before) * REFERENCE_INTERVAL_EPOCHS / interval
    return _gain(target, target.value, before)


def _lucky(name: str, short: float, limit: float, target: QualityTarget, *, ahead: bool) -> Reason:
    side = "after" if ahead else "before"
    return Reason(
        "crossing_is_noise",
        "leaves_open",
        f"{name} reaches {target.metric} {target.value:g} in one evaluation, {short:.2f} from "
        f"it just {side}, where the reference is within {limit:.2f}: chance, not convergence",
        {"shortfall": short, "limit": limit},
    )


def _gain(target: QualityTarget, first: float, second: float) -> float:
    """How much better the first quality is than the second."""
    return first - second if target.direction == "higher" else second - first
