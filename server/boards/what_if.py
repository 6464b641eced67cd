"""What-if views of a board: another clock, another target, or other prices.

A time at another target ends at the evaluation that reaches it. Only the ranking counts later
seconds, up to the log's own stop.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from typing import Any, NamedTuple

import orjson
from sqlalchemy import ColumnElement, Text, cast, select
from sqlalchemy.orm import Session

from finishline.api.boards import BoardPriceView, WhatIfView
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.prices import training_cost_usd
from finishline.rules.benchmarks.quality import metric_words
from finishline.rules.logs import clock_of_log
from finishline.rules.run import (
    EPOCH,
    QUALITY,
    SECONDS,
    evaluation_of,
    ledger_of,
)
from finishline.rules.scoring.scoring import scored_places
from finishline.rules.scoring.tta import place_at_target
from finishline.rules.statistics.aggregate import (
    LONGEST_SECONDS,
    coefficient_of_variation_percent,
    mean,
    measured_seconds,
    olympic_mean,
)
from finishline.rules.statistics.gaps import interval_of
from finishline.rules.submissions.claim_checks import MOST_EPOCHS
from server.base.board_versions import cached_for_board
from server.base.models import RunRow, Submission, Verification
from server.benchmarks.prices import PriceBook, price_of_class, system_price_usd_per_hour
from server.boards.query import WhatIf
from server.boards.rows import (
    BoardRow,
    BoardRows,
    measured_runs,
    which_submissions,
    why_price_unranked,
)

# More decoded curves at once cost the garbage collector more time than decoding.
CURVES_AT_ONCE = 200
NO_CURVES = "no curve of its runs is stored"
NO_LEDGER = "no ledger: the log does not separate evaluation time"
IMPOSSIBLE = "its curve has an impossible value"
# US dollars for an accelerator and hour, or the day whose prices hold.
OtherPrice = float | date


def what_if_view(what_if: WhatIf, benchmark: Benchmark) -> WhatIfView:
    """Describe another clock and target with the official ones, also in a sentence."""
    target, own = what_if.target, benchmark.target
    bound = "at least" if target.direction == "higher" else "at most"
    return WhatIfView(
        clock=what_if.clock.name,
        target=target.value,
        official_clock=benchmark.clock.name,
        official_target=own.value,
        note=f"Not the official ranking: on the {what_if.clock.name} clock, with {bound} "
        f"{target.value:g} {target.unit} {metric_words(target.metric)}. Official is the "
        f"{benchmark.clock.name} clock at {own.value:g} {own.unit}.",
    )


class StoredRun(NamedTuple):
    """A run: its log's name, whether it was scored as reaching, and its curve as JSON."""

    name: str
    reached: bool
    curve: str | bytes


@dataclass(frozen=True)
class RunTime:
    """Seconds and epochs to the target. None if the run missed it, or for a `reason`."""

    seconds: float | None
    epochs: float | None = None
    reason: str | None = None


def time_of_run(run: StoredRun, what_if: WhatIf, benchmark: Benchmark, *, division: str) -> RunTime:
    """Return the time of a stored run to another target or on another clock.

    On its log's own clock, the log's seconds count. On any other clock its ledger decides. At the
    benchmark's own target a run counts only if it was scored as reaching it, because a log may say
    that it failed. At any other target only its curve decides.
    """
    curve, target = orjson.loads(run.curve), what_if.target
    if target.also:
        there = target.reached_at([evaluation_of(row) for row in curve])
    elif target.direction == "higher":
        there = [row[QUALITY] >= target.least for row in curve]
    else:
        there = [row[QUALITY] <= target.least for row in curve]
    place = place_at_target(there, benchmark.reach)
    if place is None:
        return RunTime(None)
    row = curve[place]
    ledger, own_clock = ledger_of(row), clock_of_log(run.name, benchmark)
    was_scored = ledger is not None or own_clock == benchmark.clock.name
    if what_if.own_target and was_scored and not run.reached:
        return RunTime(None)
    if ledger is None and own_clock != what_if.clock.name:
        return RunTime(None, row[EPOCH], NO_LEDGER)
    seconds = row[SECONDS]
    if ledger is not None:
        seconds = what_if.clock.seconds(ledger, division=division)
    # Beyond these a sum with others may have no value. Too short a time is refused with the rank of
    # the whole set.
    if abs(seconds or 0.0) > LONGEST_SECONDS or abs(row[EPOCH] or 0.0) > MOST_EPOCHS:
        return RunTime(None, reason=IMPOSSIBLE)
    return RunTime(seconds, row[EPOCH])


