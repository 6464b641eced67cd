"""Replay: train a claim again from sealed seeds, and judge it by these runs."""

from collections.abc import Sequence

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.submissions.claim import Claim
from finishline.rules.verification.job import Case, Purpose, Request, Words, trainings_of
from finishline.rules.verification.judge import judge
from finishline.rules.verification.messages import Training
from finishline.rules.verification.replay_plan import (
    draw_replay,
    precision_of,
    why_not_replayable,
)
from finishline.rules.verification.verdict import Verdict


def plan_replay(request: Request) -> list[Training]:
    """One training of the reference, in the claim's settings, for each drawn seed."""
    claim = request.claims[0]
    drawn = draw_replay(request.benchmark, claim, entropy=request.entropy)
    return trainings_of(
        drawn,
        request.package,
        claim.hyperparameters,
        measure=("tta", "profile"),
        precision=precision_of(request.benchmark, claim),
    )


def judge_replay(case: Case) -> Verdict:
    """Compare the claim with its replay."""
    return judge(
        case.benchmark,
        case.require_claim(),
        case.runs,
        case.report,
        runs_planned=len(case.trainings),
        curves=case.curves,
    )


def _why_not(benchmark: Benchmark, claims: Sequence[Claim]) -> str | None:
    return why_not_replayable(benchmark, claims[0])


REPLAY = Purpose(
    name="replay",
    plan=plan_replay,
    judge=judge_replay,
    why_not=_why_not,
    unable="cannot be verified",
    words=Words(
        to_do="replay",
        doing="Replaying",
        endings={
            "verified": "The replay of {runs} supports the claim.",
            "rejected": "The replay of {runs} contradicts the claim.",
            "": "Inconclusive: the replay of {runs} could not confirm the claim.",
        },
        about="train the reference again as the claim says",
        name="verification",
    ),
    checks_claims="train",
    is_evidence=True,
    fills_pool=True,
)
