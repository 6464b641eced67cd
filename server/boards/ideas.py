"""Ideas: the packages of a benchmark, each with the seconds that it gained on its parent."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from pydantic import Field
from sqlalchemy import select
from sqlalchemy.orm import Session, undefer

from finishline.api.comparisons import Named
from finishline.api.schema import Schema
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.statistics.gaps import Gap
from finishline.rules.verification.entry import factor_effects
from finishline.rules.verification.messages import PACKAGE_PREFIX
from finishline.rules.verification.purposes import ABLATION, DUEL
from server.base.models import Pool, Submission, TrainingPackage, Verification
from server.base.models.visibility import has_public_source
from server.base.standing import report_of
from server.benchmarks.queries import definition
from server.boards.lineage import Gain, gain_of_pairs, gain_of_runs
from server.boards.records import list_records
from server.boards.run_times import measured_runs
from server.verifications.duels import judged_duel
from server.verifications.jobs import trainings_of

MOST_PACKAGES = 500
Times = Mapping[str, Sequence[float | None]]


class GainView(Schema):
    """Seconds that a code submission gained on its parent, with a 95 % interval.

    `ratio` is the parent's time over the code submission's. `pairs` counts runs on equal seeds and
    data. None where the runs of two measurements were compared, `runs` and `parent_runs`.
    """

    seconds: float
    low: float
    high: float
    ratio: float
    pairs: int | None = None
    runs: int
    parent_runs: int


class IdeaView(Named):
    """A code submission whose source is public, with its measured time.

    `parent` is the SHA-256 of the code submission that it is based on, if the source of that is
    public too. `gain` is on that parent, measured on the same hardware class; None where a run
    missed the target or a time is absent. `record_date` is when it took the record of its division.
    """

    sha256: str
    title: str
    factors: dict[str, str] = Field(default_factory=dict)
    parent: str | None = None
    seconds: float | None = None
    low_seconds: float | None = None
    high_seconds: float | None = None
    runs: int = 0
    gain: GainView | None = None
    record_date: str | None = None


class IdeaClassView(Schema):
    """The code submissions that were measured on one hardware class, oldest first."""

    hardware_class: str
    packages: list[IdeaView]


class IdeaList(Schema):
    """The latest code submissions of a benchmark, by hardware class. Times compare within one."""

    benchmark: str
    classes: list[IdeaClassView]


@dataclass(frozen=True)
class _Node:
    """A package on its hardware class."""

    hardware_class: str
    view: IdeaView


def list_ideas(session: Session, benchmark: Benchmark) -> IdeaList:
    """The packages of a benchmark whose source is public; the latest of very many."""
    nodes = _with_gains(session, _nodes(session, benchmark))
    by_class: defaultdict[str, list[IdeaView]] = defaultdict(list)
    for node in nodes:
        by_class[node.hardware_class].append(node.view)
    classes = [
        IdeaClassView(hardware_class=name, packages=found) for name, found in by_class.items()
    ]
    return IdeaList(benchmark=benchmark.benchmark_id, classes=classes)


def find_idea(session: Session, benchmark: Benchmark, submission: Submission) -> IdeaView | None:
    """One package with its gain; None if its source is not public or it has no parent."""
    package = submission.package
    based_on = None if package is None else package.manifest["based_on"]
    if package is None or based_on is None:
        return None
    both = (package.package_sha256, based_on.removeprefix(PACKAGE_PREFIX))
    nodes = _with_gains(session, _nodes(session, benchmark, only=both))
    found = (each.view for each in nodes if each.view.submission_id == submission.id)
    return next(found, None)


def _nodes(
    session: Session, benchmark: Benchmark, *, only: Collection[str] = ()
) -> Sequence[_Node]:
    statement = (
        select(Submission, TrainingPackage, Pool)
        .join(TrainingPackage, TrainingPackage.submission_id == Submission.id)
        .outerjoin(Pool, Pool.id == Submission.pool_id)
        .where(
            Submission.benchmark_id == benchmark.benchmark_id,
            Submission.withdrawn_at.is_(None),
            has_public_source(),
        )
        .order_by(Submission.submitted_at.desc(), Submission.id.desc())
        .limit(MOST_PACKAGES)
    )
    if only:
        statement = statement.where(TrainingPackage.package_sha256.in_(only))
    rows = session.execute(statement).unique().all()
    parents = _public(session, [_parent(package) for _, package, _ in rows])
    records = {} if only else _records(session, benchmark)
    return [
        _node(*row, parents=parents, record_date=records.get(row[0].id)) for row in reversed(rows)
    ]


def _node(
    submission: Submission,
    package: TrainingPackage,
    pool: Pool | None,
    *,
    parents: Collection[str],
    record_date: str | None,
) -> _Node:
    parent = _parent(package)
    view = IdeaView(
        submission_id=submission.id,
        submitter=submission.submitter,
        display_name=submission.display_name,
        sha256=package.package_sha256,
        title=package.manifest["title"],
        factors=package.manifest["factors"] or {},
        parent=parent if parent in parents else None,
        record_date=record_date,
    )
    if submission.evidence != "measured" or pool is None:
        return _Node(package.hardware_class, view)
    times = {
        "seconds": pool.measured_seconds,
        "low_seconds": pool.low_seconds,
        "high_seconds": pool.high_seconds,
        "runs": pool.runs,
    }
    return _Node(package.hardware_class, view.model_copy(update=times))


def _parent(package: TrainingPackage) -> str | None:
    based_on = package.manifest["based_on"]
    return None if based_on is None else str(based_on.removeprefix(PACKAGE_PREFIX))


def _public(session: Session, hashes: Iterable[str | None]) -> set[str]:
    """Those of some packages whose source everybody may read, also of withdrawn entries."""
    statement = (
        select(TrainingPackage.package_sha256)
        .join(Submission, Submission.id == TrainingPackage.submission_id)
        .where(
            TrainingPackage.package_sha256.in_({each for each in hashes if each is not None}),
            Submission.embargoed.is_(False),
            has_public_source(),
        )
    )
    return set(session.scalars(statement))


def _records(session: Session, benchmark: Benchmark) -> dict[str, str]:
    return {
        record.submission_id: record.date
        for division in list_records(session, benchmark).divisions
        for record in reversed(division.records)
        if record.evidence == "measured"
    }


def _with_gains(session: Session, nodes: Sequence[_Node]) -> list[_Node]:
    known = {(node.hardware_class, node.view.sha256): node for node in nodes}
    parents = {
        node.view.submission_id: parent
        for node in nodes
        if (parent := known.get((node.hardware_class, node.view.parent or ""))) is not None
    }
    gaps = _pairs(session, {child: each.view.submission_id for child, each in parents.items()})
    measured = measured_runs(
        session, Submission.id.in_([node.view.submission_id for node in nodes])
    )
    times = {name: [run.seconds for run in runs] for name, runs in measured.items()}
    found = []
    for node in nodes:
        name = node.view.submission_id
        parent = parents.get(name)
        gain = None if parent is None else _gain(node, parent, times, gaps.get(name))
        found.append(replace(node, view=node.view.model_copy(update={"gain": gain})))
    return found


def _pairs(session: Session, parents: Mapping[str, str]) -> dict[str, Gap]:
    """Time of the parent over that of its child in pairs, by the child's submission.

    `parents` has the parent's submission of each. Of its duels with the parent, and of its runs
    with and without its one factor, those with most pairs; none where a run missed the target.
    """
    statement = (
        select(Verification)
        .where(
            Verification.submission_id.in_(parents),
            Verification.kind.in_((ABLATION.name, DUEL.name)),
            Verification.state == "done",
            Verification.outcome != "inconclusive",
        )
        .order_by(Verification.created_at)
        .options(undefer(Verification.report))
    )
    found: dict[str, Gap] = {}
    for each in session.scalars(statement).unique():
        child = str(each.submission_id)
        gap = _gap(session, each, parents[child])
        if gap is not None and (child not in found or gap.pairs >= found[child].pairs):
            found[child] = gap
    return found


def _gap(session: Session, verification: Verification, parent: str) -> Gap | None:
    report = report_of(verification)
    if report is None:
        return None
    benchmark = definition(session, verification.benchmark_sha256)
    if verification.kind == DUEL.name:
        duel = judged_duel(session, verification)
        if duel is None or duel.time is None or verification.against_id != parent:
            return None
        return duel.time.turned()
    effects = factor_effects(benchmark, trainings_of(verification), report)
    # Without the one factor of a package it is its parent; of several, none alone is.
    if len(effects) != 1 or effects[0].time is None:
        return None
    return effects[0].time if effects[0].time.pairs == effects[0].started else None


def _gain(node: _Node, parent: _Node, times: Times, gap: Gap | None) -> GainView | None:
    if node.view.seconds is None or parent.view.seconds is None:
        return None
    if gap is not None:
        found: Gain | None = gain_of_pairs(parent.view.seconds, gap)
    else:
        own, other = (times.get(each.view.submission_id, ()) for each in (node, parent))
        found = gain_of_runs(parent.view.seconds, own, other)
    if found is None:
        return None
    return GainView(**asdict(found), runs=node.view.runs, parent_runs=parent.view.runs)
