"""Read the submissions of a board: the facts behind their places, and the fields of an entry."""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import SimpleNamespace
from typing import Any, cast

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session, undefer

from finishline.api.boards import COLUMN_FIELDS
from finishline.api.submissions import RcpView
from finishline.rules.benchmarks.accelerators import Accelerator
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.prices import training_cost_usd
from finishline.rules.scoring.tta import claimed_interval, display_seconds
from finishline.rules.scoring.violations import WAIVABLE
from finishline.rules.statistics.aggregate import (
    Spread,
    coefficient_of_variation_percent,
    dropped_at_each_end,
    mean,
    resolution_of,
)
from finishline.rules.statistics.gaps import log_times
from finishline.rules.submissions.claim import Kind
from finishline.rules.verification.messages import ReplayRun
from server.base.models import (
    DISPLAY_NAME,
    SUBMITTER,
    Pool,
    PoolRun,
    PublishedResult,
    RunRow,
    Submission,
    TrainingPackage,
    User,
    Verification,
)
from server.base.standing import KIND_THAT_CHECKS, OPEN, PUBLISH, report_of
from server.benchmarks.prices import BookCosts, SystemPrice
from server.boards.order import Row, RunsBehind
from server.verifications.pools import Spreads
from web.names import accelerator_of_system

# Fields of a board entry that are columns of the submission.
OWN_FIELDS = tuple(name for name in COLUMN_FIELDS if name in Submission.__table__.c)
COLUMNS = tuple(
    dict.fromkeys(
        (
            *(getattr(Submission, name) for name in OWN_FIELDS),
            *(Submission.id, Submission.kind, Submission.eligible, Submission.check_word),
            *(Submission.withdrawn_at, Submission.pool_id, Submission.result),
            *(Submission.user_id, SUBMITTER, DISPLAY_NAME),
            func.coalesce(-User.organisation_id, Submission.user_id).label("whose"),
            *(PublishedResult.published_on, PublishedResult.source),
            *(Pool.measured_seconds, Pool.low_seconds, Pool.high_seconds, Pool.is_busy),
            *(Pool.measured_quality, Pool.low_quality, Pool.high_quality),
            *(Pool.hardware_class, Pool.measured_at),
            TrainingPackage.compressed_bytes.label("package_bytes"),
        )
    )
)
RESULT_FIELDS = (
    *("tta_low_seconds", "tta_high_seconds", "cv_percent", "epochs_to_target"),
    *("evaluation_interval_seconds", "raw_tta_seconds"),
)