def time_of_set(
    times: Sequence[RunTime],
    what_if: WhatIf,
    benchmark: Benchmark,
    *,
    factor: float,
    is_measured: bool = False,
) -> dict[str, Any]:
    """Make a row's columns for a set of runs. Measured runs are scored as in the ranking.

    `factor` multiplies the time for convergence. It was measured at the benchmark's own target, so
    it counts only there, on every clock. One untimed run leaves the set untimed.
    """
    is_timed = all(time.reason is None for time in times)
    seconds = [time.seconds for time in times] if is_timed else []
    reached = [each for each in seconds if each is not None]
    raw, dropped = None, benchmark.runs.dropped
    if is_measured and seconds:
        raw = measured_seconds(seconds)
    elif len(counted := scored_places(seconds, benchmark.runs)) > 2 * dropped:
        raw = olympic_mean([seconds[place] for place in counted], dropped=dropped)
    epochs = [time.epochs for time in times if time.epochs is not None]
    return {
        "tta_seconds": None if raw is None else raw * (factor if what_if.own_target else 1.0),
        "raw_tta_seconds": raw,
        "cv_percent": coefficient_of_variation_percent(reached),
        "epochs_to_target": mean(epochs) if epochs else None,
        "runs_reached": len(reached),
    }


# A submission, whether the run is a measured one, and the run.
OneCurve = tuple[str, bool, StoredRun]


class Curves(list[OneCurve]):
    """Curves in a cache, as text, because decoded ones take five times the memory."""

    @property
    def weight(self) -> int:
        """Weight in a cache, in KiB."""
        return sum(len(run.curve) for _, _, run in self) // 1024


def rows_at(
    session: Session,
    rows: BoardRows,
    what_if: WhatIf,
    *,
    version: int | None,
) -> BoardRows:
    """Return rows at another clock or target. Curves are cached for a `version` of the board."""
    benchmark = rows.benchmark
    which = which_submissions(benchmark.benchmark_id, rows.kind)
    curves: Iterable[OneCurve] = _read_curves(session, which)
    if version is not None:
        name, read = f"curves {rows.kind}", partial(Curves, curves)
        curves = cached_for_board(session, benchmark.benchmark_id, name, read, version=version)
    times: defaultdict[str, list[RunTime]] = defaultdict(list)
    for name, is_measured, run in curves:
        row = rows.found.get(name)  # A submission may have come in since the rows were read.
        if row is not None and row.is_measured == is_measured:
            times[name].append(time_of_run(run, what_if, benchmark, division=row.division))
    found = {
        name: _at(row, times.get(name, ()), what_if, benchmark) for name, row in rows.found.items()
    }
    return BoardRows(benchmark, rows.kind, found)


def times_at(
    session: Session, divisions: Mapping[str, str], what_if: WhatIf, benchmark: Benchmark
) -> dict[str, list[RunTime]]:
    """Return the times of some submissions' runs, by their divisions: measured runs if any."""
    times: defaultdict[bool, defaultdict[str, list[RunTime]]]
    times = defaultdict(lambda: defaultdict(list))
    for name, is_measured, run in _read_curves(session, [Submission.id.in_(divisions)]):
        found = time_of_run(run, what_if, benchmark, division=divisions[name])
        times[is_measured][name].append(found)
    return times[False] | times[True]


