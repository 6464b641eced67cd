"""The submissions of a board, read once per version: figures to rank by, and what is shown."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from rules.benchmark import Benchmark
from rules.claim import Kind
from rules.comparison import LogTimes, log_times
from rules.cost import training_cost_usd
from rules.ranking import Standing
from rules.system_price import SystemPrice
from server.leaderboard.published import verifications_behind
from server.models import RunRow, Submission, User
from server.prices.costs import BookCosts
from server.submissions.result_views import RcpView
from server.submissions.run_times import convergence_factor
from server.submissions.schemas import SystemView

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
    Submission.submitted_on,
    Submission.organisation,
    Submission.precision,
    Submission.precision_measured,
    Submission.withdrawn_at,
    Submission.time_confirmed,
    Submission.benchmark_sha256,
    User.name.label("submitter"),
)
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

    `standing` is what ranking needs to know and `log_times` what tie groups do: most rows outlive
    many versions of their board, so both are derived with the row.
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
    run_seconds: Sequence[float]
    factor: float
    search_text: str
    shown: Mapping[str, Any]
    changed: Mapping[str, Any] = field(default_factory=dict)
    lens_reason: str | None = None
    withdrawn: bool = False
    handed_in_before: bool = False
    standing: Standing = field(init=False)
    log_times: LogTimes | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "standing", self._standing())
        object.__setattr__(self, "log_times", log_times(self.run_seconds))

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
            handed_in_before=self.handed_in_before,
        )


@dataclass(frozen=True)
class BoardRows:
    """The submissions of one kind of a benchmark, by id."""

    rows: Mapping[str, BoardRow]


@dataclass
class _Runs:
    """The runs of a submission that reached the target: their seconds, and their samples."""

    seconds: list[float] = field(default_factory=list)
    samples: list[float] = field(default_factory=list)

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
    statement = select(*COLUMNS).join(Submission.user).where(*which)
    found = session.execute(statement.execution_options(yield_per=ROWS_AT_ONCE))
    costs = BookCosts(session)
    return {
        row.id: _row(row, kind, runs[row.id], behind.get(row.id), costs.price(row)) for row in found
    }


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
        if counts_samples and convergence is not None:
            runs.samples.append(convergence)
    return found


def _row(
    row: Any, kind: Kind, runs: _Runs, verification_id: str | None, price: SystemPrice
) -> BoardRow:
    factor = convergence_factor(row.tta_seconds, row.result)
    cost = training_cost_usd(row.tta_seconds, price.usd_per_hour)
    shown = _shown(row, kind, runs) | {
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
    return BoardRow(
        submission_id=row.id,
        status=row.status,
        eligible=row.eligible,
        division=row.division,
        date=shown["submitted_on"] or row.submitted_at.isoformat(),
        tta_seconds=row.tta_seconds,
        cost_usd=cost,
        price_usd_per_hour=price.usd_per_hour,
        latency_ms=row.latency_ms,
        cost_usd_per_10000=row.cost_usd_per_10000,
        run_seconds=[seconds * factor for seconds in runs.seconds],
        factor=factor,
        search_text="\n".join(texts).casefold(),
        shown=shown,
        withdrawn=row.withdrawn_at is not None,
        # A training that breaks no rule is not eligible for this alone: see Submission.copies.
        handed_in_before=kind == "train" and not row.eligible and not row.result["violations"],
    )


def _shown(row: Any, kind: Kind, runs: _Runs) -> dict[str, Any]:
    result, training = row.result, kind == "train"
    rcp = result.get("rcp")
    return {
        "submission_id": row.id,
        "submitter": row.organisation or row.submitter,
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
        "submitted_on": None if row.submitted_on is None else row.submitted_on.isoformat(),
        "raw_tta_seconds": result.get("raw_tta_seconds", row.tta_seconds),
        "rcp": None if rcp is None else RcpView(**rcp).model_dump(),
        "precision": row.precision,
        "precision_measured": row.precision_measured,
        "withdrawn": row.withdrawn_at is not None,
        "time_confirmed": row.time_confirmed,
        "benchmark_sha256": row.benchmark_sha256,
        **{name: result.get(name) for name in RESULT_FIELDS},
    }
