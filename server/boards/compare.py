"""Compare submissions pair by pair, and verifications of one: who is faster, and how surely."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations

from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.api.comparisons import (
    ComparedPairView,
    ComparedView,
    PairedView,
    SubmissionComparison,
)
from finishline.api.verifications import (
    Difference,
    ReplayFigures,
    SideView,
    SystemDifference,
    VerificationComparison,
)
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.statistics.aggregate import NORMAL, mean
from finishline.rules.statistics.gaps import ALPHA, LogTimes, log_times, two_sided_p, welch
from finishline.rules.text import count_text
from finishline.rules.verification.judge_convergence import evaluation_at_target
from finishline.rules.verification.messages import ReplayReport
from server.base.database import find_row
from server.base.errors import ContentError
from server.base.models import Evidence, Pool, Submission, Verification
from server.base.standing import (
    find_verification,
    is_published,
    purpose_of,
    report_of,
)
from server.benchmarks.definitions import definition
from server.boards.rows import convergence_factor, measured_runs
from server.people.declared import Routes
from server.verifications.head_to_heads import judged_head_to_head
from web.compare import pair_sentence
from web.names import hardware_words

router = Routes(tags=["verifications"])
FEWEST, MOST = 2, 6
EXPECTED = f"{FEWEST} to {MOST} different ids, separated by commas"
POWER = 0.8
MOST_NEEDED = 1_000_000  # Nobody will ever train so many runs or pairs.


@dataclass(frozen=True)
class Comparison:
    """The first side against the second, as in ComparedPairView. `p_value` is two-sided."""

    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    p_value: float | None = None
    p_faster: float | None = None
    p_one_run_faster: float | None = None
    runs_needed: int | None = None


def compare(first: Sequence[float], second: Sequence[float]) -> Comparison:
    """Compare the seconds of two sets of runs.

    Welch's t-test on the logarithms of the runs that reached the target. Other runs have no time,
    and the ranked mean has already counted them as slowest.
    Source: Welch (1947). Mann and Whitney (1947) for the share of pairs.
    """
    one, other = log_times(first), log_times(second)
    if one is None or other is None:
        return Comparison()
    wins = sum((a < b) + 0.5 * (a == b) for a in first for b in second)
    share = wins / (len(first) * len(second))
    ratio, gap = math.exp(one.mean - other.mean), welch(one, other)
    if gap is None:
        return Comparison(ratio, p_one_run_faster=share)
    needed = _runs_needed(one, other)
    return Comparison(ratio, gap.low, gap.high, gap.p_value, gap.p_more, share, needed)


def _runs_needed(first: LogTimes, second: LogTimes) -> int | None:
    """Count runs for each side to show the gap, within one run of the exact power at p = 0.05."""
    gap = first.mean - second.mean
    if first.variance is None or second.variance is None or gap == 0.0:
        return None
    total = first.variance + second.variance
    sides = total**2 / (first.variance**2 + second.variance**2)
    return count_needed(math.sqrt(total) / abs(gap), sides=sides, alpha=ALPHA)


def count_needed(inverse_effect: float, *, sides: float, alpha: float) -> int | None:
    """n = ((z(1 - alpha / 2) + z(0.8)) s / d)^2 + z(1 - alpha / 2)^2 / (2 k), at least two.

    The normal formula with a correction for Student's t with k (n - 1) degrees of freedom.
    Source: Guenther (1981), "Sample size formulas for normal theory t tests".
    """
    certain, powerful = NORMAL.inv_cdf(1 - alpha / 2), NORMAL.inv_cdf(POWER)
    root = (certain + powerful) * inverse_effect
    wanted = root * root + certain**2 / (2 * sides)
    return max(2, math.ceil(wanted)) if wanted <= MOST_NEEDED else None


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust each p-value for all of them, in the order given.

    Rejecting adjusted values of at most alpha keeps the chance of any false rejection at alpha,
    even if the tests depend on each other. Source: Holm (1979), "A simple sequentially rejective
    multiple test procedure".
    """
    places = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted = [1.0] * len(p_values)
    highest = 0.0
    for step, place in enumerate(places):
        highest = max(highest, min(1.0, (len(p_values) - step) * p_values[place]))
        adjusted[place] = highest
    return adjusted


