"""Replay: train a claim again from secret seeds, and judge it by these runs, with reasons."""

import hashlib
from dataclasses import replace

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.definition_tables import ReplayPolicy
from finishline.rules.errors import RuleError
from finishline.rules.measurements import QUIET_CPU_SHARE
from finishline.rules.statistics.aggregate import (
    SHORTEST_SECONDS,
    mean,
    measured_seconds,
    median_window,
    olympic_mean,
    olympic_weight,
)
from finishline.rules.statistics.gaps import gap_to_claim
from finishline.rules.submissions.claim import Claim, trained_settings
from finishline.rules.verification.control_points import (
    BandBreak,
    band_for,
    first_break,
    is_calibrated,
    precision_of,
)
from finishline.rules.verification.job import (
    Case,
    Draw,
    Purpose,
    Request,
    Words,
    draw,
    trainings_of,
)
from finishline.rules.verification.judge_convergence import (
    evaluation_at_target,
    goal_words,
    judge_convergence,
    judge_floor,
    judge_mean_at_stop,
    judge_stop,
)
from finishline.rules.verification.messages import Measure, ReplayReport, ReplayRun, Training
from finishline.rules.verification.utilisation import is_narrower
from finishline.rules.verification.verdict import Reason, Verdict, Weight

EXCUSED_FAILURES = ("infrastructure", "rules")


def judge(case: Case) -> Verdict:
    """Compare a claim's scored runs with its replay.

    Rejected if more replays than the benchmark drops leave the band downwards or miss the target,
    if the claim converges faster than reference and replays together allow, or if the training
    touched a narrower floating type than the claim states. A slower time is only reported. Left
    open if a replay is above the band, if nothing could be compared, or if the infrastructure
    failed before all planned trainings were made. Raises RuleError if the benchmark has no replay.

    Every test has its share of the benchmark's alpha (Shares). Missing the target has no share,
    because the reference should reach it.
    """
    benchmark, claim, report = case.benchmark, case.require_claim(), case.report
    runs, curves, policy = case.runs, case.curves, benchmark.replay
    if policy is None:
        raise RuleError("no replay policy", file=benchmark.benchmark_id, expected="[replay]")
    planned = max(1, len(case.trainings))
    times = [run.tta_seconds for run in runs]
    rule = benchmark.runs
    window = median_window(times, count=rule.count, dropped=rule.dropped)
    ranked = replace(case, runs=runs[window], curves=curves[window])
    convergence = judge_stop if benchmark.reach.name == "fixed_stop" else judge_convergence
    reasons = [
        _judge_reach(benchmark, claim, report, planned),
        *_judge_band(benchmark, claim, report, planned),
    ]
    if not runs and not claim.run_files:  # The reference claims no time.
        untimed = why_not_timed(report, hardware_class=claim.system.hardware_class)
        noted = [] if untimed is None else [untimed]
        return Verdict.of([*reasons, *noted, *note_disturbed(report)])
    if benchmark.score.by == "quality":
        reasons.append(judge_quality(ranked))
    else:
        reasons += [convergence(ranked, policy), judge_time(ranked, policy)]
    reasons += [
        *judge_floor(benchmark, runs, curves, report),
        *note_disturbed(report),
        *judge_precision(claim, report),
    ]
    return Verdict.of(reasons)


def _judge_reach(benchmark: Benchmark, claim: Claim, report: ReplayReport, planned: int) -> Reason:
    trained = [run for run in report.runs if not is_excused(run)]
    reached = sum(evaluation_at_target(benchmark, run) is not None for run in trained)
    started = len(trained)
    numbers = {"reached": float(reached), "started": float(started)}
    missed = started - reached
    if missed > benchmark.runs.dropped:
        message = f"{missed} of {started} replays {goal_words(benchmark, missed=True)}"
        return Reason("did_not_reach", "rejects", message, numbers)
    if started < planned:
        message = f"only {started} of {planned} replays were trained, for no fault of the claim"
        numbers["planned"] = float(planned)
        return Reason("infrastructure", "leaves_open", message, numbers)
    if benchmark.reach.name == "fixed_stop":
        return judge_mean_at_stop(benchmark, claim, trained)
    message = f"{reached} of {started} replays {goal_words(benchmark)}"
    return Reason("reached_target", "supports", message, numbers)


def is_excused(run: ReplayRun) -> bool:
    """Whether a run ended for a reason outside the claim."""
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
    message = f"all {judged} evaluations of the replays lie in the reference band"
    numbers = {"control_points": float(judged)}
    return [Reason("within_band", "supports", message, numbers)] if judged else []


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


