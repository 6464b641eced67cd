"""Do the replays of a proof follow from its seal, and its verdict from the replays?"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from rules.benchmark import Benchmark
from rules.calibration import judged_beside
from rules.claim import Claim
from rules.clock import Clock
from rules.counts import count_text
from rules.curve import evaluation_of
from rules.errors import RuleError
from rules.judge_convergence import evaluation_at_target
from rules.messages import ReplayReport, ReplayRun
from rules.proof import Proof, ReasonPart
from rules.proof_score import is_equal
from rules.replay_plan import DRAW, Plan, band_for, draw_of, plan
from rules.report_check import check_report
from rules.run import Ledger
from rules.verdict import Reason
from rules.verification import judge

TOLERANCE_SECONDS = 1e-6
NO_REPORT = "the verification ended without a report"
EARLIER_DRAW = (
    "the seeds were drawn before the nonce determined them: only the seal, not the draw, can be "
    "checked"
)


def check_seeds(proof: Proof, benchmark: Benchmark, claim: Claim, *, only_seal: bool) -> str | None:
    """The seal opens; and runs and seeds are those its nonce draws."""
    draw = proof.draw
    if draw.runs != len(draw.seeds):
        raise RuleError(
            count_text(len(draw.seeds), "seed"), field="draw.seeds", expected=f"{draw.runs}"
        )
    sealed = Plan(seeds=tuple(draw.seeds), nonce=draw.nonce)
    opened = draw_of(
        benchmark, proof.submission.id, sealed, sealed_as=draw.seal, beside=draw.beside
    )
    if opened is None:
        raise RuleError(
            "benchmark, submission, seeds and nonce do not hash to it",
            field="draw.seal",
            expected=draw.seal,
        )
    if only_seal:
        return None
    if opened != DRAW:
        return EARLIER_DRAW
    again = plan(benchmark, claim, entropy=bytes.fromhex(draw.nonce))
    if again.seeds != sealed.seeds:
        raise RuleError(
            f"got {draw.seeds}", field="draw.seeds", expected=f"{list(again.seeds)} by the nonce"
        )
    return None


def check_calibration(proof: Proof, benchmark: Benchmark) -> str | None:
    """What judges in place of the definition's own runs was sealed before the first replay."""
    wanted: dict[str, Any] = {}
    if proof.calibration is not None:
        wanted = judged_beside(proof.calibration.id, benchmark)
    if proof.draw.beside != wanted:
        raise RuleError(f"{proof.draw.beside}", field="draw.beside", expected=f"{wanted}")
    return None


def check_band(proof: Proof, benchmark: Benchmark, claim: Claim) -> str | None:
    """The control points are those of the calibrated runs in the definition."""
    wanted = band_for(benchmark, claim, runs=len(proof.draw.seeds))
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
    report = _report(proof)
    if report is None:
        return NO_REPORT
    check_report(report, seeds=proof.draw.seeds)
    return None


def check_times(proof: Proof, benchmark: Benchmark) -> str | None:
    """Each evaluation's seconds are its ledger on the benchmark's clock; a TTA is one of them."""
    report = _report(proof)
    if report is None:
        return NO_REPORT
    for run in report.runs:
        _check_ledgers(run, benchmark.clock, proof.submission.division)
        reached = evaluation_at_target(benchmark, run)
        found, wanted = run.tta_seconds, reached.seconds if reached is not None else None
        if run.status == "reached" and (found is None or wanted is None or _differ(found, wanted)):
            raise RuleError(
                f"{found}", field=f"report.runs[{run.index}].tta_seconds", expected=f"{wanted}"
            )
    return None


def _check_ledgers(run: ReplayRun, clock: Clock, division: str) -> None:
    place = f"report.runs[{run.index}]"
    ledgers = [_ledger(item.ledger, place) for item in run.evaluations]
    for index, (item, ledger) in enumerate(zip(run.evaluations, ledgers, strict=True)):
        wanted = clock.seconds(ledger, division=division)
        if _differ(item.seconds, wanted):
            raise RuleError(
                f"{item.seconds} s",
                field=f"{place}.evaluations[{index}].seconds",
                expected=f"{wanted} s by its ledger on the {clock.name} clock",
            )
    totals = [ledger.total() for ledger in [*ledgers, _ledger(run.ledger, place)]]
    if any(later < earlier - TOLERANCE_SECONDS for earlier, later in pairwise(totals)):
        raise RuleError("its ledger loses seconds", field=place, expected="a ledger that grows")


def _ledger(table: dict[str, float], place: str) -> Ledger:
    try:
        ledger = Ledger(**table)
    except TypeError as error:
        raise RuleError(f"{error}", field=f"{place}.ledger", expected="seconds by phase") from error
    if any(seconds < 0 for seconds in table.values()):
        raise RuleError("negative seconds", field=f"{place}.ledger", expected="seconds by phase")
    return ledger


def _differ(found: float, wanted: float) -> bool:
    return abs(found - wanted) > TOLERANCE_SECONDS


def check_verdict(proof: Proof, benchmark: Benchmark, claim: Claim) -> str | None:
    """Outcome, reasons and their numbers are what the rules make of claim and report.

    Words are left out: they may be put better by later code.
    """
    report = _report(proof)
    if report is None:
        _check_without_report(proof)
        return None
    submission = proof.submission
    again = judge(
        benchmark,
        claim,
        submission.runs,
        report,
        runs_planned=len(proof.draw.seeds),
        curves=[[evaluation_of(row) for row in curve] for curve in submission.curves],
        elsewhere=submission.elsewhere,
    )
    if again.outcome != proof.verdict.outcome:
        raise RuleError(
            f"{proof.verdict.outcome}", field="verdict.outcome", expected=f"{again.outcome}"
        )
    _compare_reasons(proof.verdict.reasons, again.reasons)
    return None


def _check_without_report(proof: Proof) -> None:
    state, outcome = proof.verification.state, proof.verdict.outcome
    wanted = {"failed": "inconclusive", "cancelled": None}.get(state, "a report")
    if outcome != wanted:
        raise RuleError(f"{outcome} after {state}", field="verdict.outcome", expected=f"{wanted}")


def _compare_reasons(stored: Sequence[ReasonPart], again: Sequence[Reason]) -> None:
    found, wanted = [reason.code for reason in stored], [reason.code for reason in again]
    if found != list(wanted):
        raise RuleError(f"{found}", field="verdict.reasons", expected=f"{wanted}")
    for index, (mine, theirs) in enumerate(zip(again, stored, strict=True)):
        field = f"verdict.reasons[{index}]"
        if mine.weight != theirs.weight or set(mine.numbers) != set(theirs.numbers):
            raise RuleError(f"{theirs.code} {theirs.weight}", field=field, expected=mine.weight)
        for name, number in mine.numbers.items():
            if not is_equal(theirs.numbers[name], number):
                raise RuleError(
                    f"{theirs.numbers[name]!r}",
                    field=f"{field}.numbers.{name}",
                    expected=f"{number!r}",
                )


def _report(proof: Proof) -> ReplayReport | None:
    """The report of a verification that has one. Raises RuleError if it must have one, or not."""
    done = proof.verification.state == "done"
    if done != (proof.report is not None):
        raise RuleError(
            "no report" if done else "a report", field="report", expected="one only if it is done"
        )
    return proof.report
