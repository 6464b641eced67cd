"""Replay: train a claim again from secret seeds, and judge it by these runs."""

import hashlib

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.submissions.claim import Claim, trained_settings
from finishline.rules.verification.control_points import is_calibrated, precision_of
from finishline.rules.verification.job import (
    Case,
    Draw,
    Purpose,
    Request,
    Words,
    draw,
    trainings_of,
)
from finishline.rules.verification.judge import judge
from finishline.rules.verification.messages import Measure, Training
from finishline.rules.verification.verdict import Verdict


def draw_replay(
    benchmark: Benchmark, claim: Claim, *, entropy: bytes, wanted: int | None = None
) -> Draw:
    """Draw the number of runs of a verification and their seeds, from 32 random bytes.

    Between min_runs and max_runs, twice as many where the claimed settings are not calibrated.
    `wanted` is another number. Raises RuleError if the claim cannot be replayed.
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
    """Reason why the reference model cannot replay a claim, or None if it can."""
    if claim.kind == "inference":
        return "it is an inference result. Request its latency instead (kind latency)"
    if claim.package is not None:
        return "it is a code submission. Request its measurement instead (kind entry)"
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
    """One training of the reference, in the claim's settings, for each drawn seed."""
    claim = request.claims[0]
    precision = precision_of(request.benchmark, claim)
    settings = trained_settings(request.benchmark, claim)
    return trainings_of(drawn, request.package, settings, measure=measure, precision=precision)


def plan_replay(request: Request) -> list[Training]:
    """Plan the trainings of a replay, for each drawn seed."""
    drawn = draw_replay(
        request.benchmark,
        request.claims[0],
        entropy=request.entropy,
        wanted=request.wishes.get("runs"),
    )
    return train_as_claimed(request, drawn, "tta", "profile")


def judge_replay(case: Case) -> Verdict:
    """Compare the claim with its replay."""
    claim, planned = case.require_claim(), len(case.trainings)
    return judge(
        case.benchmark, claim, case.runs, case.report, runs_planned=planned, curves=case.curves
    )


REPLAY = Purpose(
    name="replay",
    track="evidence",
    plan=plan_replay,
    judge=judge_replay,
    why_not=lambda benchmark, claims: why_not_replayable(benchmark, claims[0]),
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
)
