"""Judge a claim by its replay: verified, rejected or inconclusive, with reasons."""

from collections.abc import Sequence

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.scoring.scoring import RunScore
from finishline.rules.statistics.aggregate import median_window
from finishline.rules.submissions.claim import Claim
from finishline.rules.verification.control_points import BandBreak, first_break
from finishline.rules.verification.judge_convergence import (
    Curve,
    evaluation_at_target,
    judge_convergence,
)
from finishline.rules.verification.judge_time import (
    judge_floor,
    judge_mean_at_stop,
    judge_stop,
    judge_time,
)
from finishline.rules.verification.messages import ReplayReport, ReplayRun
from finishline.rules.verification.precision import judge_precision
from finishline.rules.verification.replay_plan import band_for
from finishline.rules.verification.verdict import Reason, Verdict, Weight

EXCUSED_FAILURES = ("infrastructure", "rules")


def judge(
    benchmark: Benchmark,
    claim: Claim,
    runs: Sequence[RunScore],
    report: ReplayReport,
    *,
    runs_planned: int | None = None,
    curves: Sequence[Curve] = (),
) -> Verdict:
    """Compare a claim's scored runs with its replay.

    Rejected if more replays than the benchmark drops leave the band downwards or miss the target,
    if the claim converges faster than reference and replays together allow, or if the training
    touched a narrower floating type than the claim states. A time slower than claimed is reported
    and never rejects. Left open if a replay is above the band, if nothing could be compared, or if
    the machinery failed before all of `runs_planned` (default: those in the report) were trained.
    `curves` has the evaluations
    of each of `runs`; without them the claim is judged by its epochs and times alone. Raises
    RuleError if the benchmark has no replay.

    Every test has its share of the benchmark's alpha (rules.verdict.Shares). Missing the target has
    no share: the reference is expected to reach it, as the claim says it does.
    """
    policy = benchmark.replay
    if policy is None:
        raise RuleError("no replay policy", file=benchmark.benchmark_id, expected="[replay]")
    planned = max(1, len(report.runs) if runs_planned is None else runs_planned)
    times = [run.tta_seconds for run in runs]
    rule = benchmark.runs
    window = median_window(times, count=rule.count, dropped=rule.dropped)
    counted, shown = runs[window], curves[window]
    convergence = judge_stop if benchmark.reach.name == "fixed_stop" else judge_convergence
    reasons = [
        *_judge_reach(benchmark, claim, report, planned),
        *_judge_band(benchmark, claim, report, planned),
        *convergence(benchmark, claim, counted, report, policy, curves=shown),
        *judge_floor(benchmark, runs, curves, report),
        *judge_time(benchmark, claim, counted, report, policy),
        *judge_precision(claim, report),
    ]
    return Verdict.of(reasons)


def _judge_reach(
    benchmark: Benchmark, claim: Claim, report: ReplayReport, planned: int
) -> list[Reason]:
    trained = [run for run in report.runs if not is_excused(run)]
    reached = sum(evaluation_at_target(benchmark, run) is not None for run in trained)
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
    if benchmark.reach.name == "fixed_stop":
        return [judge_mean_at_stop(benchmark, claim, trained)]
    return [
        Reason(
            "reached_target",
            "supports",
            f"{reached} of {started} replays reached {target.metric} {target.value:g}",
            numbers,
        )
    ]


def is_excused(run: ReplayRun) -> bool:
    """Whether a run ended for a reason that tells nothing about the claim."""
    if run.failure is not None:
        return run.failure.kind in EXCUSED_FAILURES
    return run.status == "cancelled"


def _judge_band(
    benchmark: Benchmark, claim: Claim, report: ReplayReport, planned: int
) -> list[Reason]:
    points = band_for(benchmark, claim, runs=planned)
    higher = benchmark.target.direction == "higher"
    breaks = []
    runs = [run for run in report.runs if not is_excused(run)]
    for run in runs:
        broken = first_break([e.quality for e in run.evaluations], points, higher_is_better=higher)
        if broken is not None:
            breaks.append((run, broken))
    if breaks:
        # One straggler in forty is real even at calibrated settings: it is dropped as the slowest.
        below = sum(broken.side == "below" for _, broken in breaks)
        weight: Weight = "rejects" if below > benchmark.runs.dropped else "note"
        return [_band_reason(run, broken, below=weight) for run, broken in breaks]
    judged = sum(min(len(run.evaluations), len(points)) for run in runs)
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
