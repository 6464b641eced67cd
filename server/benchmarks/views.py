"""Views of stored benchmarks, phases and prices."""

from datetime import datetime

from finishline.api.benchmarks import BenchmarkView, DataSetView, RunsView, TargetView
from finishline.api.phases import PhasesSet, PhasesView
from finishline.api.prices import PriceView
from finishline.rules.benchmarks.benchmark import Benchmark, QualityTarget
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


def target_view(benchmark: Benchmark) -> TargetView:
    """View of a benchmark's target."""
    return _view_of(benchmark.target)


def _view_of(target: QualityTarget) -> TargetView:
    return TargetView.of(target, also=[_view_of(other) for other in target.also])


def benchmark_view(
    benchmark: Benchmark, counts: Counts = NO_SUBMISSIONS, *, phases: PhasesView | None = None
) -> BenchmarkView:
    """View of a benchmark with the number of its submissions."""
    data_set = benchmark.data_set
    return BenchmarkView.of(
        benchmark,
        id=benchmark.benchmark_id,
        data_set=DataSetView(
            name=data_set.name,
            source=data_set.source,
            train_items=data_set.train_items,
            test_items=data_set.test_items,
        ),
        target=target_view(benchmark),
        clock=benchmark.clock.name,
        runs=RunsView(
            count=benchmark.runs.count,
            dropped=benchmark.runs.dropped,
            started=benchmark.runs.wanted,
        ),
        divisions=list(benchmark.divisions),
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
