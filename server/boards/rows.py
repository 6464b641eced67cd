"""The submissions of a board: how each stands in the ranking, and all that an entry shows."""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from finishline.api.boards import BoardEntry
from finishline.api.submissions import RcpView, SystemView
from finishline.rules.benchmarks.accelerators import Accelerator
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.prices import training_cost_usd
from finishline.rules.scoring.tta import claimed_interval, display_seconds
from finishline.rules.statistics.aggregate import (
    Spread,
    coefficient_of_variation_percent,
    dropped_at_each_end,
    mean,
    resolution_of,
)
from finishline.rules.statistics.gaps import log_times
from finishline.rules.submissions.claim import Kind
from server.base.models import (
    DISPLAY_NAME,
    SUBMITTER,
    Pool,
    PublishedResult,
    RunRow,
    Submission,
    TrainingPackage,
    User,
    Verification,
)
from server.base.standing import KIND_THAT_CHECKS, OPEN, PUBLISH
from server.base.viewer import seeing_as_anybody
from server.benchmarks.prices import BookCosts, SystemPrice
from server.boards.ranking import Standing
from server.boards.run_times import measured_runs
from server.verifications.pool_runs import Spreads
from web.names import accelerator_of_system

STANDING_COLUMNS = (
    *(Submission.id, Submission.division, Submission.status, Submission.eligible),
    *(Submission.submitted_at, Submission.withdrawn_at, PublishedResult.published_on),
    *(Submission.tta_seconds, Submission.latency_ms, Submission.measured_latency_ms),
    *(Submission.cost_usd_per_10000, Submission.evidence, Submission.check_word),
    *(Submission.pool_id, Submission.duplicate_of, PublishedResult.source),
    *(Pool.measured_seconds, Pool.hardware_class),
    func.coalesce(-User.organisation_id, Submission.user_id).label("whose"),
)
# Fields of a board entry that are columns of the submission.
OWN_FIELDS = tuple(name for name in BoardEntry.model_fields if name in Submission.__table__.c)
COLUMNS = tuple(
    dict.fromkeys(
        (
            *STANDING_COLUMNS,
            *(getattr(Submission, name) for name in OWN_FIELDS),
            *(Submission.result, SUBMITTER, DISPLAY_NAME),
            *(Pool.low_seconds, Pool.high_seconds, Pool.is_busy),
            TrainingPackage.compressed_bytes.label("package_bytes"),
        )
    )
)
RESULT_FIELDS = (
    "tta_display",
    "tta_low_seconds",
    "tta_high_seconds",
    "cv_percent",
    "epochs_to_target",
    "evaluation_interval_seconds",
)
# A system that was stored before a field was known has this in it.
SYSTEM_FIELDS = {
    name: None if field.is_required() else field.default
    for name, field in SystemView.model_fields.items()
}
SOURCE_NOT_CHECKED = "published, source not checked"
JOULES_PER_KWH = 3.6e6
# A stored result explains every step: many decoded ones at once keep the garbage collector busier
# than the decoding takes.
ROWS_AT_ONCE = 100
# Kinds of verifications that the rows of a board rest on: it has claims and packages.
CHECKING_KINDS: dict[Kind, tuple[str, ...]] = {
    "train": (KIND_THAT_CHECKS["train"], KIND_THAT_CHECKS["package"]),
    "inference": (KIND_THAT_CHECKS["inference"],),
}
# More ids than these are read with the whole board.
MOST_IDS = 1000


@dataclass(frozen=True, slots=True)
class BoardRow:
    """A submission as a board shows it.

    `shown` has the fields of a board entry that do not depend on the ranking, `changed` those of
    them that a lens or another price gives another value. `lens_reason` says why a lens leaves the
    submission without a time, None where its runs did not get there. `runs` make the time, of which
    so many are `dropped` at each end, `spread` is that of the log of one's time, and
    `convergence_values` counts the distinct epochs (or samples) to the target of a row's own logs.
    The time is `factor` times that of the runs.
    """

    standing: Standing
    shown: Mapping[str, Any]
    search_text: str
    price_usd_per_hour: float | None
    factor: float
    runs: int
    dropped: int
    accelerator: Accelerator
    spread: Spread | None
    convergence_values: int
    changed: Mapping[str, Any] = field(default_factory=dict)
    lens_reason: str | None = None

    @property
    def is_measured(self) -> bool:
        """Whether it shows our time and not one of its own logs."""
        return self.shown["evidence"] == "measured" and self.shown["measured_seconds"] is not None


