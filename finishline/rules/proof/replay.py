"""Check that a proof's replays follow from its seal and stream, and its verdict from them."""

from collections.abc import Sequence
from typing import Any

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.calibration import judged_beside
from finishline.rules.errors import RuleError
from finishline.rules.proof.proof import Proof, ReasonPart
from finishline.rules.proof.score import is_equal
from finishline.rules.scoring.run import evaluation_of
from finishline.rules.submissions.claim import Claim
from finishline.rules.text import count_text
from finishline.rules.verification.control_points import KnownCurve, check_curves
from finishline.rules.verification.job import FIRST_DRAW_BY_NONCE, Draw, draw_of
from finishline.rules.verification.job import draw as draw_seeds
from finishline.rules.verification.judge import judge
from finishline.rules.verification.judge_convergence import evaluation_at_target
from finishline.rules.verification.messages import ReplayReport
from finishline.rules.verification.replay_plan import FRESH_RUNS, band_for, draw_replay
from finishline.rules.verification.report_check import check_ledgers, check_report
from finishline.rules.verification.report_stream import CLOCK_SLACK_SECONDS, check_stream
from finishline.rules.verification.verdict import Reason, Verdict

# Reasons about the workers rather than the replay; some leave the verdict open.
OF_WORKERS = frozenset({"no_second_worker", "cross_check_differs"})
TOLERANCE_SECONDS = 1e-6
NO_REPORT = "the verification ended without a report"
EARLIER_DRAW = (
    "the seeds were drawn before the nonce determined them: only the seal, not the draw, can be "
    "checked"
)


def open_seal(proof: Proof, benchmark: Benchmark) -> int:
    """Open the seal as its draw. Raises RuleError if it does not open."""
    draw = proof.draw
    if draw.runs != len(draw.seeds):
        raise RuleError(
            count_text(len(draw.seeds), "seed"), field="draw.seeds", expected=f"{draw.runs}"
        )
    sealed = Draw(seeds=tuple(draw.seeds), nonce=draw.nonce, own_runs=draw.own_runs)
    opened = draw_of(
        benchmark, proof.submission.id, sealed, sealed_as=draw.seal, beside=draw.beside
    )
    if opened is None:
        raise RuleError(
            "benchmark, submission, seeds and nonce do not hash to it",
            field="draw.seal",
            expected=draw.seal,
        )
    return opened


def check_seeds(proof: Proof, benchmark: Benchmark, claim: Claim, *, only_seal: bool) -> str | None:
    """The seal opens; and runs and seeds are those its nonce draws."""
    opened, draw = open_seal(proof, benchmark), proof.draw
    if only_seal:
        return None
    if opened < FIRST_DRAW_BY_NONCE:
        return EARLIER_DRAW
    again = _draw_again(proof, benchmark, claim, bytes.fromhex(draw.nonce))
    if again.seeds != tuple(draw.seeds):
        raise RuleError(
            f"got {draw.seeds}", field="draw.seeds", expected=f"{list(again.seeds)} by the nonce"
        )
    return None


def _draw_again(proof: Proof, benchmark: Benchmark, claim: Claim, entropy: bytes) -> Draw:
    """Draw again from the nonce, with as many fresh runs as were sealed beside it."""
    fresh = sealed_fresh_runs(proof)
    if fresh is not None:
        return draw_seeds(entropy, runs=fresh)
    return draw_replay(
        benchmark,
        claim,
        entropy=entropy,
        claimed_seeds=[run.seed for run in proof.submission.runs],
        own_seeds=proof.draw.own_runs,
    )


def sealed_fresh_runs(proof: Proof) -> int | None:
    """Number of fresh runs as sealed, None without. Raises RuleError unless each has a seed."""
    found, seeds = proof.draw.beside.get(FRESH_RUNS), len(proof.draw.seeds)
    if found not in (None, seeds):
        raise RuleError(f"{found} fresh runs", field="draw.beside", expected=f"{seeds}, the seeds")
    return found


def check_calibration(proof: Proof, benchmark: Benchmark) -> str | None:
    """Check that the calibration used as reference was sealed before the first replay."""
    wanted: dict[str, Any] = {}
    if proof.calibration is not None:
        wanted = judged_beside(proof.calibration.id, benchmark)
    found = {name: value for name, value in proof.draw.beside.items() if name != FRESH_RUNS}
    if found != wanted:
        raise RuleError(f"{found}", field="draw.beside", expected=f"{wanted}")
    return None


def check_band(proof: Proof, benchmark: Benchmark, claim: Claim) -> str | None:
    """The control points are those of the calibrated runs in the definition."""
    wanted = band_for(benchmark, claim, runs=len(proof.draw.seeds) - proof.draw.own_runs)
    found = proof.plan.control_points
    if len(found) != len(wanted):
        raise RuleError(
            f"{len(found)} control points", field="plan.control_points", expected=f"{len(wanted)}"
        )
    for mine, theirs in zip(wanted, found, strict=True):
        for name in ("index", "mean", "lower", "upper"):
            if not is_equal(getattr(theirs, name), getattr(mine, name)):
                raise RuleError(
                    f"{name} {getattr(theirs, name)!r}",
                    field=f"plan.control_points[{mine.index - 1}]",
                    expected=f"{getattr(mine, name)!r}",
                )
    return None


def check_runs(proof: Proof) -> str | None:
    """Every run that was sealed is reported, in order, with its seed; none is left out."""
    report = report_of(proof)
    if report is None:
        return NO_REPORT
    check_report(report, seeds=proof.draw.seeds)
    return None


