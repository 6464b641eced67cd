"""Views of stored benchmarks, phases and prices."""

from datetime import datetime

from finishline.api.benchmarks import BenchmarkView, PhasesSet, PhasesView, RunsView
from finishline.api.prices import PriceView
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.phases import (
    NO_PHASES,
    Phases,
    is_embargoed,
    is_frozen,
    phase_at,
    sentence_at,
)
from finishline.rules.benchmarks.prices import Price, PriceEntry
from server.base.models import BenchmarkPhases, PriceRow
from server.benchmarks.phase_queries import Dates
from server.benchmarks.queries import NO_SUBMISSIONS, Counts


def benchmark_view(
    benchmark: Benchmark, counts: Counts = NO_SUBMISSIONS, *, phases: PhasesView | None = None
) -> BenchmarkView:
    """View of a benchmark with the number of its submissions."""
    return BenchmarkView.of(
        benchmark,
        id=benchmark.benchmark_id,
        clock=benchmark.clock.name,
        runs=RunsView.of(benchmark.runs, started=benchmark.runs.wanted),
        replayable=benchmark.replay is not None,
        convergence_unit="samples" if benchmark.convergence_unit == "samples_count" else "epochs",
        submissions=counts.train + counts.inference,
        inference_submissions=counts.inference,
        phases=phases,
    )


def phases_of(row: BenchmarkPhases | Dates | None) -> Phases:
    """Dates of a stored row; none without one."""
    if row is None:
        return NO_PHASES
    return Phases(row.opens_at, row.freezes_at, row.closes_at, row.embargo_until)


def phases_view(row: BenchmarkPhases | None, now: datetime) -> PhasesView:
    """View of the phase at a moment."""
    phases = phases_of(row)
    name = phase_at(phases, now)
    return PhasesView(
        phase=name,
        sentence=sentence_at(phases, now),
        takes_submissions=name in ("open", "frozen"),
        rules_frozen=is_frozen(phases, now),
        under_embargo=is_embargoed(phases, now),
        frozen_sha256=row.frozen_sha256 if row is not None else None,
        **vars(phases),
    )


def phases_set(row: BenchmarkPhases) -> PhasesSet:
    """View of a row of the history."""
    return PhasesSet.of(row, set_by=row.setter.name, **vars(phases_of(row)))


def entry_of(row: PriceRow) -> PriceEntry:
    """Convert a stored price to an entry with its number."""
    return PriceEntry(row.id, Price.model_validate(row, from_attributes=True))


def price_view(row: PriceRow, superseded_by: int | None) -> PriceView:
    """View of a stored price."""
    return PriceView.of(
        row,
        superseded_by=superseded_by,
        ranks=row.pricing != "spot" and superseded_by is None,
        added_by=row.adder.name,
    )