@dataclass(frozen=True)
class BoardRows:
    """The submissions of one kind of a benchmark, at one version of its board."""

    benchmark: Benchmark
    kind: Kind
    standings: Mapping[str, Standing]
    details: dict[str, BoardRow]

    @property
    def weight(self) -> int:
        """Weight in a cache, in rows."""
        return len(self.details) + len(self.standings) // 8

    def load(self, session: Session, ids: Collection[str]) -> Mapping[str, BoardRow]:
        """The details of these submissions at least, as anybody sees them."""
        missing = [name for name in ids if name not in self.details]
        if missing:
            among = missing if len(missing) <= MOST_IDS else None
            with seeing_as_anybody(session):
                found = read_details(session, self.benchmark, self.kind, among=among)
            self.details.update((n, row) for n, row in found.items() if n in self.standings)
        return self.details

    def load_all(self, session: Session) -> Mapping[str, BoardRow]:
        """The details of every submission."""
        return self.load(session, self.standings)

    def after(self, session: Session, changed: Collection[str]) -> "BoardRows":
        """The same at a later version, which changed, added or removed these submissions."""
        again = read_standings(session, self.benchmark, self.kind, among=changed)
        standings, details = dict(self.standings), dict(self.details)
        for submission_id in changed:
            standings.pop(submission_id, None)
            details.pop(submission_id, None)
        return BoardRows(self.benchmark, self.kind, standings | again, details)


@dataclass
class _Runs:
    """Runs that reached the target: their seconds, samples, and epochs (or samples) to it."""

    seconds: list[float] = field(default_factory=list)
    samples: list[float] = field(default_factory=list)
    convergence: set[float] = field(default_factory=set)

    def samples_per_second(self) -> float | None:
        """Over all runs together; None unless every run tells its samples."""
        if not self.seconds or len(self.samples) < len(self.seconds):
            return None
        total = sum(self.seconds)
        return sum(self.samples) / total if total > 0 else None


def which_submissions(
    benchmark_id: str, kind: Kind, *, among: Collection[str] | None = None
) -> list[ColumnElement[bool]]:
    """The conditions that name the submissions of a board, or those of them among some ids."""
    if among is None:
        return [Submission.benchmark_id == benchmark_id, Submission.kind == kind]
    # An expression has no index: SQLite would rather look through the whole board for the ids.
    is_of_board = Submission.benchmark_id.concat("") == benchmark_id
    return [Submission.id.in_(among), is_of_board, Submission.kind == kind]


def read_rows(session: Session, benchmark: Benchmark, kind: Kind) -> BoardRows:
    """The submissions of a kind, as the session sees them."""
    return BoardRows(benchmark, kind, read_standings(session, benchmark, kind), {})


def read_standings(
    session: Session, benchmark: Benchmark, kind: Kind, *, among: Collection[str] | None = None
) -> dict[str, Standing]:
    """Standings of the submissions of a kind, all or some; only the details have costs.

    An index has all that is read of a submission: its result is long, and a board has thousands.
    """
    which = which_submissions(benchmark.benchmark_id, kind, among=among)
    statement = select(*STANDING_COLUMNS).outerjoin_from(Submission, PublishedResult)
    with_users = statement.join(User, User.id == Submission.user_id)
    joined = with_users.outerjoin(Pool, Submission.pool_id == Pool.id).where(*which)
    return {row.id: _standing(row, kind) for row in session.execute(joined)}


def standing_of_new(submission: Submission) -> Standing:
    """Standing that a submission which is not stored would have."""
    names = (str(column.key) for column in STANDING_COLUMNS)
    columns = {name: getattr(submission, name, None) for name in names}
    columns["source"] = submission.published and submission.published.source
    return _standing(SimpleNamespace(**columns), cast(Kind, submission.kind))


def _standing(
    row: Any,
    kind: Kind,
    *,
    cost_usd: float | None = None,
    price_unranked: str | None = None,
    energy_joules: float | None = None,
) -> Standing:
    evidence, day = row.evidence, row.published_on or row.submitted_at
    is_measured = evidence == "measured"
    is_unchecked = evidence == "published" and row.source is None
    is_ours = is_measured and row.measured_seconds is not None
    # An inference board ranks our median where it was measured, else the claimed one.
    ours_first = is_measured and kind == "inference"
    return Standing(
        submission_id=row.id,
        status=row.status,
        submitted_at=day.isoformat(),
        tta_seconds=row.measured_seconds if is_ours else row.tta_seconds,
        cost_usd=cost_usd,
        latency_ms=row.measured_latency_ms if ours_first else row.latency_ms,
        eligible=row.eligible,
        cost_usd_per_10000=row.cost_usd_per_10000,
        withdrawn=row.withdrawn_at is not None,
        evidence=evidence,
        check=row.check_word,
        held_back=SOURCE_NOT_CHECKED if is_unchecked else None,
        duplicate_of=row.duplicate_of,
        price_unranked=price_unranked,
        division=row.division,
        hardware_class=row.hardware_class if is_measured else None,
        submitter=row.whose if is_measured else None,
        energy_joules=energy_joules,
    )


