"""Rerun independently: a second training of one seed, and two verifications of one submission."""

from dataclasses import dataclass

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.verification.job import Case, Draw, Purpose, Request, Words
from finishline.rules.verification.judge_convergence import Curve, evaluations_of
from finishline.rules.verification.messages import ReplayReport, ReplayRun, Training
from finishline.rules.verification.replay import is_disturbed, train_as_claimed, why_not_timed
from finishline.rules.verification.verdict import Outcome, Verdict

# Fewer common evaluations can't tell two seeds apart.
FEWEST_COMMON = 3


def curve_distance(first: Curve, second: Curve) -> float | None:
    """Return the root mean square difference over common epochs, if there are three."""
    other = {item.epoch: item.quality for item in second if item.epoch is not None}
    gaps = [item.quality - other[item.epoch] for item in first if item.epoch in other]
    if len(gaps) < FEWEST_COMMON:
        return None
    return float((sum(gap**2 for gap in gaps) / len(gaps)) ** 0.5)


PACE_SHARE = 0.05
PACE_SECONDS = 0.25


@dataclass(frozen=True)
class Agreement:
    """Whether two trainings of one seed agree in quality, and in time at one evaluation."""

    agrees: bool
    paced: bool


def compare_runs(run: ReplayRun, other: ReplayRun, *, limit: float | None) -> Agreement | None:
    """Compare the curves and the pace of two trainings of one seed.

    Curves agree within `limit`, the distance that calibrations measured for equal seeds. Without it
    only the pace is compared, which agrees within 5 % and 0.25 s at the last common evaluation. A
    run that missed the target ends no earlier than the other, and both have all evaluations. None
    below three common evaluations.
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
        and _evaluate_alike(run, other)
        and not _stops_short(run, other)
        and not _stops_short(other, run),
        abs(seconds - other_seconds) <= most,
    )


def _evaluate_alike(run: ReplayRun, other: ReplayRun) -> bool:
    """Whether both were evaluated after the same epochs, as far as the shorter one goes."""
    pairs = zip(run.evaluations, other.evaluations, strict=False)
    return all(one.epoch == another.epoch for one, another in pairs)


def _stops_short(run: ReplayRun, other: ReplayRun) -> bool:
    return run.status != "reached" and len(run.evaluations) < len(other.evaluations)


def plan_cross_check(request: Request) -> list[Training]:
    drawn = Draw(seeds=(request.wishes["seed"],), nonce=request.entropy.hex())
    return train_as_claimed(request, drawn, "tta", "profile")


def agree(benchmark: Benchmark, first: ReplayReport, second: ReplayReport) -> Outcome:
    """Compare a report of one run with another of its seed.

    A busy worker's pace is ignored. A busy first one needs only the curve to agree, and a
    busy second one can't confirm a time of another pace.
    """
    run = second.runs[0]
    other = next(item for item in first.runs if item.seed == run.seed)
    policy = benchmark.replay
    found = compare_runs(other, run, limit=None if policy is None else policy.equal_seed_distance)
    if found is None:
        return "inconclusive"
    ours = second.system.hardware_class
    first_timed, second_timed = (
        why_not_timed(each, hardware_class=ours) is None and not is_disturbed(each)
        for each in (first, second)
    )
    if not found.agrees or (first_timed and second_timed and not found.paced):
        return "rejected"
    return "verified" if found.paced or not first_timed else "inconclusive"


def judge_cross_check(case: Case) -> Verdict:
    """Whether the run and the precision audit agree with the report that is checked."""
    if case.checked is None:
        raise ValueError("an independent rerun without a report to check")
    outcome = agree(case.benchmark, case.checked, case.report)
    audits = [report.precision for report in (case.checked, case.report)]
    found = {audit.lowest for audit in audits if audit is not None and audit.lowest is not None}
    return Verdict("rejected" if outcome == "verified" and len(found) > 1 else outcome, ())


CROSS_CHECK = Purpose(
    name="cross_check",
    track="comparison",
    plan=plan_cross_check,
    judge=judge_cross_check,
    why_not=lambda benchmark, claims: None,  # The run was trained before.
    unable="cannot be trained again",
    words=Words(
        to_do="repeat",
        doing="Repeating",
        endings={
            "verified": "Another owner's worker reproduced the run.",
            "rejected": "Another owner's worker did not reproduce the run.",
            "": "The independent rerun of {runs} is inconclusive.",
        },
        name="cross-check",
    ),
    claims=0,
)
