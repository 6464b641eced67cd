"""Charts of hardware: speed-up with more accelerators, and the roofline of a worker."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from web.charts import parts as draw
from web.charts.parts import Chart, Row, Trace, View
from web.formats import DASH, TimeFormat, number, percent
from web.names import accelerator_of_system, byline
from web.progress import subject_of

NOTHING = (
    "This needs at least two ranked submissions by one submitter with different numbers of the "
    "same accelerator."
)
MOST_FAMILIES = 12


@dataclass(frozen=True)
class Step:
    """The fastest entry with so many accelerators.

    `speed_up` is in accelerators of the smallest system: twice as fast as 8 is 16.
    """

    entry: View
    accelerators: int
    speed_up: float
    efficiency: float


@dataclass(frozen=True)
class ScalingFamily:
    """Systems of one submitter with the same accelerator in one division, smallest first."""

    submitter: str
    accelerator: str
    division: str
    steps: tuple[Step, ...]


def scaling_families(board: View) -> list[ScalingFamily]:
    """The families of a board that have at least two sizes, those with the most sizes first."""
    found: defaultdict[tuple[str, str, str], dict[int, View]] = defaultdict(dict)
    for entry in board["entries"]:
        system = accelerator_of_system(entry["system"])
        count, name = system.count, system.model
        if entry["rank"] is None or not entry["tta_seconds"] or not count or not name:
            continue
        sizes = found[byline(entry), name, entry["division"]]
        if count not in sizes or entry["tta_seconds"] < sizes[count]["tta_seconds"]:
            sizes[count] = entry
    families = [
        ScalingFamily(*key, steps=_steps(sizes)) for key, sizes in found.items() if len(sizes) > 1
    ]
    return sorted(families, key=lambda family: -len(family.steps))


def _steps(sizes: Mapping[int, View]) -> tuple[Step, ...]:
    smallest = min(sizes)
    alone = smallest * sizes[smallest]["tta_seconds"]
    return tuple(
        Step(entry, count, alone / entry["tta_seconds"], alone / entry["tta_seconds"] / count)
        for count, entry in sorted(sizes.items())
    )


def scaling_chart(view: View) -> Chart:
    """Speed-up of each family against its accelerators, with the line of perfect scaling."""
    families, time = scaling_families(view["board"]), view["time"]
    rows = draw.entry_table(
        (
            draw.entry_row(
                step.entry,
                family.accelerator,
                family.division,
                str(step.accelerators),
                time(step.entry["tta_seconds"]),
                number(step.speed_up, 4),
                percent(100 * step.efficiency, 0),
            )
            for family in families
            for step in family.steps
        ),
        "Accelerator",
        "Division",
        figures=("Accelerators", "Time to accuracy", "Speed-up", "Efficiency"),
    )
    if not families:
        return draw.empty(NOTHING, rows)
    drawn = families[:MOST_FAMILIES]
    counts = [step.accelerators for family in drawn for step in family.steps]
    speeds = [step.speed_up for family in drawn for step in family.steps]
    ends = [min(counts), max(counts)]
    ideal = draw.line("ideal", ends, ends, "target", width=1.5, line={"dash": "dash"})
    note = f"{len(drawn)} of {len(families)} families shown: those with most sizes."
    return draw.chart(
        [ideal, *(_line(family, order, time) for order, family in enumerate(drawn))],
        rows,
        xaxis=draw.axis("Accelerators", **_doubling(counts)),
        yaxis=draw.axis("Speed-up (accelerators)", **_doubling([*speeds, *ends])),
        height=440,
        meta={"note": note} if len(drawn) < len(families) else {},
    )


def _doubling(values: Sequence[float]) -> dict[str, Any]:
    """A logarithmic axis with doubling ticks, as sizes of systems mostly double."""
    powers = range(math.floor(math.log2(min(values))), math.ceil(math.log2(max(values))) + 1)
    return {"type": "log", "tickmode": "array", "tickvals": [2.0**power for power in powers]}


def _line(family: ScalingFamily, order: int, time: TimeFormat) -> Trace:
    marks = draw.series_marks(order)
    return draw.dots(
        draw.label(f"{family.submitter}, {family.accelerator}"),
        [step.accelerators for step in family.steps],
        [step.speed_up for step in family.steps],
        order,
        symbol=marks["symbol"],
        size=9,
        mode="lines+markers",
        line={"dash": marks["dash"]},
        text=[_text(family, step, time) for step in family.steps],
        customdata=[draw.address_of(step.entry) for step in family.steps],
    )


def _text(family: ScalingFamily, step: Step, time: TimeFormat) -> str:
    lines = (
        draw.label(f"{family.submitter}, {step.accelerators} × {family.accelerator}"),
        draw.plain(step.entry["system"]["name"], longest=60),
        f"{time(step.entry['tta_seconds'])}, {percent(100 * step.efficiency, 0)} of ideal",
    )
    return "<br>".join(lines)


DECADES = 10.0
FALLBACK = (0.1, 1000.0)
GIGA_IN_TERA = 1_000.0


def roofline_chart(found: View) -> Chart:
    """TFLOP/s against FLOP per byte of each attempt, under a roof for each floating type.

    A roof is a slope where the memory's bandwidth binds, then flat. It is flat without a bandwidth.
    """
    low, high = _span(found)
    traces = [
        _roof(order, roof, found["copy_gb_per_second"], low, high)
        for order, roof in enumerate(found["roofs"])
    ]
    points = found["points"]
    if points:
        traces.append(
            draw.dots(
                "training of an attempt",
                [point["intensity"] for point in points],
                [point["achieved_tflops"] for point in points],
                "front",
                symbol="diamond",
                size=10,
                edge=1,
                text=[f"{draw.label(subject_of(p))} ({draw.plain(_type(p))})" for p in points],
                hover="%{text}<br>%{y:.3~g} TFLOP/s at %{x:.3~g} FLOP per byte<extra></extra>",
            )
        )
    return draw.chart(
        traces,
        draw.table(
            _roofline_rows(points),
            "Training",
            "Type",
            "Bound by",
            figures=("FLOP per byte", "Reached", "Attainable", "Share"),
        ),
        xaxis=draw.axis("Intensity (FLOP per byte)", type="log"),
        yaxis=draw.axis("Arithmetic (TFLOP/s)", type="log"),
        height=380,
    )


def _type(point: View) -> str:
    return str(point["precision"] or "type not known")


def _roofline_rows(points: Iterable[View]) -> Iterable[Row]:
    for point in points:
        share, attainable = point["share_of_attainable"], point["attainable_tflops"]
        cells = (
            subject_of(point),
            _type(point),
            point["bound"] or DASH,
            number(point["intensity"], 3),
            f"{number(point['achieved_tflops'], 3)} TFLOP/s",
            DASH if attainable is None else f"{number(attainable, 3)} TFLOP/s",
            percent(None if share is None else 100 * share),
        )
        yield Row(cells, f"/verifications/{point['verification_id']}")


def _span(found: View) -> tuple[float, float]:
    """Range of the axis: from a decade below the leftmost mark to one above the rightmost."""
    bandwidth = found["copy_gb_per_second"]
    places = [point["intensity"] for point in found["points"]]
    if bandwidth:
        places += [GIGA_IN_TERA * roof["tflops"] / bandwidth for roof in found["roofs"]]
    if not places:
        return FALLBACK
    return min(places) / DECADES, max(places) * DECADES


def _roof(order: int, roof: View, bandwidth: float | None, low: float, high: float) -> Trace:
    top = roof["tflops"]
    x, y = [low, high], [top, top]
    if bandwidth:
        x = [low, GIGA_IN_TERA * top / bandwidth, high]
        y = [low * bandwidth / GIGA_IN_TERA, top, top]
    name = f"roof, {draw.plain(roof['precision'])}"
    dash = draw.SERIES_DASHES[order % len(draw.SERIES_DASHES)]
    hover = f"%{{y:.3~g}} TFLOP/s<extra>{name}</extra>"
    return draw.line(name, x, y, order, hover=hover, line={"dash": dash})
