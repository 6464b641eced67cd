"""Lineage: code submissions of a benchmark, and the seconds that each gained on its parent."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from pydantic import Field
from sqlalchemy import select
from sqlalchemy.orm import Session, undefer

from finishline.api.comparisons import Named
from finishline.api.schema import Schema
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.statistics.gaps import TIME, Gap, Score, welch
from finishline.rules.verification.entry import factor_effects
from finishline.rules.verification.messages import PACKAGE_PREFIX
from finishline.rules.verification.purposes import ABLATION, HEAD_TO_HEAD
from server.base.models import Pool, Submission, TrainingPackage, Verification
from server.base.standing import report_of
from server.benchmarks.definitions import definition
from server.boards.records import list_records
from server.boards.rows import measured_runs
from server.verifications.head_to_heads import judged_head_to_head
from server.verifications.jobs import trainings_of

MOST_PACKAGES = 500


class GainView(Schema):
    """Seconds that a code submission gained on its parent, with a 95 % interval.

    `ratio` is the parent's time over the code submission's. On a board by quality the gain is of
    `quality`, in the unit of the target, and above 0 if it is better. `pairs` counts runs on equal
    seeds and data. It is null if separate measurements of `runs` and `parent_runs` were compared.
    """

    seconds: float | None = None
    quality: float | None = None
    low: float
    high: float
    ratio: float | None = None
    pairs: int | None = None
    runs: int
    parent_runs: int


class IdeaView(Named):
    """A code submission with a public source, and its measured time or quality.

    `parent` is the SHA-256 of its parent, if the parent's source is public. `gain` is measured on
    the parent's hardware class, null if a run missed the target or a time is missing. `record_date`
    is when it took the record of its division.
    """

    sha256: str
    title: str
    factors: dict[str, str] = Field(default_factory=dict)
    parent: str | None = None
    seconds: float | None = None
    low_seconds: float | None = None
    high_seconds: float | None = None
    quality: float | None = None
    runs: int = 0
    gain: GainView | None = None
    record_date: str | None = None


class IdeaClassView(Schema):
    """The code submissions measured on one hardware class, oldest first."""

    hardware_class: str
    packages: list[IdeaView]


class IdeaList(Schema):
    """The latest code submissions of a benchmark by hardware class, within which times compare."""

    benchmark: str
    classes: list[IdeaClassView]


# Code submissions by hardware class and SHA-256: times compare within one class.
Family = dict[tuple[str, str], IdeaView]


def list_ideas(session: Session, benchmark: Benchmark) -> IdeaList:
    """List a benchmark's latest code submissions with a public source."""
    by_class: defaultdict[str, list[IdeaView]] = defaultdict(list)
    for (name, _), view in _with_gains(
        session, _family(session, benchmark), benchmark.score
    ).items():
        by_class[name].append(view)
    classes = [
        IdeaClassView(hardware_class=name, packages=found) for name, found in by_class.items()
    ]
    return IdeaList(benchmark=benchmark.benchmark_id, classes=classes)


def has_lineage(session: Session, benchmark_id: str) -> bool:
    """Whether a published code submission of a benchmark is based on another."""
    based_on = TrainingPackage.manifest["based_on"].as_string()
    statement = (
        select(Submission.id)
        .join(TrainingPackage, TrainingPackage.submission_id == Submission.id)
        .where(
            Submission.benchmark_id == benchmark_id,
            Submission.withdrawn_at.is_(None),
            TrainingPackage.published_at.is_not(None),
            based_on.is_not(None),
        )
        .limit(1)
    )
    return session.scalar(statement) is not None


def find_idea(session: Session, benchmark: Benchmark, submission: Submission) -> IdeaView | None:
    """Find a public code submission with its gain on its parent."""
    package = submission.package
    parent = None if package is None else _parent(package)
    if package is None or parent is None:
        return None
    both = _family(session, benchmark, only=(package.package_sha256, parent))
    found = _with_gains(session, both, benchmark.score).values()
    return next((view for view in found if view.submission_id == submission.id), None)


def _family(session: Session, benchmark: Benchmark, *, only: Collection[str] = ()) -> Family:
    statement = (
        select(Submission, TrainingPackage, Pool)
        .join(TrainingPackage, TrainingPackage.submission_id == Submission.id)
        .outerjoin(Pool, Pool.id == Submission.pool_id)
        .where(
            Submission.benchmark_id == benchmark.benchmark_id,
            Submission.withdrawn_at.is_(None),
            TrainingPackage.published_at.is_not(None),
        )
        .order_by(Submission.submitted_at.desc(), Submission.id.desc())
        .limit(MOST_PACKAGES)
    )
    if only:
        statement = statement.where(TrainingPackage.package_sha256.in_(only))
    rows = list(reversed(session.execute(statement).unique().all()))
    public = _public(session, [_parent(package) for _, package, _ in rows])
    dates = {} if only else _record_dates(session, benchmark)
    found: Family = {}
    for submission, package, pool in rows:
        parent = _parent(package)
        measured = pool is not None and submission.evidence == "measured"
        timed = measured and benchmark.score.by == "time"
        found[package.hardware_class, package.package_sha256] = IdeaView(
            submission_id=submission.id,
            submitter=submission.submitter,
            display_name=submission.display_name,
            sha256=package.package_sha256,
            title=package.manifest["title"],
            factors=package.manifest["factors"] or {},
            parent=parent if parent in public else None,
            record_date=dates.get(submission.id),
            seconds=pool.measured_seconds if timed else None,
            low_seconds=pool.low_seconds if timed else None,
            high_seconds=pool.high_seconds if timed else None,
            quality=pool.measured_quality if measured else None,
            runs=pool.runs if measured else 0,
        )
    return found