def _read_curves(session: Session, which: Sequence[ColumnElement[bool]]) -> Iterator[OneCurve]:
    statement = (
        select(RunRow.submission_id, RunRow.file, RunRow.reached, cast(RunRow.curve, Text))
        .join(Submission, Submission.id == RunRow.submission_id)
        .where(*which)
        .order_by(RunRow.submission_id, RunRow.index)
        .execution_options(yield_per=CURVES_AT_ONCE)
    )
    for submission_id, file, reached, curve in session.execute(statement):
        yield submission_id, False, StoredRun(file, reached, curve)
    measured = measured_runs(session, *which, Submission.evidence == "measured")
    reports = session.execute(
        select(Verification.id, cast(Verification.report, Text))
        .where(Verification.id.in_({r.verification_id for runs in measured.values() for r in runs}))
        .execution_options(yield_per=CURVES_AT_ONCE)
    )
    trained = {
        (verification_id, run["index"]): _measured_run(run)
        for verification_id, report in reports
        for run in (orjson.loads(report or "null") or {"runs": ()})["runs"]
    }
    for name, runs in measured.items():
        for run in runs:
            if (found := trained.get((run.verification_id, run.index))) is not None:
                yield name, True, found


def _measured_run(run: Mapping[str, Any]) -> StoredRun:
    names = ("epoch", "seconds", "quality", "samples", "ledger")
    curve = [[item[name] for name in names] for item in run["evaluations"]]
    return StoredRun(f"run_{run['index']}.log", run["status"] == "reached", orjson.dumps(curve))


def _at(row: BoardRow, times: Sequence[RunTime], what_if: WhatIf, benchmark: Benchmark) -> BoardRow:
    is_measured, behind = row.is_measured, row.behind
    found = time_of_set(times, what_if, benchmark, factor=row.factor, is_measured=is_measured)
    tta, low, high = found["tta_seconds"], None, None
    if tta is not None:
        interval = interval_of(tta, runs=behind.runs, dropped=behind.dropped, spread=behind.spread)
        low, high = (None, None) if interval is None else (interval.low, interval.high)
    cost = training_cost_usd(tta, row.price_usd_per_hour)
    changed = found | {
        "tta_low_seconds": low,
        "tta_high_seconds": high,
        "rcp": row["rcp"] if what_if.own_target else None,
        "cost_usd": cost,
        # They count to the official target on the official clock.
        "samples_per_second": None,
        "energy_joules": None,
        "energy_kwh": None,
    }
    if is_measured:
        of_measured = ("measured_seconds", "measured_low_seconds", "measured_high_seconds")
        changed |= dict(zip(of_measured, (tta, low, high), strict=True))
    reasons = (time.reason for time in times if time.reason is not None)
    return replace(
        row,
        tta_seconds=tta,
        cost_usd=cost,
        energy_joules=None,
        shown=dict(row.shown) | changed,
        no_time_because=next(reasons, None) if times else NO_CURVES,
    )


def price_view(price: OtherPrice) -> BoardPriceView:
    """Describe the prices that replace the official ones, also in a sentence."""
    if isinstance(price, date):
        note = (
            f"rented systems are at the price book's prices of {price.isoformat()}, the others as "
            "stated."
        )
    else:
        # Whole cents if that is the price, else every digit.
        dollars = f"${price:.2f}" if round(price, 2) == price else f"${price:g}"
        note = (
            f"at {dollars} per accelerator-hour. A system that states no accelerators counts as "
            "one."
        )
    return BoardPriceView(
        usd_per_accelerator_hour=None if isinstance(price, date) else price,
        prices_on=price if isinstance(price, date) else None,
        note=f"Not the official costs: {note}",
    )


def priced(row: BoardRow, price: OtherPrice, book: PriceBook) -> BoardRow:
    """Return the row with its time at other prices."""
    number, why = None, None
    if isinstance(price, date):
        of_class = row.hardware_class if row.is_measured else None
        found = price_of_class(of_class, row["system"], book, on=price)
        usd_per_hour, why = found.usd_per_hour, why_price_unranked(found, row.evidence)
        number = None if found.entry is None else found.entry.id
    else:
        accelerators = row["system"]["accelerator_count"] or 0
        usd_per_hour = system_price_usd_per_hour(price, accelerators)
    cost = training_cost_usd(row.tta_seconds, usd_per_hour)
    return replace(
        row,
        cost_usd=cost,
        price_unranked=why,
        shown=dict(row.shown) | {"cost_usd": cost, "cost_price": number},
    )