def check_times(proof: Proof, benchmark: Benchmark) -> str | None:
    """Each evaluation's seconds are its ledger on the benchmark's clock; a TTA is one of them."""
    report = report_of(proof)
    if report is None:
        return NO_REPORT
    for run in report.runs:
        check_ledgers(run, benchmark.clock, division=proof.submission.division)
        reached = evaluation_at_target(benchmark, run)
        found, wanted = run.tta_seconds, reached.seconds if reached is not None else None
        if run.status == "reached" and (found is None or wanted is None or _differ(found, wanted)):
            raise RuleError(
                f"{found}", field=f"report.runs[{run.index}].tta_seconds", expected=f"{wanted}"
            )
    return None


def _differ(found: float, wanted: float) -> bool:
    return abs(found - wanted) > TOLERANCE_SECONDS


def check_verdict(proof: Proof, benchmark: Benchmark, claim: Claim) -> str | None:
    """Check that claim and report give the same outcome, reasons and numbers by the rules.

    Words are left out: they may be put better by later code.
    """
    report = report_of(proof)
    if report is None:
        check_verdict_again(proof, None)
        return None
    submission = proof.submission
    again = judge(
        benchmark,
        claim,
        submission.runs,
        report,
        runs_planned=len(proof.draw.seeds),
        own_runs=proof.draw.own_runs,
        own_again=proof.verdict.own_again,
        curves=[[evaluation_of(row) for row in curve] for curve in submission.curves],
    )
    check_verdict_again(proof, again)
    return None


def check_verdict_again(proof: Proof, again: Verdict | None) -> None:
    """Hold the verdict of a proof against one that was reached again; None without a report."""
    if again is None:
        _check_without_report(proof)
        return
    reasons = proof.verdict.reasons
    own = [reason for reason in reasons if reason.code not in OF_WORKERS]
    others = [reason for reason in reasons if reason.code in OF_WORKERS]
    is_opened = any(reason.weight == "leaves_open" for reason in others)
    wanted = "inconclusive" if is_opened else again.outcome
    if wanted != proof.verdict.outcome:
        raise RuleError(f"{proof.verdict.outcome}", field="verdict.outcome", expected=f"{wanted}")
    # An earlier verdict has other numbers beside the same reasons.
    has_numbers = proof.submission.claim.trained_with is not None
    _compare_reasons(own, again.reasons, with_numbers=has_numbers)


def _check_without_report(proof: Proof) -> None:
    state, outcome = proof.verification.state, proof.verdict.outcome
    wanted = {"failed": "inconclusive", "cancelled": None}.get(state, "a report")
    if outcome != wanted:
        raise RuleError(f"{outcome} after {state}", field="verdict.outcome", expected=f"{wanted}")


def _compare_reasons(
    stored: Sequence[ReasonPart], again: Sequence[Reason], *, with_numbers: bool
) -> None:
    found, wanted = [reason.code for reason in stored], [reason.code for reason in again]
    if found != list(wanted):
        raise RuleError(f"{found}", field="verdict.reasons", expected=f"{wanted}")
    for index, (mine, theirs) in enumerate(zip(again, stored, strict=True)):
        field = f"verdict.reasons[{index}]"
        if not with_numbers and mine.weight == theirs.weight:
            continue
        if mine.weight != theirs.weight or set(mine.numbers) != set(theirs.numbers):
            raise RuleError(f"{theirs.code} {theirs.weight}", field=field, expected=mine.weight)
        for name, number in mine.numbers.items():
            if not is_equal(theirs.numbers[name], number):
                raise RuleError(
                    f"{theirs.numbers[name]!r}",
                    field=f"{field}.numbers.{name}",
                    expected=f"{number!r}",
                )


def report_of(proof: Proof) -> ReplayReport | None:
    """The report of a verification that has one. Raises RuleError if it must have one, or not."""
    done = proof.verification.state == "done"
    if done != (proof.report is not None):
        raise RuleError(
            "no report" if done else "a report", field="report", expected="one only if it is done"
        )
    return proof.report


NOT_KEPT = "the proof does not hold when its evaluations were posted"


def check_posted(proof: Proof, benchmark: Benchmark) -> str | None:
    """The report is as it was posted, and by the server's clock it took as long as it says.

    A server may allow a busy machine more than the rule does: that is said, and is no pass.
    """
    if proof.report is None:
        return NO_REPORT
    last = proof.attempts[-1]
    if last.posted is None:
        return NOT_KEPT
    try:
        check_stream(proof.report, last.posted, benchmark.clock)
    except RuleError:
        allowed = last.clock_slack_seconds
        if allowed is None or allowed <= CLOCK_SLACK_SECONDS:
            raise
        check_stream(proof.report, last.posted, benchmark.clock, slack_seconds=allowed)
        return f"posted within {allowed:g} s, which its server allows, not within " + (
            f"{CLOCK_SLACK_SECONDS:g} s"
        )
    return None


def check_own_curves(proof: Proof, benchmark: Benchmark) -> str | None:
    """No two replays are equal, and none is a calibrated curve or one of the claim."""
    if proof.report is None:
        return NO_REPORT
    submission = proof.submission
    claimed = [
        KnownCurve(
            f"the claim's {run.file}",
            run.seed,
            tuple(evaluation_of(row).quality for row in curve),
        )
        for run, curve in zip(submission.runs, submission.curves, strict=True)
    ]
    check_curves(proof.report, [*calibrated_curves(benchmark), *claimed])
    return None


def calibrated_curves(benchmark: Benchmark) -> list[KnownCurve]:
    """The curves that a definition, or the calibration adopted for it, holds."""
    return [
        KnownCurve(f"the calibrated run with seed {run.seed}", run.seed, tuple(run.quality))
        for run in benchmark.reference_runs
    ]
