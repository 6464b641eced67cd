"""Check that a proof's duel follows from its two packages, its seal and its stream."""

from collections.abc import Sequence

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.proof.proof import Proof
from finishline.rules.proof.replay import check_verdict_again, open_seal, report_of
from finishline.rules.submissions.claim import Claim
from finishline.rules.verification.duel import DUEL, plan_duel
from finishline.rules.verification.job import Case, Request
from finishline.rules.verification.messages import Training


def is_duel(proof: Proof) -> bool:
    """Whether a proof is of a duel, as its seal says."""
    return proof.draw.beside.get("kind") == DUEL.name


def check_duel_plan(proof: Proof, benchmark: Benchmark, claims: Sequence[Claim]) -> str | None:
    """The nonce draws the sealed seeds, for both sides in the order A B B A."""
    open_seal(proof, benchmark)
    against, beside = proof.submission.against, proof.draw.beside
    if against is None or beside.get("against") != against.id:
        found = "none" if against is None else repr(against.id)
        raise RuleError(
            found, field="submission.against", expected=f"{beside.get('against')!r}, as sealed"
        )
    planned = planned_duel(proof, benchmark, claims)
    seeds = [training.seed for training in planned]
    if seeds != proof.draw.seeds:
        raise RuleError(
            f"got {proof.draw.seeds}", field="draw.seeds", expected=f"{seeds} by the nonce"
        )
    settings = [training.settings for training in planned]
    if settings != beside.get("hyperparameters"):
        raise RuleError("other settings", field="draw.beside", expected="none, of packages")
    return None


def check_duel_verdict(proof: Proof, benchmark: Benchmark, claims: Sequence[Claim]) -> str | None:
    """The report gives the same outcome, ratio and p-values by the rules."""
    report = report_of(proof)
    if report is None:
        check_verdict_again(proof, None)
        return None
    trainings = planned_duel(proof, benchmark, claims)
    again = DUEL.judge(Case(benchmark, trainings, report, claim=claims[0]))
    check_verdict_again(proof, again)
    return None


def planned_duel(proof: Proof, benchmark: Benchmark, claims: Sequence[Claim]) -> list[Training]:
    """The trainings that the nonce of a duel draws: packages, seeds and draws of data, in order.

    Raises RuleError unless both sides are packages.
    """
    if len(claims) != 2 or any(claim.package is None for claim in claims):
        raise RuleError("a side without a package", field="submission", expected="two packages")
    entropy, pairs = bytes.fromhex(proof.draw.nonce), len(proof.draw.seeds) // 2
    return plan_duel(Request(benchmark, entropy, claims=claims, wishes={"pairs": pairs}))
