"""A board that is not the official one: through a lens, or at other prices."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import chain
from typing import Any

import orjson
from sqlalchemy import ColumnElement, Text, cast, select
from sqlalchemy.orm import Session

from finishline.api.boards import BoardPriceView, LensView
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.prices import training_cost_usd
from finishline.rules.scoring.tta import display_seconds
from finishline.rules.statistics.gaps import interval_of
from server.base.board_versions import VersionedCache
from server.base.database import state_of
from server.base.models import PoolRun, RunRow, Submission, Verification
from server.benchmarks.prices import PriceBook, price_of_system, system_price_usd_per_hour
from server.boards.rows import BoardRow, why_price_unranked
from server.boards.schemas import BoardQuery
from server.boards.what_if import (
    Lens,
    LensTime,
    PackedCurve,
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
# An evaluation takes about 90 bytes.
MOST_EVALUATIONS = 1_000_000
# Of larger boards the curves are read each time.
MOST_REUSED = 20_000


def lens_of(benchmark: Benchmark, query: BoardQuery) -> Lens | None:
    """The lens a query asks for; None for the official ranking and for a board without times."""
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


class CurvesCache(VersionedCache):
    """The curves of boards, by benchmark and kind."""

    def __init__(self) -> None:
        super().__init__(MOST_EVALUATIONS)


@dataclass(frozen=True)
class Curves:
    """The runs of a board: those of its own logs, and the measured ones, by submission."""

    own: Iterable[tuple[str, StoredRun]]
    measured: Mapping[str, Sequence[StoredRun]]

    @property
    def weight(self) -> int:
        """Weight in a cache, in evaluations."""
        measured = chain.from_iterable(self.measured.values())
        return sum(len(run.curve) for run in chain((run for _, run in self.own), measured))


def lens_rows(
    session: Session,
    rows: Mapping[str, BoardRow],
    which: Sequence[ColumnElement[bool]],
    lens: Lens,
    benchmark: Benchmark,
    *,
    version: tuple[Hashable, int] | None,
) -> dict[str, BoardRow]:
    """The rows with their times and costs through the lens.

    A measured row is seen by the curves of its measured runs, any other by those of its own logs.
    """

    def read(_: object = None) -> Curves:
        return Curves(list(_own_runs(session, which)), _measured_runs(session, which))

    if version is not None and len(rows) <= MOST_REUSED:
        curves = state_of(session, CurvesCache).get(*version, read)
    else:
        curves = Curves(_own_runs(session, which), _measured_runs(session, which))

    def time_of(run: StoredRun, row: BoardRow) -> LensTime:
        return time_of_run(run, lens, benchmark, division=row.standing.division)

    times: defaultdict[str, list[LensTime]] = defaultdict(list)
    for name, run in curves.own:
        # A submission may have come in since the rows were read.
        if (row := rows.get(name)) is not None:
            times[name].append(time_of(run, row))
    for name, runs in curves.measured.items():
        if (row := rows.get(name)) is not None and row.is_measured:
            times[name] = [time_of(run, row) for run in runs]
    return {name: _seen(row, times[name], lens, benchmark) for name, row in rows.items()}


def _own_runs(
    session: Session, which: Sequence[ColumnElement[bool]]
) -> Iterator[tuple[str, StoredRun]]:
    statement = (
        select(RunRow.submission_id, RunRow.file, RunRow.reached, cast(RunRow.curve, Text))
        .join(Submission, Submission.id == RunRow.submission_id)
        .where(*which)
        .order_by(RunRow.submission_id, RunRow.index)
        .execution_options(yield_per=CURVES_AT_ONCE)
    )
    for submission_id, file, reached, curve in session.execute(statement):
        yield submission_id, StoredRun(file, reached, PackedCurve(orjson.loads(curve)))


def _measured_runs(
    session: Session, which: Sequence[ColumnElement[bool]]
) -> dict[str, list[StoredRun]]:
    measured = (*which, Submission.evidence == "measured")
    joined = select(
        Submission.id,
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
    found: dict[str, list[StoredRun]] = {run.id: [] for run in runs}
    for run in runs:
        row = trained.get((run.verification_id, run.index))
        if row is not None:
            found[run.id].append(_stored(row))
    return found


def _stored(run: Mapping[str, Any]) -> StoredRun:
    names = ("epoch", "seconds", "quality", "samples", "ledger")
    curve = [[item[name] for name in names] for item in run["evaluations"]]
    return StoredRun(f"run_{run['index']}.log", run["status"] == "reached", PackedCurve(curve))


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
