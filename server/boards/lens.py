"""A board that is not the official one: through a lens, or at other prices."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

import orjson
from sqlalchemy import ColumnElement, Text, cast, select
from sqlalchemy.orm import Session

from finishline.api.boards import BoardPriceView, BoardQuery, LensView
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.prices import (
    PriceBook,
    price_of_system,
    system_price_usd_per_hour,
    training_cost_usd,
)
from finishline.rules.scoring.tta import display_seconds
from finishline.rules.statistics.gaps import interval_of
from server.base.models import PoolRun, RunRow, Submission, Verification
from server.boards.rows import BoardRow, why_price_unranked
from server.boards.what_if import (
    Lens,
    LensTime,
    StoredRun,
    make_lens,
    result_of_set,
    time_of_run,
)

# Curves are long: so many are in memory at once, as text. Each is decoded when its turn comes,
# because a few hundred decoded ones keep the garbage collector busier than the decoding takes.
CURVES_AT_ONCE = 200
# In these metrics a submission's figure is a multiple of its runs' time.
METRICS_OF_RUNS = ("tta", "cost")
NO_CURVES = "no curve of its runs is stored"


def lens_of(benchmark: Benchmark, query: BoardQuery) -> Lens | None:
    """The lens a query asks for; None for the official ranking and for a board without times.

    Raises RuleError for a target that the benchmark cannot have.
    """
    lens = make_lens(benchmark, clock=query.clock, target=query.target, field="query.target")
    return lens if query.metric in METRICS_OF_RUNS else None


def lens_view(lens: Lens, benchmark: Benchmark) -> LensView:
    """Describe the clock and target of a lens beside the official ones, also in a sentence."""
    target, own = lens.target, benchmark.target
    sign = "≥" if target.direction == "higher" else "≤"
    return LensView(
        clock=lens.clock.name,
        target=target.value,
        official_clock=benchmark.clock.name,
        official_target=own.value,
        note=f"Not the official ranking: on the {lens.clock.name} clock, at {target.metric} {sign} "
        f"{target.value:g} {target.unit}. Official is the {benchmark.clock.name} clock at "
        f"{own.value:g} {own.unit}.",
    )


def lens_rows(
    session: Session,
    rows: Mapping[str, BoardRow],
    which: Sequence[ColumnElement[bool]],
    lens: Lens,
    benchmark: Benchmark,
) -> dict[str, BoardRow]:
    """The rows with their times and costs through the lens.

    A measured row is seen by the curves of its sealed runs, any other by those of its own logs.
    `lens_reason` says why a row has no time, None where its runs did not reach the target.
    """
    times = _times_of_runs(session, rows, which, lens, benchmark)
    times |= _times_of_pools(session, rows, which, lens, benchmark)
    return {name: _seen(row, times[name], lens, benchmark) for name, row in rows.items()}


def _times_of_runs(
    session: Session,
    rows: Mapping[str, BoardRow],
    which: Sequence[ColumnElement[bool]],
    lens: Lens,
    benchmark: Benchmark,
) -> dict[str, list[LensTime]]:
    statement = (
        select(RunRow.submission_id, RunRow.file, RunRow.reached, cast(RunRow.curve, Text))
        .join(Submission, Submission.id == RunRow.submission_id)
        .where(*which)
        .order_by(RunRow.submission_id, RunRow.index)
        .execution_options(yield_per=CURVES_AT_ONCE)
    )
    times: defaultdict[str, list[LensTime]] = defaultdict(list)
    for submission_id, file, reached, curve in session.execute(statement):
        # A submission may have come in since the rows were read.
        if (row := rows.get(submission_id)) is not None:
            run = StoredRun(file, reached, orjson.loads(curve))
            division = row.standing.division
            times[submission_id].append(time_of_run(run, lens, benchmark, division=division))
    return times


def _times_of_pools(
    session: Session,
    rows: Mapping[str, BoardRow],
    which: Sequence[ColumnElement[bool]],
    lens: Lens,
    benchmark: Benchmark,
) -> dict[str, list[LensTime]]:
    """The times of the sealed runs of each measured submission.

    Their curves are in the reports of its replays.
    """
    measured = (*which, Submission.evidence == "measured")
    joined = select(
        Submission.id,
        Submission.division,
        PoolRun.verification_id,
        PoolRun.index,
    )
    runs = session.execute(
        joined.join(PoolRun, PoolRun.pool_id == Submission.pool_id)
        .where(*measured)
        .order_by(Submission.id, PoolRun.verification_id, PoolRun.index)
    ).all()
    reports = session.execute(
        select(Verification.id, cast(Verification.report, Text))
        .where(Verification.id.in_({run.verification_id for run in runs}))
        .execution_options(yield_per=CURVES_AT_ONCE)
    )
    trained = {
        (verification_id, run["index"]): run
        for verification_id, report in reports
        for run in (orjson.loads(report or "null") or {"runs": ()})["runs"]
    }
    times: dict[str, list[LensTime]] = {
        run.id: [] for run in runs if run.id in rows and rows[run.id].is_measured
    }
    for run in runs:
        found = trained.get((run.verification_id, run.index))
        if found is not None and run.id in times:
            stored = _stored(found)
            times[run.id].append(time_of_run(stored, lens, benchmark, division=run.division))
    return times


def _stored(run: Mapping[str, Any]) -> StoredRun:
    """A run of a report as the runs of a submission are stored."""
    names = ("epoch", "seconds", "quality", "samples", "ledger")
    curve = [[item[name] for name in names] for item in run["evaluations"]]
    return StoredRun(f"run_{run['index']}.log", run["status"] == "reached", curve)


def _seen(row: BoardRow, times: Sequence[LensTime], lens: Lens, benchmark: Benchmark) -> BoardRow:
    ours = row.is_measured
    found = result_of_set(times, lens, benchmark, factor=row.factor, sealed=ours)
    tta = found.tta_seconds
    interval = (
        None
        if tta is None
        else interval_of(tta, runs=row.runs, dropped=row.dropped, spread=row.spread)
    )
    low, high = (None, None) if interval is None else (interval.low, interval.high)
    changed = {
        "tta_seconds": tta,
        "tta_display": None if tta is None else display_seconds(tta),
        "tta_low_seconds": low,
        "tta_high_seconds": high,
        "cv_percent": found.cv_percent,
        "runs_reached": len(found.runs),
        "epochs_to_target": found.epochs_to_target,
        "raw_tta_seconds": found.raw_tta_seconds,
        "rcp": row.shown["rcp"] if lens.own_target else None,
        # Counted to the official target on the official clock: they mean nothing here.
        "samples_per_second": None,
        "energy_joules": None,
        "energy_kwh": None,
    }
    if ours:
        changed |= {
            "measured_seconds": tta,
            "measured_low_seconds": low,
            "measured_high_seconds": high,
        }
    cost = training_cost_usd(tta, row.price_usd_per_hour)
    return replace(
        row,
        standing=row.standing._replace(tta_seconds=tta, cost_usd=cost, energy_joules=None),
        lens_reason=found.reason if times else NO_CURVES,
        changed=changed,
    )


# US dollars for an accelerator and hour, or the day whose prices hold.
OtherPrice = float | date


def price_of(query: BoardQuery) -> OtherPrice | None:
    """The prices that a query asks for; an inference has no time to price."""
    if query.kind != "train":
        return None
    return query.prices_on if query.price is None else query.price


def price_view(price: OtherPrice) -> BoardPriceView:
    """Describe the prices that replace the official ones, also in a sentence."""
    if isinstance(price, date):
        return BoardPriceView(
            usd_per_accelerator_hour=None,
            prices_on=price,
            note="Not the official costs: rented systems are at the price book's prices of "
            f"{price.isoformat()}, the others as stated.",
        )
    return BoardPriceView(
        usd_per_accelerator_hour=price,
        prices_on=None,
        note=f"Not the official costs: at {_dollars(price)} per "
        "accelerator-hour. A system that states no accelerators counts as one.",
    )


def priced_rows(
    rows: Mapping[str, BoardRow], price: OtherPrice, book: PriceBook
) -> dict[str, BoardRow]:
    """Price the time of each row at other prices; the rows by submission id."""
    return {
        name: _at_day(row, price, book) if isinstance(price, date) else _at_own_price(row, price)
        for name, row in rows.items()
    }


def _at_own_price(row: BoardRow, usd_per_accelerator_hour: float) -> BoardRow:
    accelerators = row.shown["system"]["accelerator_count"] or 0
    usd_per_hour = system_price_usd_per_hour(usd_per_accelerator_hour, accelerators)
    return _costing(row, usd_per_hour, number=None, price_unranked=None)


def _at_day(row: BoardRow, day: date, book: PriceBook) -> BoardRow:
    found = price_of_system(row.shown["system"], book, on=day)
    number = None if found.entry is None else found.entry.number
    why = why_price_unranked(found, row.shown["evidence"])
    return _costing(row, found.usd_per_hour, number=number, price_unranked=why)


def _costing(
    row: BoardRow, usd_per_hour: float | None, *, number: int | None, price_unranked: str | None
) -> BoardRow:
    cost = training_cost_usd(row.standing.tta_seconds, usd_per_hour)
    return replace(
        row,
        standing=row.standing._replace(cost_usd=cost, price_unranked=price_unranked),
        changed=dict(row.changed) | {"cost_price": number},
    )


def _dollars(usd: float) -> str:
    """Whole cents where that is the price, else every digit that was given."""
    return f"${usd:.2f}" if round(usd, 2) == usd else f"${usd:g}"