def judge_time(case: Case, policy: ReplayPolicy) -> Reason:
    """Compare the measured time with the claimed one, or say why that is impossible.

    A mean beyond `policy.time_tolerance` is noted with the probability of chance.
    """
    benchmark, claim, report, counted = case.benchmark, case.require_claim(), case.report, case.runs
    if claim.trained_with == "own":
        message = "time was not compared: the claim was trained with its own code"
        return Reason("time_not_compared", "note", message)
    why = why_not_timed(report, hardware_class=claim.system.hardware_class)
    if why is not None:
        return why
    dropped = benchmark.runs.dropped
    times = [run.tta_seconds for run in counted]
    claimed = olympic_mean(times, dropped=dropped) if len(counted) > 2 * dropped else None
    replayed = [
        run.tta_seconds
        for run in report.runs
        if run.tta_seconds is not None and evaluation_at_target(benchmark, run) is not None
    ]
    gap = None
    if claimed is not None:
        gap = gap_to_claim(
            replayed,
            claimed,
            claimed_runs=[time for time in times if time is not None],
            weight=olympic_weight(len(counted), dropped=dropped),
        )
    if claimed is None or gap is None:
        message = "time was not compared: a comparison needs a claimed time and two replays"
        return Reason("time_not_compared", "note", message)
    tolerated = 1 + policy.time_tolerance
    p_slower = gap.over(tolerated).p_more
    found = measured_seconds(replayed)
    here = mean(replayed) if found is None else found
    ratio = here / max(claimed, SHORTEST_SECONDS)
    numbers = {
        "claimed_seconds": claimed,
        "replayed_mean_seconds": mean(replayed),
        "ratio": gap.ratio,
        "tolerated_ratio": tolerated,
        "p_value": p_slower,
    }
    words = (
        f"measured {here:.3g} s, {ratio:.3g} times the claimed {claimed:.3g} s, "
        f"tolerated {tolerated:g} times"
    )
    if ratio > tolerated:
        return Reason("slower_than_claimed", "note", f"{words} (p = {p_slower:.2g})", numbers)
    return Reason("time_agrees", "supports", words, numbers)


def judge_quality(case: Case) -> Reason:
    """Say which quality was claimed and measured within the budget, or why only claimed."""
    benchmark, report = case.benchmark, case.report
    why = why_not_timed(report, hardware_class=case.require_claim().system.hardware_class)
    if why is not None:
        return why
    at = [evaluation_at_target(benchmark, run) for run in report.runs]
    sides = {
        "claimed": [run.best_quality for run in case.runs],
        "measured": [None if found is None else found.quality for found in at],
    }
    known = {name: [each for each in side if each is not None] for name, side in sides.items()}
    numbers = {name: mean(side) for name, side in known.items() if side}
    words = ", ".join(f"{name} {figure:.4g}" for name, figure in numbers.items())
    message = f"{benchmark.target.called} within the budget: {words or 'none'}"
    return Reason("quality_compared", "note", message, numbers)


def why_not_timed(report: ReplayReport, *, hardware_class: str) -> Reason | None:
    """Say why a report's times do not count on a claim's hardware class."""
    ours = report.system.hardware_class
    if ours != hardware_class:
        message = (
            f"time was not compared: the claim was made on {hardware_class}, the replay on {ours}"
        )
        return Reason("hardware_differs", "note", message)
    if report.drift is not None:
        message = f"time was not compared: the worker was {report.drift}"
        return Reason("worker_drifted", "note", message)
    return None


def open_unless_timed(case: Case) -> list[Reason]:
    """Say why the times of a case don't count, which leaves its verdict open."""
    hardware_class = case.require_claim().system.hardware_class
    found = why_not_timed(case.report, hardware_class=hardware_class)
    return [] if found is None else [replace(found, weight="leaves_open")]


def note_disturbed(report: ReplayReport) -> list[Reason]:
    """Note that other programs had the processor: the times count, and may be too long."""
    if not is_disturbed(report):
        return []
    message = "other programs had the processor: an idle machine may be faster"
    numbers = {"cpu_share": cpu_share(report), "needed": QUIET_CPU_SHARE}
    return [Reason("noisy_host", "note", message, numbers)]


def is_disturbed(report: ReplayReport) -> bool:
    return cpu_share(report) < QUIET_CPU_SHARE


def cpu_share(report: ReplayReport) -> float:
    """Return the lowest share of the processor of any run. 1.0 on an accelerator."""
    return min(processor_shares(report).values(), default=1.0)