@dataclass(frozen=True)
class _Reading:
    benchmark: Benchmark
    kind: Kind
    spreads: Spreads


def read_details(
    session: Session, benchmark: Benchmark, kind: Kind, *, among: Collection[str] | None = None
) -> dict[str, BoardRow]:
    """The submissions of a kind with their runs and the verifications they rest on."""
    which = which_submissions(benchmark.benchmark_id, kind, among=among)
    runs = _read_runs(session, which, benchmark)
    behind = _verifications_behind(session, which, kind)
    measured = measured_runs(session, *which, Submission.evidence == "measured")
    costs = BookCosts(session)
    reading = _Reading(benchmark, kind, Spreads(session, benchmark))
    of_pool = Submission.pool_id == Pool.id
    joined = select(*COLUMNS).join(Submission.user).outerjoin(Submission.published)
    statement = joined.outerjoin(Pool, of_pool).outerjoin(Submission.package).where(*which)
    return {
        row.id: _row(
            row,
            reading,
            runs[row.id],
            measured.get(row.id, []),
            behind.get(row.id),
            costs.price(row),
        )
        for row in session.execute(statement.execution_options(yield_per=ROWS_AT_ONCE))
    }


def _verifications_behind(
    session: Session, which: Sequence[ColumnElement[bool]], kind: Kind
) -> dict[str, str]:
    """The verification published last, or the one under way while a claim waits for its first."""
    statement = (
        select(
            Verification.submission_id,
            Verification.id,
            Verification.decided_at,
            Submission.status,
        )
        .join(Submission, Submission.id == Verification.submission_id)
        .where(
            *which,
            Verification.kind.in_(CHECKING_KINDS[kind]),
            (Verification.decision == PUBLISH) | Verification.state.in_(OPEN),
        )
        .order_by(Verification.decided_at, Verification.created_at)
    )
    found: dict[str, str] = {}
    for submission_id, verification_id, decided_at, status in session.execute(statement):
        if (decided_at is None) == (status == "verifying") and submission_id is not None:
            found[submission_id] = verification_id
    return found


def _read_runs(
    session: Session, which: Sequence[ColumnElement[bool]], benchmark: Benchmark
) -> defaultdict[str, _Runs]:
    counts_samples = benchmark.convergence_unit == "samples_count"
    statement = (
        select(RunRow.submission_id, RunRow.tta_seconds, RunRow.convergence)
        .join(Submission, Submission.id == RunRow.submission_id)
        .where(*which)
        .order_by(RunRow.submission_id, RunRow.index)
    )
    found: defaultdict[str, _Runs] = defaultdict(_Runs)
    for submission_id, seconds, convergence in session.execute(statement):
        if seconds is None:
            continue
        runs = found[submission_id]
        runs.seconds.append(seconds)
        if convergence is not None:
            runs.convergence.add(convergence)
        if counts_samples and convergence is not None:
            runs.samples.append(convergence)
    return found


def _row(
    row: Any,
    reading: _Reading,
    runs: _Runs,
    sealed: Sequence[Any],
    verification_id: str | None,
    price: SystemPrice,
) -> BoardRow:
    is_measured = row.evidence == "measured" and row.measured_seconds is not None
    seconds = row.measured_seconds if is_measured else row.tta_seconds
    cost = training_cost_usd(seconds, price.usd_per_hour)
    shown = _shown(row, reading.kind, runs)
    shown |= _measured(row, sealed) if is_measured else _claimed_interval(row, reading)
    shown |= {
        "cost_usd": cost,
        "cost_price": None if price.entry is None else price.entry.number,
        "verification_id": verification_id,
        "energy_kwh": None if row.energy_joules is None else row.energy_joules / JOULES_PER_KWH,
    }
    system = shown["system"]
    texts = (
        *(shown["model"], shown["submitter"], shown["display_name"] or "", shown["framework"]),
        *(system["name"], system["hardware_class"], system["accelerator"] or ""),
    )
    standing = _standing(
        row,
        reading.kind,
        cost_usd=cost,
        price_unranked=why_price_unranked(price, row.evidence),
        energy_joules=row.energy_joules,
    )
    factor = 1.0 if is_measured else convergence_factor(row.tta_seconds, row.result)
    rule, started = reading.benchmark.runs, shown["runs_started"]
    runs_of_time = started if is_measured else min(started, rule.count)
    own_times = [] if is_measured else [seconds * factor for seconds in runs.seconds]
    return BoardRow(
        standing=standing,
        shown=shown,
        search_text="\n".join(texts).casefold(),
        price_usd_per_hour=price.usd_per_hour,
        factor=factor,
        runs=runs_of_time,
        dropped=dropped_at_each_end(runs_of_time) if is_measured else rule.dropped,
        accelerator=accelerator_of_system(system),
        spread=_spread(row, shown, own_times, reading),
        convergence_values=0 if is_measured else len(runs.convergence),
    )