def compare_submissions(session: Session, text: str) -> SubmissionComparison:
    """Compare every pair of two to six submissions by their measured runs, or else their logs."""
    ids = _read_ids(text)
    submissions = [find_row(session, Submission, one) for one in ids]
    if len(set(ids)) < len(ids):
        raise _refusal("an id named twice")
    benchmarks = sorted({one.benchmark_id for one in submissions})
    if len(benchmarks) > 1:
        message = f"submissions of {' and '.join(benchmarks)}"
        raise _refusal(message, "submissions of one benchmark")
    compared = [_compared(session, one) for one in submissions]
    found = SubmissionComparison(
        benchmark=benchmarks[0], submissions=compared, pairs=_pairs(compared)
    )
    known = found.model_dump()
    by_time = definition(session, submissions[0].benchmark_sha256).score.by == "time"
    before = "" if by_time else "By time, where the board ranks by quality: "
    pairs = [
        pair.model_copy(
            update={
                "sentence": before + pair_sentence(pair.model_dump(), known, names=ids),
                "head_to_head": _trained_in_turn(session, pair.first, pair.second),
            }
        )
        for pair in found.pairs
    ]
    return found.model_copy(update={"pairs": pairs})


def _trained_in_turn(session: Session, one: str, other: str) -> PairedView | None:
    both = (Verification.submission_id, Verification.against_id)
    statement = (
        select(Verification)
        .where(*(side.in_((one, other)) for side in both), Verification.outcome.is_not(None))
        .order_by(Verification.created_at.desc())
    )
    for verification in session.scalars(statement):
        found = judged_head_to_head(session, verification)
        if found.time is not None:
            return PairedView.of(
                found.time,
                id=verification.id,
                outcome=found.outcome,
                challenger=str(verification.submission_id),
                p_value=found.p_value,
            )
    return None


def _read_ids(text: str) -> list[str]:
    ids = [part.strip() for part in text.split(",")]
    if not FEWEST <= len(ids) <= MOST:
        raise _refusal(count_text(len(ids), "id"))
    if not all(ids):
        raise _refusal("an empty id")
    return ids


def _refusal(message: str, expected: str = EXPECTED) -> RuleError:
    return RuleError(message, field="query.submissions", expected=expected)


def _compared(session: Session, submission: Submission) -> ComparedView:
    if submission.evidence == "measured" or submission.trained_with == "package":
        pool = session.get(Pool, submission.pool_id) if submission.pool_id is not None else None
        tta_seconds = None if pool is None else pool.measured_seconds
        runs = measured_runs(session, Submission.id == submission.id)[submission.id]
        seconds, started = [run.seconds for run in runs if run.seconds is not None], len(runs)
    else:
        tta_seconds, started = submission.tta_seconds, submission.result.get("started", 0)
        factor = convergence_factor(tta_seconds, submission.result)
        reached = [run.tta_seconds for run in submission.runs if run.tta_seconds is not None]
        seconds = [each * factor for each in reached]
    return ComparedView.of(
        submission,
        submission_id=submission.id,
        hardware=hardware_words(submission.system),
        tta_seconds=tta_seconds,
        runs_started=started,
        run_seconds=seconds,
        single_run=len(seconds) == 1,
        withdrawn=submission.withdrawn_at is not None,
    )


def _pairs(compared: Sequence[ComparedView]) -> list[ComparedPairView]:
    pairs = list(combinations(compared, 2))
    found = [compare(one.run_seconds, other.run_seconds) for one, other in pairs]
    tested = [place for place, c in enumerate(found) if c.p_value is not None]
    adjusted = dict(zip(tested, holm([found[p].p_value or 0.0 for p in tested]), strict=True))
    return [
        ComparedPairView.of(
            found[place],
            first=one.submission_id,
            second=other.submission_id,
            p_adjusted=adjusted.get(place),
            told_apart=adjusted.get(place, 1.0) <= ALPHA,
            sentence="",
        )
        for place, (one, other) in enumerate(pairs)
    ]