# Defaults of an entry's columns.
ENTRY_DEFAULTS = {
    **{name: None if f.is_required() else f.default for name, f in COLUMN_FIELDS.items()},
    **dict.fromkeys(("measured_low_seconds", "measured_high_seconds")),
}
SOURCE_NOT_CHECKED = "published, source not checked"
JOULES_PER_KWH = 3.6e6
# Stored results are large. Many decoded ones at once cost the garbage collector more time than
# decoding.
ROWS_AT_ONCE = 100
# Fields of a Row that are columns of the submission.
SAME_FACTS = (
    *("status", "eligible", "cost_usd_per_10000", "evidence", "duplicate_of", "division"),
    "energy_joules",
)
# Kinds of verifications behind the rows of a board, which has logs and code.
CHECKING_KINDS: dict[Kind, tuple[str, ...]] = {
    "train": (KIND_THAT_CHECKS["train"], KIND_THAT_CHECKS["package"]),
    "inference": (KIND_THAT_CHECKS["inference"],),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardRow(Row):
    """A submission as a board shows it.

    `shown` has the fields of a board entry that differ from ENTRY_DEFAULTS, without its place.
    `tta_seconds` is `factor` times the time of the runs `behind` it. `no_time_because` says why
    another clock or target leaves the submission without a time. None: its runs missed the target.
    """

    shown: Mapping[str, Any]
    search_text: str
    price_usd_per_hour: float | None
    factor: float
    behind: RunsBehind
    accelerator: Accelerator
    no_time_because: str | None = None

    @property
    def is_measured(self) -> bool:
        """Whether it shows our time, instead of its own logs'."""
        return self.evidence == "measured" and self["measured_seconds"] is not None

    def __getitem__(self, name: str) -> Any:
        return self.shown.get(name, ENTRY_DEFAULTS[name])


@dataclass(frozen=True, slots=True)
class PlacedRow:
    """A submission on a ranked board, and the fields of its entry about its place."""

    row: BoardRow
    place: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.place[name] if name in self.place else self.row[name]

    def entry(self) -> dict[str, Any]:
        """Return its columns in order."""
        seconds = self["tta_seconds"]
        display = None if seconds is None else display_seconds(seconds)
        return {name: self[name] for name in ENTRY_DEFAULTS} | {"tta_display": display}


@dataclass(frozen=True)
class BoardRows:
    """The submissions of one kind of a benchmark, at one version of its board."""

    benchmark: Benchmark
    kind: Kind
    found: Mapping[str, BoardRow]

    @property
    def weight(self) -> int:
        """Weight in a cache, in KiB."""
        return 3 * len(self.found)

    @cached_property
    def classes(self) -> frozenset[str | None]:
        """The hardware classes that measured some row."""
        return frozenset(each.hardware_class for each in self.found.values())

    def after(self, session: Session, changed: Collection[str]) -> "BoardRows":
        """Read the changed, added or removed submissions again, for a later version."""
        kept = {name: row for name, row in self.found.items() if name not in changed}
        again = read_rows(session, self.benchmark, self.kind, among=changed)
        return BoardRows(self.benchmark, self.kind, kept | dict(again.found))


def which_submissions(
    benchmark_id: str, kind: Kind, *, among: Collection[str] | None = None
) -> list[ColumnElement[bool]]:
    """Make the conditions for the submissions of a board, or for those `among` some ids."""
    if among is None:
        return [Submission.benchmark_id == benchmark_id, Submission.kind == kind]
    # An expression has no index. With the board's index SQLite would search the whole board.
    is_of_board = Submission.benchmark_id.concat("") == benchmark_id
    return [Submission.id.in_(among), is_of_board, Submission.kind == kind]


def row_of_new(submission: Submission) -> Row:
    """Build the row of an unsaved submission."""
    columns = {str(column.key): getattr(submission, str(column.key), None) for column in COLUMNS}
    columns["source"] = submission.published and submission.published.source
    return Row(**_facts(SimpleNamespace(**columns), cast(Kind, submission.kind)))


def _facts(row: Any, kind: Kind) -> dict[str, Any]:
    is_measured = row.evidence == "measured"
    is_unchecked = row.evidence == "published" and row.source is None
    is_ours = is_measured and row.measured_seconds is not None
    # An inference board ranks our median where it was measured, else the claimed one.
    ours_first = is_measured and kind == "inference"
    return {name: getattr(row, name) for name in SAME_FACTS} | {
        "submission_id": row.id,
        "submitted_at": (row.published_on or row.submitted_at).isoformat(),
        "tta_seconds": row.measured_seconds if is_ours else row.tta_seconds,
        "latency_ms": row.measured_latency_ms if ours_first else row.latency_ms,
        "quality": row.measured_quality if is_ours else row.result.get("best_quality"),
        "withdrawn": row.withdrawn_at is not None,
        "check": row.check_word,
        "held_back": SOURCE_NOT_CHECKED if is_unchecked else None,
        "broken": None if row.eligible else _first_broken(row),
        "hardware_class": row.hardware_class if is_measured else None,
        "submitter": row.whose if is_measured else None,
    }


def _first_broken(row: Any) -> str | None:
    waived = {each["rule"] for each in row.waivers or ()}
    for each in row.result.get("violations") or ():
        if each["code"] not in waived:
            return WAIVABLE.get(each["code"]) or str(each["message"])
    return None


def measured_runs(session: Session, *which: ColumnElement[bool]) -> defaultdict[str, list[Any]]:
    """Read the measured runs of some submissions, in order."""
    columns = (
        *(PoolRun.verification_id, PoolRun.index, PoolRun.seconds, PoolRun.epochs),
        PoolRun.quality,
    )
    statement = (
        select(Submission.id, *columns)
        .join(PoolRun, PoolRun.pool_id == Submission.pool_id)
        .where(*which)
        .order_by(Submission.id, PoolRun.verification_id, PoolRun.index)
    )
    found: defaultdict[str, list[Any]] = defaultdict(list)
    for row in session.execute(statement):
        found[row.id].append(row)
    return found


def reported_runs(session: Session, submission_id: str) -> list[tuple[Any, ReplayRun]]:
    """Read the measured runs of a submission, each with its report."""
    runs = measured_runs(session, Submission.id == submission_id)[submission_id]
    statement = select(Verification).where(
        Verification.id.in_({one.verification_id for one in runs})
    )
    reports = {
        each.id: report_of(each)
        for each in session.scalars(statement.options(undefer(Verification.report)))
    }
    trained = {
        (name, run.index): run
        for name, report in reports.items()
        if report is not None
        for run in report.runs
    }
    keys = [(one, (one.verification_id, one.index)) for one in runs]
    return [(one, trained[key]) for one, key in keys if key in trained]


def convergence_factor(tta_seconds: float | None, result: Mapping[str, Any]) -> float:
    """Return the factor of a submission's time for its convergence, or 1."""
    raw = result.get("raw_tta_seconds")
    return tta_seconds / raw if tta_seconds and raw else 1.0


def why_price_unranked(price: SystemPrice, evidence: str) -> str | None:
    """Say why a price ranks no row. Rows of an archive rank by their published price."""
    return None if evidence == "published" else price.why_unranked


@dataclass
class _LoggedRuns:
    """Runs of a log submission that reached the target: seconds, and epochs (or samples) to it."""

    seconds: list[float] = field(default_factory=list)
    convergence: list[float] = field(default_factory=list)

    def spread(self, factor: float = 1.0) -> Spread | None:
        """Return how much the runs scatter. None below two."""
        own = log_times([seconds * factor for seconds in self.seconds])
        if own is None or own.variance is None:
            return None
        return Spread(math.sqrt(own.variance), own.count - 1)


def read_rows(
    session: Session, benchmark: Benchmark, kind: Kind, *, among: Collection[str] | None = None
) -> BoardRows:
    """Read the submissions of a kind with their runs and verifications."""
    which = which_submissions(benchmark.benchmark_id, kind, among=among)
    details = _Details(
        benchmark,
        kind,
        logged=_logged_runs(session, which),
        measured=measured_runs(session, *which, Submission.evidence == "measured"),
        verifications=_verifications_behind(session, which, kind),
        costs=BookCosts(session),
        spreads=Spreads(session, benchmark),
    )
    joined = select(*COLUMNS).select_from(Submission).join(User, User.id == Submission.user_id)
    with_published = joined.outerjoin(Submission.published).outerjoin(Submission.package)
    statement = with_published.outerjoin(Pool, Submission.pool_id == Pool.id).where(*which)
    found = session.execute(statement.execution_options(yield_per=ROWS_AT_ONCE))
    return BoardRows(benchmark, kind, {row.id: details.of(row) for row in found})


def _verifications_behind(
    session: Session, which: Sequence[ColumnElement[bool]], kind: Kind
) -> dict[str, str]:
    """Find the verification published last, or the one under way before a first verdict."""
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


def _logged_runs(
    session: Session, which: Sequence[ColumnElement[bool]]
) -> defaultdict[str, _LoggedRuns]:
    statement = (
        select(RunRow.submission_id, RunRow.tta_seconds, RunRow.convergence)
        .join(Submission, Submission.id == RunRow.submission_id)
        .where(*which, RunRow.tta_seconds.is_not(None))
        .order_by(RunRow.submission_id, RunRow.index)
    )
    found: defaultdict[str, _LoggedRuns] = defaultdict(_LoggedRuns)
    for submission_id, seconds, convergence in session.execute(statement):
        found[submission_id].seconds.append(cast(float, seconds))
        if convergence is not None:
            found[submission_id].convergence.append(convergence)
    return found


@dataclass(frozen=True)
class _Details:
    """Rows of other tables about the submissions of a board."""

    benchmark: Benchmark
    kind: Kind
    logged: Mapping[str, _LoggedRuns]
    measured: Mapping[str, Sequence[Any]]
    verifications: Mapping[str, str]
    costs: BookCosts
    spreads: Spreads

    def of(self, row: Any) -> BoardRow:
        logged = self.logged.get(row.id, _LoggedRuns())
        is_measured = row.evidence == "measured" and row.measured_seconds is not None
        price = self.costs.of_class(row) if is_measured else self.costs.price(row)
        seconds = row.measured_seconds if is_measured else row.tta_seconds
        factor = 1.0 if is_measured else convergence_factor(row.tta_seconds, row.result)
        cost = training_cost_usd(seconds, price.usd_per_hour)
        shown = ENTRY_DEFAULTS | self._shown(row, logged)
        shown |= self._measured(row) if is_measured else self._claimed(row, logged)
        # A configuration may be measured by the verification of another of its submissions.
        measured = self.measured.get(row.id, ()) if is_measured else ()
        verification = self.verifications.get(row.id) or next(
            (run.verification_id for run in measured), None
        )
        shown |= {
            "cost_usd": cost,
            "cost_price": None if price.entry is None else price.entry.id,
            "verification_id": verification,
        }
        system = row.system
        texts = (
            *(shown["model"], shown["submitter"], shown["display_name"], shown["framework"]),
            *(system["name"], system["hardware_class"], system["accelerator"]),
        )
        return BoardRow(
            **_facts(row, self.kind),
            cost_usd=cost,
            price_unranked=why_price_unranked(price, row.evidence),
            shown={name: each for name, each in shown.items() if each != ENTRY_DEFAULTS[name]},
            search_text="\n".join(text or "" for text in texts).casefold(),
            price_usd_per_hour=price.usd_per_hour,
            factor=factor,
            behind=self._behind(row, shown, logged, factor),
            accelerator=accelerator_of_system(system),
        )

    def _behind(
        self, row: Any, shown: Mapping[str, Any], logged: _LoggedRuns, factor: float
    ) -> RunsBehind:
        rule, started = self.benchmark.runs, shown["runs_started"]
        spread = self.spreads.of(row.system.get("hardware_class", ""))
        if shown["measured_seconds"] is not None:
            by_time = self.benchmark.score.by == "time"
            runs, values = started, 0
            dropped = dropped_at_each_end(started) if by_time else 0
        else:
            runs, dropped = rule.counted(started), rule.dropped
            values = len(set(logged.convergence))
            if spread is None and row.evidence == "published":
                spread = logged.spread(factor)
        if spread is not None and self.benchmark.score.by == "time":
            step, seconds = self._step(shown), shown["tta_seconds"]
            resolution = resolution_of(step_seconds=step, seconds=seconds) if seconds else None
            spread = None if resolution is None else spread.at_least(resolution)
        return RunsBehind(runs, dropped, spread, values, self.benchmark.score)

    def _measured(self, row: Any) -> dict[str, Any]:
        runs = self.measured.get(row.id, ())
        times = [run.seconds for run in runs if run.seconds is not None]
        # Code tells no epochs: its pool counts evaluations instead.
        counts_epochs = row.trained_with != "package"
        epochs = [run.epochs for run in runs if run.epochs is not None and counts_epochs]
        steps = [run.seconds / run.epochs for run in runs if run.seconds and run.epochs]
        qualities = [run.quality for run in runs if run.quality is not None]
        quality = row.measured_quality
        if quality is None and qualities:
            quality = self.benchmark.target.best(qualities)
        return {
            "tta_seconds": row.measured_seconds,
            "tta_low_seconds": row.low_seconds,
            "tta_high_seconds": row.high_seconds,
            "measured_seconds": row.measured_seconds,
            "measured_low_seconds": row.low_seconds,
            "measured_high_seconds": row.high_seconds,
            "measured_runs": len(runs),
            "busy": row.is_busy,
            "runs_reached": len(times),
            "runs_started": len(runs),
            "cv_percent": coefficient_of_variation_percent(times),
            "epochs_to_target": mean(epochs) if epochs else None,
            "evaluation_interval_seconds": mean(steps) if steps else None,
            "raw_tta_seconds": row.measured_seconds,
            "quality": quality,
            "measured_quality": row.measured_quality,
            "quality_low": row.low_quality,
            "quality_high": row.high_quality,
            "quality_runs": len(runs) if row.measured_quality is not None else 0,
            "samples_per_second": None,  # Only logs tell samples.
        }

    def _step(self, result: Mapping[str, Any]) -> float | None:
        """Return the seconds between evaluations: a time's resolution. None at a fixed stop."""
        if self.benchmark.reach.name == "fixed_stop":
            return None
        step: float | None = result.get("evaluation_interval_seconds")
        return step

    def _claimed(self, row: Any, logged: _LoggedRuns) -> dict[str, Any]:
        rule = self.benchmark.runs
        if self.benchmark.score.by == "quality":
            return {}
        spread = self.spreads.of(row.system.get("hardware_class", ""))
        if spread is None and row.evidence == "published" and rule.most is not None:
            spread = logged.spread()
        interval = claimed_interval(
            row.tta_seconds,
            runs=rule.counted(row.result.get("started", 0)),
            dropped=rule.dropped,
            spread=spread,
            times=logged.seconds,
            step_seconds=self._step(row.result),
        )
        return {
            "tta_low_seconds": None if interval is None else interval.low,
            "tta_high_seconds": None if interval is None else interval.high,
        }

    def _shown(self, row: Any, logged: _LoggedRuns) -> dict[str, Any]:
        result, training = row.result, self.kind == "train"
        rcp, energy = result.get("rcp"), row.energy_joules
        return {
            **{name: getattr(row, name) for name in OWN_FIELDS},
            **{name: result.get(name) for name in RESULT_FIELDS},
            "submission_id": row.id,
            "submitter": row.submitter,
            "display_name": row.display_name,
            "runs_reached": result["reached"] if training else 0,
            "runs_started": result["started"] if training else 0,
            "samples_per_second": self._samples_per_second(logged),
            "quality": result["best_quality" if training else "quality"],
            "submitted_at": row.submitted_at.isoformat().replace("+00:00", "Z"),
            "submitted_on": None if row.published_on is None else row.published_on.isoformat(),
            "rcp": None if rcp is None else RcpView(**rcp).model_dump(),
            "energy_kwh": None if energy is None else energy / JOULES_PER_KWH,
            "source": row.source,
            "withdrawn": row.withdrawn_at is not None,
            "waivers": row.waivers or [],
            "check": row.check_word,
            "claimed_seconds": row.tta_seconds,
            "claimed_quality": result["best_quality"] if training else None,
            "package_bytes": row.package_bytes,
        }

    def _samples_per_second(self, logged: _LoggedRuns) -> float | None:
        """Take all runs together. None unless every run tells its samples."""
        counts_samples = self.benchmark.convergence_unit == "samples_count"
        if not counts_samples or len(logged.convergence) < len(logged.seconds):
            return None
        total = sum(logged.seconds)
        return sum(logged.convergence) / total if total > 0 else None