def processor_shares(report: ReplayReport) -> dict[int, float]:
    """Return each run's share of the processor, as its sandbox measured it.

    Without a sandbox it is the processor's time over the clock's, unless there is an accelerator.
    """
    runs = report.runs
    measured = {run.index: run.processor_share for run in runs if run.processor_share is not None}
    if measured or report.system.accelerator_count:
        return measured
    return {
        run.index: min(run.cpu_seconds / run.parent_seconds, 1.0)
        for run in runs
        if run.cpu_seconds is not None and run.parent_seconds
    }


def judge_precision(claim: Claim, report: ReplayReport) -> list[Reason]:
    """Reject a claim if the replay touched a narrower type than stated."""
    audit = report.precision
    if claim.precision is None or audit is None or audit.lowest is None:
        return []
    numbers = {f"operations_{name}": float(count) for name, count in audit.observed.items()}
    if is_narrower(audit.lowest, claim.precision):
        message = (
            f"the claim states {claim.precision}, and the training touched {audit.lowest} "
            f"in a matmul or convolution ({audit.scope})"
        )
        return [Reason("precision_differs", "rejects", message, numbers)]
    message = f"nothing narrower than the claimed {claim.precision} was touched ({audit.scope})"
    return [Reason("precision_agrees", "supports", message, numbers)]


def draw_replay(
    benchmark: Benchmark, claim: Claim, *, entropy: bytes, wanted: int | None = None
) -> Draw:
    """Draw the runs of a verification and their seeds. Raises RuleError if it can't be replayed.

    `wanted`, or min_runs to max_runs, and twice as many for uncalibrated settings.
    """
    reason = why_not_replayable(benchmark, claim)
    if reason is not None or benchmark.replay is None:
        raise RuleError(reason or "no replay", expected="a submission the reference can replay")
    policy = benchmark.replay
    digest = hashlib.sha256(b"finishline plan" + entropy).digest()
    span = policy.max_runs - policy.min_runs + 1
    runs = policy.min_runs + int.from_bytes(digest[:8], "big") % span
    if not is_calibrated(benchmark, claim):
        runs *= 2
    return draw(entropy, runs=wanted or runs)


def why_not_replayable(benchmark: Benchmark, claim: Claim) -> str | None:
    """Return why the reference model cannot replay a claim."""
    if claim.kind == "inference":
        return "it is an inference result. Request its latency"
    if claim.package is not None:
        return "it is a code submission. Request its measurement"
    if benchmark.replay is None:
        return f"{benchmark.benchmark_id} has no reference model to replay yet"
    if claim.dawnbench is not None:
        return "a DAWNBench entry has no hyperparameters"
    unknown = sorted(set(claim.hyperparameters) - set(benchmark.hyperparameters))
    if unknown:
        return f"the reference model has no hyperparameter {unknown[0]!r}"
    offered = benchmark.replay.precisions
    if offered and claim.precision is not None and claim.precision not in offered:
        return f"it states {claim.precision}, and the reference trains in {', '.join(offered)}"
    if claim.division == "open" and claim.trained_with == "own":
        return "it was trained with its own code. Send it as a code submission to have it measured"
    return None


def train_as_claimed(request: Request, drawn: Draw, *measure: Measure) -> list[Training]:
    """Plan one training of the reference, in the claim's settings, for each drawn seed."""
    claim = request.claims[0]
    precision = precision_of(request.benchmark, claim)
    settings = trained_settings(request.benchmark, claim)
    return trainings_of(drawn, request.package, settings, measure=measure, precision=precision)


def plan_replay(request: Request) -> list[Training]:
    drawn = draw_replay(
        request.benchmark,
        request.claims[0],
        entropy=request.entropy,
        wanted=request.wishes.get("runs"),
    )
    return train_as_claimed(request, drawn, "tta", "profile")


REPLAY = Purpose(
    name="replay",
    track="evidence",
    plan=plan_replay,
    judge=judge,
    why_not=lambda benchmark, claims: why_not_replayable(benchmark, claims[0]),
    unable="cannot be verified",
    words=Words(
        to_do="replay",
        doing="Replaying",
        endings={
            "verified": "The replay of {runs} agrees with the submitted logs.",
            "rejected": "The replay of {runs} contradicts the submitted logs.",
            "": "Inconclusive: the replay of {runs} could not confirm the submitted logs.",
        },
        about="train the reference again as the log submission says",
    ),
    checks_claims="train",
)
