"""The submissions of a board, read once per version: figures to rank by, and what is shown."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.prices import SystemPrice, training_cost_usd
from finishline.rules.ranking.ranking import Standing
from finishline.rules.scoring.aggregate import coefficient_of_variation_percent, mean
from finishline.rules.scoring.measured_time import Spread, claimed_interval, resolution_of
from finishline.rules.scoring.tta import display_seconds
from finishline.rules.statistics.comparison import log_times
from finishline.rules.submissions.claim import Kind
from finishline.rules.verification.sealed_runs import why_held_back
from server.boards.published import verifications_behind
from server.models import SUBMITTER, Pool, PoolRun, PublishedResult, RunRow, Submission
from server.prices.costs import BookCosts
from server.submissions.schemas import RcpView, SystemView
from server.submissions.service import convergence_factor
from server.verifications.pool_runs import Spreads
from server.viewer import seeing_figures

COLUMNS = (
    Submission.id,
    Submission.model,
    Submission.framework,
    Submission.division,
    Submission.status,
    Submission.system,
    Submission.result,
    Submission.eligible,
    Submission.tta_seconds,
    Submission.latency_ms,
    Submission.cost_usd_per_10000,
    Submission.measured_latency_ms,
    Submission.energy_joules,
    Submission.submitted_at,
    PublishedResult.published_on,
    Submission.precision,
    Submission.precision_measured,
    Submission.withdrawn_at,
    Submission.benchmark_sha256,
    Submission.evidence,
    Submission.check_word,
    Submission.pool_id,
    Submission.trained_with,
    Submission.tuning,
    PublishedResult.source,
    Submission.ticket_id,
    Submission.witnessed_by,
    Pool.measured_seconds,
    Pool.low_seconds,
    Pool.high_seconds,
    Pool.state.label("pool_state"),
    Pool.owners,
    Pool.by_organisers,
    SUBMITTER,
)
SOURCE_NOT_CHECKED = "published, source not checked"
# A stored result explains every step: many decoded ones at once keep the garbage collector busier
# than the decoding takes.
ROWS_AT_ONCE = 100
# What a system stored before a field was known has in it.
SYSTEM_FIELDS = {
    name: None if field.is_required() else field.default
    for name, field in SystemView.model_fields.items()
}
RESULT_FIELDS = (
    "tta_display",
    "tta_low_seconds",
    "tta_high_seconds",
    "cv_percent",
    "epochs_to_target",
    "evaluation_interval_seconds",
)


@dataclass(frozen=True, slots=True)
class BoardRow:
    """A submission as a board needs it.

    `run_seconds` is what the runs that reached the target took, on the scale of `tta_seconds`,
    which is `factor` times what was measured. `shown` has the fields of a board entry that do not
    depend on the ranking, `changed` those of them that a lens gives another value. `lens_reason`
    says why a lens leaves the submission without a time, None where its runs did not get there.

    `runs` started, `spread` is that of the log of one's time and `convergence_values` counts their
    distinct epochs (or samples) to the target. `standing` is what ranking needs to know: most rows
    outlive many versions of their board, so it is derived with the row.
    """

    submission_id: str
    status: Any
    eligible: bool
    division: str
    date: str
    tta_seconds: float | None
    cost_usd: float | None
    latency_ms: float | None
    cost_usd_per_10000: float | None
    price_usd_per_hour: float | None
    price_is_own: bool
    run_seconds: Sequence[float]
    factor: float
    search_text: str
    shown: Mapping[str, Any]
    changed: Mapping[str, Any] = field(default_factory=dict)
    lens_reason: str | None = None
    withdrawn: bool = False
    held_back: str | None = None
    has_ticket: bool = False
    runs: int = 0
    spread: Spread | None = None
    convergence_values: int = 0
    standing: Standing = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "standing", self._standing())

    def _standing(self) -> Standing:
        return Standing(
            submission_id=self.submission_id,
            status=self.status,
            submitted_at=self.date,
            tta_seconds=self.tta_seconds,
            cost_usd=self.cost_usd,
            latency_ms=self.latency_ms,
            eligible=self.eligible,
            cost_usd_per_10000=self.cost_usd_per_10000,
            withdrawn=self.withdrawn,
            evidence=self.shown["evidence"],
            check=self.shown["check"],
            held_back=self.held_back,
            price_is_own=self.price_is_own,
            has_ticket=self.has_ticket,
        )


@dataclass(frozen=True)
class BoardRows:
    """The submissions of one kind of a benchmark, by id."""

    rows: Mapping[str, BoardRow]


@dataclass
class _Runs:
    """The runs of a submission that reached the target: seconds, samples, what convergence took."""

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
    benchmark_id: str, kind: Kind, *, among: AbstractSet[str] | None = None
) -> list[ColumnElement[bool]]:
    """The conditions that name the submissions of a board, or those of them among some ids."""
    if among is None:
        return [Submission.benchmark_id == benchmark_id, Submission.kind == kind]
    # An expression has no index: SQLite would rather look through the whole board for the ids.
    is_of_board = Submission.benchmark_id.concat("") == benchmark_id
    return [Submission.id.in_(among), is_of_board, Submission.kind == kind]


def read_rows(
    session: Session,
    benchmark: Benchmark,
    kind: Kind,
    *,
    since: tuple[BoardRows, AbstractSet[str]] | None = None,
) -> BoardRows:
    """The submissions of a kind with their runs and the verifications they rest on.

    `since` has what was read earlier and the ids of all submissions that have changed, come or
    gone: only those are read again.
    """
    if since is not None:
        earlier, changed = since
        which = which_submissions(benchmark.benchmark_id, kind, among=changed)
        again = _read(session, benchmark, kind, which)
        kept = dict(earlier.rows)
        for submission_id in changed:
            kept.pop(submission_id, None)
        return BoardRows(kept | again)
    which = which_submissions(benchmark.benchmark_id, kind)
    return BoardRows(_read(session, benchmark, kind, which))


def _read(
    session: Session, benchmark: Benchmark, kind: Kind, which: Sequence[ColumnElement[bool]]
) -> dict[str, BoardRow]:
    runs = _read_runs(session, which, benchmark)
    behind = verifications_behind(session, which, kind)
    of_pool = Submission.pool_id == Pool.id
    joined = select(*COLUMNS).join(Submission.user).outerjoin(Submission.published)
    statement = joined.outerjoin(Pool, of_pool).where(*which)
    found = session.execute(statement.execution_options(yield_per=ROWS_AT_ONCE))
    costs = BookCosts(session)
    measured = _measured_runs(session, which)
    reading = _Reading(benchmark, kind, Spreads(session, benchmark))
    return {
        row.id: _row(
            row,
            reading,
            runs[row.id],
            measured.get(row.id, []) if row.evidence == "measured" else [],
            behind.get(row.id),
            costs.price(row),
        )
        for row in found
    }


@dataclass(frozen=True)
class _Reading:
    """What all rows of a board are read with."""

    benchmark: Benchmark
    kind: Kind
    spreads: Spreads


def _measured_runs(
    session: Session, which: Sequence[ColumnElement[bool]]
) -> defaultdict[str, list[Any]]:
    """The counted sealed runs of the pool of each measured submission."""
    statement = (
        select(Submission.id, PoolRun.seconds, PoolRun.epochs)
        .join(PoolRun, PoolRun.pool_id == Submission.pool_id)
        .where(*which, Submission.evidence == "measured", PoolRun.counted.is_(True))
        .order_by(Submission.id, PoolRun.verification_id, PoolRun.index)
    )
    found: defaultdict[str, list[Any]] = defaultdict(list)
    for row in session.execute(statement):
        found[row.id].append(row)
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
    with seeing_figures(session):
        rows = session.execute(statement)
    for submission_id, seconds, convergence in rows:
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
    factor = 1.0 if is_measured else convergence_factor(row.tta_seconds, row.result)
    cost = training_cost_usd(seconds, price.usd_per_hour)
    shown = _shown(row, reading.kind, runs)
    shown |= _measured(row, sealed) if is_measured else _claimed_interval(row, reading)
    shown |= {
        "cost_usd": cost,
        "cost_price": None if price.entry is None else price.entry.number,
        "verification_id": verification_id,
    }
    system = shown["system"]
    texts = (
        shown["model"],
        shown["submitter"],
        shown["framework"],
        system["name"],
        system["hardware_class"],
        system["accelerator"] or "",
    )
    times = [run.seconds for run in sealed if run.seconds is not None]
    epochs = {run.epochs for run in sealed if run.epochs is not None}
    times = times if is_measured else [seconds * factor for seconds in runs.seconds]
    return BoardRow(
        submission_id=row.id,
        status=row.status,
        eligible=row.eligible,
        division=row.division,
        date=shown["submitted_on"] or row.submitted_at.isoformat(),
        tta_seconds=seconds,
        cost_usd=cost,
        price_usd_per_hour=price.usd_per_hour,
        price_is_own=is_own_price(price, row.evidence),
        latency_ms=_latency(row, reading.kind),
        cost_usd_per_10000=row.cost_usd_per_10000,
        run_seconds=times,
        runs=shown["runs_started"],
        spread=_spread(row, shown, times, reading),
        convergence_values=len(epochs if is_measured else runs.convergence),
        factor=factor,
        search_text="\n".join(texts).casefold(),
        shown=shown,
        withdrawn=row.withdrawn_at is not None,
        held_back=_held_back(row, reading.benchmark),
        has_ticket=row.ticket_id is not None,
    )


def is_own_price(price: SystemPrice, evidence: str) -> bool:
    """Whether a submitter's word alone stands for a price; an archive's was published with it."""
    return price.entry is None and evidence != "published"


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


def _latency(row: Any, kind: Kind) -> float | None:
    """What an inference board ranks: our median where it was measured, else the claimed one."""
    is_ours = kind == "inference" and row.evidence == "measured"
    latency: float | None = row.measured_latency_ms if is_ours else row.latency_ms
    return latency


def _held_back(row: Any, benchmark: Benchmark) -> str | None:
    if row.evidence == "published" and row.source is None:
        return SOURCE_NOT_CHECKED
    if row.evidence == "measured":
        return why_held_back(row.pool_state, runs=benchmark.ranking.confirm_runs)
    return None


def _measured(row: Any, sealed: Sequence[Any]) -> dict[str, Any]:
    """The figures of a measured row: of the sealed runs of its pool, not of its claim."""
    times = [run.seconds for run in sealed if run.seconds is not None]
    epochs = [run.epochs for run in sealed if run.epochs is not None]
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
        "owners": row.owners,
        "by_organisers": row.by_organisers,
        "runs_reached": len(times),
        "runs_started": len(sealed),
        "cv_percent": coefficient_of_variation_percent(times),
        "epochs_to_target": mean(epochs) if epochs else None,
        "evaluation_interval_seconds": mean(steps) if steps else None,
        "raw_tta_seconds": row.measured_seconds,
    }


def _claimed_interval(row: Any, reading: _Reading) -> dict[str, Any]:
    """The interval of a claimed or published time, by the spread of its class."""
    interval = claimed_interval(
        row.tta_seconds,
        runs=row.result.get("started", 0),
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
        "submission_id": row.id,
        "submitter": row.submitter,
        "model": row.model,
        "framework": row.framework,
        "division": row.division,
        "status": row.status,
        "system": {name: row.system.get(name, absent) for name, absent in SYSTEM_FIELDS.items()},
        "tta_seconds": row.tta_seconds,
        "runs_reached": result["reached"] if training else 0,
        "runs_started": result["started"] if training else 0,
        "latency_ms": row.latency_ms,
        "cost_usd_per_10000": row.cost_usd_per_10000,
        "measured_latency_ms": row.measured_latency_ms,
        "energy_joules": row.energy_joules,
        "samples_per_second": runs.samples_per_second(),
        "quality": result["best_quality" if training else "quality"],
        "submitted_at": row.submitted_at.isoformat().replace("+00:00", "Z"),
        "submitted_on": None if row.published_on is None else row.published_on.isoformat(),
        "raw_tta_seconds": result.get("raw_tta_seconds", row.tta_seconds),
        "rcp": None if rcp is None else RcpView(**rcp).model_dump(),
        "precision": row.precision,
        "precision_measured": row.precision_measured,
        "withdrawn": row.withdrawn_at is not None,
        "benchmark_sha256": row.benchmark_sha256,
        "evidence": row.evidence,
        "check": row.check_word,
        "witnessed_by": row.witnessed_by,
        "claimed_seconds": row.tta_seconds,
        "pool_id": row.pool_id,
        "trained_with": row.trained_with,
        "tuning": row.tuning,
        "source": row.source,
        **{name: result.get(name) for name in RESULT_FIELDS},
    }