def _parent(package: TrainingPackage) -> str | None:
    based_on = package.manifest["based_on"]
    return None if based_on is None else str(based_on.removeprefix(PACKAGE_PREFIX))


def _public(session: Session, hashes: Iterable[str | None]) -> set[str]:
    """Return the hashes with a public source, also those of withdrawn submissions."""
    statement = (
        select(TrainingPackage.package_sha256)
        .join(Submission, Submission.id == TrainingPackage.submission_id)
        .where(
            TrainingPackage.package_sha256.in_({each for each in hashes if each is not None}),
            Submission.embargoed.is_(False),
            TrainingPackage.published_at.is_not(None),
        )
    )
    return set(session.scalars(statement))


def _record_dates(session: Session, benchmark: Benchmark) -> dict[str, str]:
    return {
        record.submission_id: record.date
        for division in list_records(session, benchmark).divisions
        for record in reversed(division.records)
        if record.evidence == "measured"
    }


def _with_gains(session: Session, family: Family, score: Score) -> Family:
    parents = {
        view.submission_id: family[name, view.parent]
        for (name, _), view in family.items()
        if view.parent is not None and (name, view.parent) in family
    }
    paired = _gaps_of_pairs(session, {name: each.submission_id for name, each in parents.items()})
    ids = [view.submission_id for view in family.values()]
    measured = measured_runs(session, Submission.id.in_(ids))
    figures = {name: [score.figure(run) for run in runs] for name, runs in measured.items()}

    def with_gain(view: IdeaView) -> IdeaView:
        parent = parents.get(view.submission_id)
        if parent is None or score.figure(view) is None or score.figure(parent) is None:
            return view
        gap, pairs = paired.get(view.submission_id), None
        if gap is not None:
            pairs = gap.pairs
        else:
            own, other = (figures.get(each.submission_id, ()) for each in (view, parent))
            gap = gap_of_runs(own, other, score)
        if gap is None:
            return view
        if score.by == "time":
            figures_of_gain = seconds_saved(parent.seconds or 0.0, gap)
        else:  # The parent's cost minus the child's: above 0 if the child is better.
            gap = replace(gap, sign=1.0)
            figures_of_gain = {"quality": gap.difference, "low": gap.low, "high": gap.high}
        gain = GainView(**figures_of_gain, pairs=pairs, runs=view.runs, parent_runs=parent.runs)
        return view.model_copy(update={"gain": gain})

    return {name: with_gain(view) for name, view in family.items()}


def seconds_saved(parent_seconds: float, gap: Gap) -> dict[str, float]:
    """Return the seconds saved of a parent's time, by the gap of parent and child."""
    ratios = {"seconds": gap.ratio, "low": gap.low, "high": gap.high}
    saved = {name: parent_seconds * (1 - 1 / ratio) for name, ratio in ratios.items()}
    return saved | {"ratio": gap.ratio}


def gap_of_runs(
    own: Sequence[float | None], parent: Sequence[float | None], score: Score = TIME
) -> Gap | None:
    """Compare by Welch's interval. None if a run missed the target: the others would be biased."""
    if None in own or None in parent:
        return None
    return welch(
        *(score.sample([each for each in runs if each is not None]) for runs in (parent, own))
    )


def _gaps_of_pairs(session: Session, parents: Mapping[str, str]) -> dict[str, Gap]:
    """Take each child's gap to its parent from the comparison with the most pairs."""
    statement = (
        select(Verification)
        .where(
            Verification.submission_id.in_(parents),
            Verification.kind.in_((ABLATION.name, HEAD_TO_HEAD.name)),
            Verification.state == "done",
            Verification.outcome != "inconclusive",
        )
        .order_by(Verification.created_at)
        .options(undefer(Verification.report))
    )
    found: dict[str, Gap] = {}
    for each in session.scalars(statement).unique():
        child = str(each.submission_id)
        gap = _gap_of(session, each, parents[child])
        if gap is not None and (child not in found or gap.pairs >= found[child].pairs):
            found[child] = gap
    return found


def _gap_of(session: Session, verification: Verification, parent: str) -> Gap | None:
    report = report_of(verification)
    if report is None:
        return None
    if verification.kind == HEAD_TO_HEAD.name:
        head_to_head = judged_head_to_head(session, verification)
        if head_to_head.gap is None or verification.against_id != parent:
            return None
        return head_to_head.gap.turned()
    benchmark = definition(session, verification.benchmark_sha256)
    effects = factor_effects(benchmark, trainings_of(verification), report)
    # Without its only factor a code submission is its parent.
    if len(effects) != 1 or effects[0].time is None:
        return None
    return effects[0].time if effects[0].time.pairs == effects[0].started else None