def convergence_factor(tta_seconds: float | None, result: Mapping[str, Any]) -> float:
    """Factor of a submission's time for its convergence, 1 if it was not normalised."""
    raw = result.get("raw_tta_seconds")
    return tta_seconds / raw if tta_seconds and raw else 1.0


def why_price_unranked(price: SystemPrice, evidence: str) -> str | None:
    """Why no row ranks by a price; an archive's was published with it."""
    return None if evidence == "published" else price.why_unranked


def _spread(
    row: Any, shown: Mapping[str, Any], times: Sequence[float], reading: _Reading
) -> Spread | None:
    """The spread of its class; where nothing tells it, that of the own runs of a published row."""
    spread = reading.spreads.of(row.system.get("hardware_class", ""))
    own = log_times(times) if spread is None and row.evidence == "published" else None
    if own is not None and own.variance is not None:
        spread = Spread(math.sqrt(own.variance), own.count - 1)
    if spread is None or not shown["tta_seconds"]:
        return None
    step = shown["evaluation_interval_seconds"]
    return spread.at_least(resolution_of(step_seconds=step, seconds=shown["tta_seconds"]))


def _measured(row: Any, sealed: Sequence[Any]) -> dict[str, Any]:
    """The figures of a measured row: of the measured runs of its pool, not of its claim."""
    times = [run.seconds for run in sealed if run.seconds is not None]
    # A package tells no epochs: its pool holds how often it was evaluated.
    counts_epochs = row.trained_with != "package"
    epochs = [run.epochs for run in sealed if run.epochs is not None and counts_epochs]
    steps = [run.seconds / run.epochs for run in sealed if run.seconds and run.epochs]
    return {
        "tta_seconds": row.measured_seconds,
        "tta_display": display_seconds(row.measured_seconds),
        "tta_low_seconds": row.low_seconds,
        "tta_high_seconds": row.high_seconds,
        "measured_seconds": row.measured_seconds,
        "measured_low_seconds": row.low_seconds,
        "measured_high_seconds": row.high_seconds,
        "measured_runs": len(sealed),
        "busy": row.is_busy,
        "runs_reached": len(times),
        "runs_started": len(sealed),
        "cv_percent": coefficient_of_variation_percent(times),
        "epochs_to_target": mean(epochs) if epochs else None,
        "evaluation_interval_seconds": mean(steps) if steps else None,
        "raw_tta_seconds": row.measured_seconds,
    }


def _claimed_interval(row: Any, reading: _Reading) -> dict[str, Any]:
    """The interval of a claimed or published time, by the spread of its class."""
    rule = reading.benchmark.runs
    interval = claimed_interval(
        row.tta_seconds,
        runs=min(row.result.get("started", 0), rule.count),
        dropped=rule.dropped,
        spread=reading.spreads.of(row.system.get("hardware_class", "")),
        step_seconds=row.result.get("evaluation_interval_seconds"),
    )
    return {
        "tta_low_seconds": None if interval is None else interval.low,
        "tta_high_seconds": None if interval is None else interval.high,
    }


def _shown(row: Any, kind: Kind, runs: _Runs) -> dict[str, Any]:
    result, training = row.result, kind == "train"
    rcp = result.get("rcp")
    return {
        **{name: getattr(row, name) for name in OWN_FIELDS},
        **{name: result.get(name) for name in RESULT_FIELDS},
        "submission_id": row.id,
        "submitter": row.submitter,
        "display_name": row.display_name,
        "system": {name: row.system.get(name, absent) for name, absent in SYSTEM_FIELDS.items()},
        "runs_reached": result["reached"] if training else 0,
        "runs_started": result["started"] if training else 0,
        "samples_per_second": runs.samples_per_second(),
        "quality": result["best_quality" if training else "quality"],
        "submitted_at": row.submitted_at.isoformat().replace("+00:00", "Z"),
        "submitted_on": None if row.published_on is None else row.published_on.isoformat(),
        "raw_tta_seconds": result.get("raw_tta_seconds", row.tta_seconds),
        "rcp": None if rcp is None else RcpView(**rcp).model_dump(),
        "source": row.source,
        "withdrawn": row.withdrawn_at is not None,
        "waivers": row.waivers or [],
        "check": row.check_word,
        "claimed_seconds": row.tta_seconds,
        "package_bytes": row.package_bytes,
    }
