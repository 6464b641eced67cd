"""What is on a board, for a page that shows its top: of every submission a few figures are read."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from datetime import date
from sys import intern
from typing import Any, NamedTuple

import orjson
from sqlalchemy import ColumnElement, Text, cast, func, select
from sqlalchemy.orm import Session

from rules.benchmark import Benchmark
from rules.claim import Kind
from rules.cost import training_cost_usd
from server.leaderboard.changes import changes_between
from server.leaderboard.facets import Facets, facets_of
from server.leaderboard.memory import memory_of
from server.leaderboard.rows import which_submissions
from server.leaderboard.schemas import BoardQuery
from server.leaderboard.service import kept_for_board
from server.models import RunRow, Submission
from server.prices.costs import BookCosts
from server.submissions.visibility import ranks


class FacetRow(NamedTuple):
    """The figures of one submission that `facets_of` asks for; `submitted_on` is its day."""

    division: str
    status: str
    system: dict[str, Any]
    framework: str
    submitted_on: str
    tta_seconds: float | None
    cv_percent: float | None
    epochs_to_target: float | None
    cost_usd: float | None
    latency_ms: float | None
    measured_latency_ms: float | None
    cost_usd_per_10000: float | None
    energy_joules: float | None
    samples_per_second: float | None
    precision: str | None
    precision_measured: str | None
    quality: float | None

    def figure(self, name: str) -> Any:
        """One of them by its name."""
        return getattr(self, name)


class FacetRows(NamedTuple):
    """The submissions of one kind of a benchmark that rank or could, by id."""

    rows: dict[str, FacetRow]


def read_facets(
    session: Session, benchmark: Benchmark, query: BoardQuery, *, version: int
) -> Facets:
    """What is on the official board of a query's kind and division, without what was withdrawn.

    The same as from the rows of the whole board, of which it takes a fraction of the time.
    """

    def make() -> Facets:
        rows = _rows(session, benchmark, query.kind, version).rows.values()
        return facets_of([row for row in rows if query.division in (None, row.division)])

    name = f"facets {query.kind} {query.division}"
    return kept_for_board(session, benchmark.benchmark_id, name, make, version=version)


def _rows(session: Session, benchmark: Benchmark, kind: Kind, version: int) -> FacetRows:
    """Read are those alone that came or changed since the last time, where that is known."""
    kept, key = memory_of(session).facet_rows, (benchmark.benchmark_id, kind)

    def make() -> FacetRows:
        latest = kept.latest(key)
        if latest is None:
            return FacetRows(_read(session, benchmark, kind))
        earlier, found = latest
        changed = changes_between(session, benchmark.benchmark_id, earlier, version)
        if changed is None:
            return FacetRows(_read(session, benchmark, kind))
        others = {name: row for name, row in found.rows.items() if name not in changed}
        return FacetRows(others | _read(session, benchmark, kind, among=changed))

    return kept.get(key, version, make)


def _read(
    session: Session, benchmark: Benchmark, kind: Kind, *, among: AbstractSet[str] | None = None
) -> dict[str, FacetRow]:
    which = [*which_submissions(benchmark.benchmark_id, kind, among=among), ranks()]
    counts_samples = benchmark.convergence_unit == "samples_count"
    sampled = _samples_per_second(session, which) if counts_samples else {}
    systems = _Systems(session)
    return {
        row.id: _row(row, systems, sampled.get(row.id)) for row in _figures(session, which, kind)
    }


def _figures(session: Session, which: Sequence[ColumnElement[bool]], kind: Kind) -> Any:
    """Of the results, which explain every step, the database gives three figures each."""
    result = Submission.result
    quality = result["best_quality" if kind == "train" else "quality"]
    columns = (
        Submission.id,
        Submission.division,
        Submission.status,
        cast(Submission.system, Text).label("system"),
        Submission.framework,
        Submission.submitted_at,
        Submission.submitted_on,
        Submission.tta_seconds,
        result["cv_percent"].as_float().label("cv_percent"),
        result["epochs_to_target"].as_float().label("epochs_to_target"),
        Submission.latency_ms,
        Submission.measured_latency_ms,
        Submission.cost_usd_per_10000,
        Submission.energy_joules,
        Submission.precision,
        Submission.precision_measured,
        quality.as_float().label("quality"),
    )
    return session.execute(select(*columns).where(*which))


def _row(row: Any, systems: "_Systems", samples_per_second: float | None) -> FacetRow:
    day = (row.submitted_on or row.submitted_at).isoformat()[:10]
    usd_per_hour = None if row.tta_seconds is None else systems.usd_per_hour(row.system, day)
    return FacetRow(
        # One text for all submissions that have it: there are thousands, and few texts.
        division=intern(row.division),
        status=intern(row.status),
        system=systems.shown(row.system),
        framework=intern(row.framework),
        submitted_on=intern(day),
        tta_seconds=row.tta_seconds,
        cv_percent=row.cv_percent,
        epochs_to_target=row.epochs_to_target,
        cost_usd=training_cost_usd(row.tta_seconds, usd_per_hour),
        latency_ms=row.latency_ms,
        measured_latency_ms=row.measured_latency_ms,
        cost_usd_per_10000=row.cost_usd_per_10000,
        energy_joules=row.energy_joules,
        samples_per_second=samples_per_second,
        precision=row.precision,
        precision_measured=row.precision_measured,
        quality=row.quality,
    )


def _samples_per_second(
    session: Session, which: Sequence[ColumnElement[bool]]
) -> dict[str, float | None]:
    """Of all runs together that reached the target, where each of them tells its samples."""
    seconds, samples = func.sum(RunRow.tta_seconds), func.sum(RunRow.convergence)
    statement = (
        select(RunRow.submission_id, (samples / seconds).label("figure"))
        .join(Submission, Submission.id == RunRow.submission_id)
        .where(*which, RunRow.tta_seconds.is_not(None))
        .group_by(RunRow.submission_id)
        .having(func.count(RunRow.convergence) == func.count(), seconds > 0)
    )
    return {row.submission_id: row.figure for row in session.execute(statement)}


class _Systems:
    """The systems of many submissions by their stored text: most are of a few systems."""

    def __init__(self, session: Session) -> None:
        self._costs = BookCosts(session)
        self._systems: dict[str, dict[str, Any]] = {}
        self._shown: dict[str, dict[str, Any]] = {}
        self._prices: dict[tuple[str, str], float | None] = {}

    def shown(self, text: str) -> dict[str, Any]:
        """What a board's filters ask of a system."""
        if text not in self._shown:
            hardware_class = self._system(text).get("hardware_class")
            self._shown[text] = {"hardware_class": hardware_class}
        return self._shown[text]

    def usd_per_hour(self, text: str, day: str) -> float | None:
        """What an hour of a system costs on a day; None where nobody says."""
        if (text, day) not in self._prices:
            price = self._costs.price_on(self._system(text), date.fromisoformat(day))
            self._prices[text, day] = price.usd_per_hour
        return self._prices[text, day]

    def _system(self, text: str) -> dict[str, Any]:
        if text not in self._systems:
            self._systems[text] = orjson.loads(text)
        return self._systems[text]