@router.read("/verifications/compare")
def get_verification_comparison(
    session: Session, first: str, second: str
) -> VerificationComparison:
    """Compare two verifications of one submission, and mark differences beyond chance."""
    one, other = find_verification(session, first), find_verification(session, second)
    if one.submission_id != other.submission_id:
        raise ContentError(
            f"Verification {first} is of submission {one.submission_id}, {second} of "
            f"{other.submission_id}: expected two of one submission."
        )
    if one.submission is None or not all(purpose_of(each).fills_pool for each in (one, other)):
        raise ContentError("Choose two replays or measurements of the same submission.")
    if one is other:
        raise ContentError("Choose two different verifications.")
    judged_by = [_judging_definition(session, each) for each in (one, other)]
    reports = [_timed_report(each) for each in (one, other)]
    differences, systems = [], []
    left, right = reports
    if left is not None and right is not None:
        differences = compare_replays(judged_by[0], left, right)
        systems = compare_systems(left, right)
    return VerificationComparison(
        submission_id=one.submission_id,
        benchmark=one.submission.benchmark_id,
        first=_side(one, judged_by[0], left),
        second=_side(other, judged_by[1], right),
        same_band=one.control_points == other.control_points,
        differences=differences,
        systems=systems,
    )


def _judging_definition(session: Session, verification: Verification) -> Benchmark:
    kept = session.get(Evidence, verification.id)
    sha256 = kept.benchmark_sha256 if kept else verification.benchmark_sha256
    return definition(session, sha256)


def _timed_report(verification: Verification) -> ReplayReport | None:
    report = report_of(verification)
    if report is None:
        return None
    untimed = verification.control_runs | verification.repeat_runs
    return replace(report, runs=[run for run in report.runs if run.index not in untimed])


def _side(
    verification: Verification, benchmark: Benchmark, report: ReplayReport | None
) -> SideView:
    return SideView.of(
        verification,
        published=is_published(verification),
        worker=None if report is None else report.system.worker,
        hardware_class=None if report is None else report.system.hardware_class,
        runs=[] if report is None else figures_of(benchmark, report),
    )


def figures_of(benchmark: Benchmark, report: ReplayReport) -> list[ReplayFigures]:
    """List the figures of each run of a report."""
    best = max if benchmark.target.direction == "higher" else min
    found = []
    for run in report.runs:
        at = evaluation_at_target(benchmark, run)
        seconds, epochs = (None, None) if at is None else (run.tta_seconds, at.epoch)
        quality = best((item.quality for item in run.evaluations), default=None)
        found.append(ReplayFigures(run.index, run.seed, run.status, seconds, epochs, quality))
    return found


def compare_replays(
    benchmark: Benchmark, first: ReplayReport, second: ReplayReport
) -> list[Difference]:
    """Compare times and epochs to the target of two reports, over runs at the target."""
    same_class = first.system.hardware_class == second.system.hardware_class
    sides = [figures_of(benchmark, report) for report in (first, second)]
    found = []
    for figure, comparable in (("tta_seconds", same_class), ("epochs_to_target", True)):
        values = [[getattr(run, figure) for run in side] for side in sides]
        left, right = ([value for value in side if value is not None] for side in values)
        first_mean, second_mean = (mean(side) if side else None for side in (left, right))
        ratio = first_mean / second_mean if first_mean is not None and second_mean else None
        p_value = two_sided_p(left, right) if comparable else None
        found.append(Difference(figure, first_mean, second_mean, ratio, p_value, comparable))
    return found


def compare_systems(first: ReplayReport, second: ReplayReport) -> list[SystemDifference]:
    """List hardware, threads and package versions in which two workers differ."""
    left, right = _flat(first), _flat(second)
    return [
        SystemDifference(field, left.get(field), right.get(field))
        for field in sorted({*left, *right})
        if left.get(field) != right.get(field)
    ]


def _flat(report: ReplayReport) -> Mapping[str, str]:
    table = asdict(report.system)
    software = table.pop("software")
    table["nodes"] = ", ".join(node["name"] for node in table["nodes"]) or None
    flat = {name: str(value) for name, value in table.items() if value is not None}
    return flat | {f"software.{name}": str(value) for name, value in software.items()}
