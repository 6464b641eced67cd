"""Cross-checks: two trainings with an equal seed must follow one curve."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.canonical import sha256_of
from finishline.rules.submissions.claim import Claim
from finishline.rules.verification.job import Case, Draw, Purpose, Request, Words, trainings_of
from finishline.rules.verification.judge_convergence import Curve, evaluations_of
from finishline.rules.verification.judge_time import why_not_timed
from finishline.rules.verification.messages import ReplayReport, ReplayRun, Training
from finishline.rules.verification.precision import audits_differ
from finishline.rules.verification.replay_plan import precision_of
from finishline.rules.verification.verdict import Outcome, Verdict

# Fewer common evaluations tell no two seeds apart.
FEWEST_COMMON = 3


def curve_distance(first: Curve, second: Curve) -> float | None:
    """Root mean square difference of two qualities over the epochs that both were evaluated at.

    In the metric's unit; None below three common evaluations.
    """
    other = {item.epoch: item.quality for item in second if item.epoch is not None}
    gaps = [item.quality - other[item.epoch] for item in first if item.epoch in other]
    if len(gaps) < FEWEST_COMMON:
        return None
    return float((sum(gap**2 for gap in gaps) / len(gaps)) ** 0.5)


ORGANISERS_SHARE = 10  # One run in so many of an organisers' worker.
PACE_SHARE = 0.05
PACE_SECONDS = 0.25


@dataclass(frozen=True)
class Agreement:
    """Distance of two trainings of one seed, in quality and in time at one evaluation."""

    agrees: bool
    paced: bool
    distance: float
    seconds: float
    other_seconds: float


def drawn_runs(nonce: str, report: object, *, among: Sequence[int], organisers: bool) -> list[int]:
    """The indexes of the runs to train again: a function of the opened nonce and the report.

    One of every report of a worker that is not the organisers'; of the organisers' each run with a
    chance of one in ten. Nobody can foresee it: the report comes after the seal of the nonce, and
    the nonce is not known to its worker.
    """
    if not among:
        return []
    seed = bytes.fromhex(nonce) + bytes.fromhex(sha256_of(report))
    if not organisers:
        return [among[_number(seed, 0) % len(among)]]
    return [index for index in among if _number(seed, index) % ORGANISERS_SHARE == 0]


def _number(seed: bytes, index: int) -> int:
    digest = hashlib.sha256(b"finishline cross-check" + seed + index.to_bytes(4, "big")).digest()
    return int.from_bytes(digest[:8], "big")


def compare_runs(run: ReplayRun, other: ReplayRun, *, limit: float | None) -> Agreement | None:
    """Compare the curves and the pace of two trainings of one seed.

    Curves agree within `limit`, the distance that calibrations measured for equal seeds; None
    compares the pace alone. The pace agrees within 5 % and 0.25 s at the last evaluation that both
    have. A run that missed the target ends no earlier than the other. None where they have fewer
    than three evaluations in common. An agreement is `paced` or not, and `agrees` in all else.
    """
    distance = curve_distance(evaluations_of(run), evaluations_of(other))
    if distance is None:
        return None
    times = {item.epoch: item.seconds for item in other.evaluations}
    common = (item for item in reversed(run.evaluations) if item.epoch in times)
    seconds, other_seconds = next((item.seconds, times[item.epoch]) for item in common)
    most = PACE_SHARE * max(seconds, other_seconds) + PACE_SECONDS
    return Agreement(
        (limit is None or distance <= limit)
        and not _stops_short(run, other)
        and not _stops_short(other, run),
        abs(seconds - other_seconds) <= most,
        distance,
        seconds,
        other_seconds,
    )


def _stops_short(run: ReplayRun, other: ReplayRun) -> bool:
    return run.status != "reached" and len(run.evaluations) < len(other.evaluations)


def plan_cross_check(request: Request) -> list[Training]:
    """One finished run again, from its `seed`."""
    drawn = Draw(seeds=(request.wishes["seed"],), nonce=request.entropy.hex())
    claim = request.claims[0]
    return trainings_of(
        drawn,
        request.package,
        claim.hyperparameters,
        measure=("tta", "profile"),
        precision=precision_of(request.benchmark, claim),
    )


def agree(benchmark: Benchmark, first: ReplayReport, second: ReplayReport) -> Outcome:
    """Whether a report of one run agrees with another of its seed: inconclusive with too little.

    The pace of a busy worker contradicts nobody. The first one's time then counts nowhere, so the
    curve is enough; the second one's confirms no time of another pace.
    """
    run = second.runs[0]
    other = next(item for item in first.runs if item.seed == run.seed)
    policy = benchmark.replay
    found = compare_runs(other, run, limit=None if policy is None else policy.equal_seed_distance)
    if found is None:
        return "inconclusive"
    ours = second.system.hardware_class
    first_timed, second_timed = (
        why_not_timed(each, hardware_class=ours) is None for each in (first, second)
    )
    if not found.agrees or (first_timed and second_timed and not found.paced):
        return "rejected"
    return "verified" if found.paced or not first_timed else "inconclusive"


def judge_cross_check(case: Case) -> Verdict:
    """Whether the run and the precision audit agree with the report that is checked."""
    if case.checked is None:
        raise ValueError("a cross-check without a report to check")
    outcome = agree(case.benchmark, case.checked, case.report)
    if outcome == "verified" and audits_differ(case.checked, case.report):
        outcome = "rejected"
    return Verdict(outcome, ())


def _why_not(benchmark: Benchmark, claims: Sequence[Claim]) -> str | None:
    return None  # The run that is trained again was trained before.


CROSS_CHECK = Purpose(
    name="cross_check",
    plan=plan_cross_check,
    judge=judge_cross_check,
    why_not=_why_not,
    unable="cannot be trained again",
    words=Words(
        to_do="repeat",
        doing="Repeating",
        endings={
            "verified": "Another owner's worker reproduced the run.",
            "rejected": "Another owner's worker did not reproduce the run.",
            "": "The cross-check of {runs} is inconclusive.",
        },
        name="cross-check",
    ),
    claims=0,
    by_other_owners=True,
)
