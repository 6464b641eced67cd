"""The chart of a leaderboard's times against a second figure."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from finishline.rules.ranking import POSSIBLE, evidence_words
from web.charts import parts as draw
from web.charts.parts import Chart, Table, Trace, View
from web.formats import DASH, TimeFormat, energy, milliseconds, money, number
from web.names import accelerator_of_system, hardware_words

VENDORS = ("NVIDIA", "AMD", "Google", "Intel")
MOST_POINTS = 500
FEWEST_POINTS = 2
ONE_POINT = "A chart needs two entries."


@dataclass(frozen=True)
class Against:
    """A figure that times are set against. Of `missing`, how a submission comes to have one."""

    label: str
    title: str
    key: str
    shown: Callable[[float | None], str]
    missing: str
    prefix: str = ""


AGAINST = {
    "cost": Against(
        "cost",
        "Cost to accuracy (USD)",
        "cost_usd",
        money,
        "No submission here has a price, so none has a cost. Try your own price on the board.",
        prefix="$",
    ),
    "energy": Against(
        "energy",
        "Energy to accuracy (joules)",
        "energy_joules",
        energy,
        "No energy is measured yet. A replay on a machine with an energy counter measures it.",
    ),
    "quality": Against(
        "quality",
        "Best quality",
        "quality",
        number,
        "No submission here states its best quality.",
    ),
    "latency": Against(
        "measured latency",
        "Latency of one item, as measured (ms)",
        "measured_latency_ms",
        milliseconds,
        "No latency is measured yet. An organiser can ask for it.",
    ),
}


def pareto_chart(view: View) -> Chart:
    """Time to accuracy against a second figure, with the entries that nothing beats in both."""
    against, time = view["against"], view["time"]
    ranked, kind = _ranked(view["board"]), AGAINST[against]
    known = _with_figure(ranked, kind)
    more_is_better = against == "quality" and view["target"]["direction"] == "higher"
    front = front_entries(known, kind.key, more_is_better=more_is_better)
    rows = _table(ranked, {entry["submission_id"] for entry in front}, kind, time)
    if len(known) < FEWEST_POINTS:
        return draw.empty(ONE_POINT if known else kind.missing, rows)
    drawn = thin_entries(known, front)
    step = draw.line(
        "Pareto front",
        [entry[kind.key] for entry in front],
        [entry["tta_seconds"] / time.scale for entry in front],
        "front",
        # Marks that are not seen, as large as the dots at the ends: names keep off those.
        mode="lines+markers+text",
        marker={"symbol": "line-ew", "size": 11, "opacity": 0},
        text=[draw.label(hardware_words(entry["system"])) for entry in front],
        textposition="top right",
        line={"shape": "vh" if more_is_better else "hv"},
    )
    places = [(e[kind.key], e["tta_seconds"] / time.scale, e) for e in drawn]
    note = f"{len(drawn):,} of {len(known):,} shown: the front and an even sample of the others."
    return draw.chart(
        [step, *_dots(places, kind, time)],
        rows,
        xaxis=draw.axis(kind.title, (e[kind.key] for e in known), tickprefix=kind.prefix),
        yaxis=draw.time_axis(time, "Time to accuracy", (e["tta_seconds"] for e in known)),
        height=420,
        meta={"note": note} if len(drawn) < len(known) else {},
    )


def known_figures(board: View) -> list[str]:
    """The second figures that at least two ranked entries of a board have."""
    ranked = _ranked(board)
    return [
        name for name, kind in AGAINST.items() if len(_with_figure(ranked, kind)) >= FEWEST_POINTS
    ]


def _ranked(board: View) -> list[View]:
    return [e for e in board["entries"] if e["rank"] is not None and e["tta_seconds"] is not None]


def _with_figure(ranked: Sequence[View], kind: Against) -> list[View]:
    least, most = POSSIBLE.get(kind.key, (-math.inf, math.inf))
    return [e for e in ranked if (at := e.get(kind.key)) is not None and least <= at <= most]


def _table(ranked: Sequence[View], front: set[str], kind: Against, time: TimeFormat) -> Table:
    """Every ranked entry with its time and its second figure, and whether it is on the front."""
    return draw.entry_table(
        (
            draw.entry_row(
                entry,
                evidence_words(entry),
                "on the front" if entry["submission_id"] in front else DASH,
                str(entry["rank"]),
                time(entry["tta_seconds"]),
                kind.shown(entry.get(kind.key)),
            )
            for entry in ranked
        ),
        "Status",
        "Front",
        figures=("Rank", "Time to accuracy", kind.title),
    )


def front_entries(entries: Iterable[View], key: str, *, more_is_better: bool = False) -> list[View]:
    """The entries that no other beats in both, by their second figure in rising order."""
    sign = -1.0 if more_is_better else 1.0
    front: list[View] = []
    best = (math.inf, math.inf)
    for entry in sorted(
        entries,
        key=lambda e: (e["tta_seconds"], sign * e[key], e["submitted_at"], e["submission_id"]),
    ):
        time, amount = entry["tta_seconds"], sign * entry[key]
        if amount < best[1] or (time, amount) == best:
            front.append(entry)
            best = (time, amount)
    return front if more_is_better else front[::-1]


def thin_entries(entries: Sequence[View], front: Sequence[View]) -> list[View]:
    """The front and an even sample of the others, in their order. All of them if they are few."""
    if len(entries) <= MOST_POINTS:
        return list(entries)
    names = {entry["submission_id"] for entry in front[:MOST_POINTS]}
    others = [entry for entry in entries if entry["submission_id"] not in names]
    sample = draw.even_sample(others, MOST_POINTS - len(names))
    names |= {entry["submission_id"] for entry in sample}
    return [entry for entry in entries if entry["submission_id"] in names]


def _group(entry: View) -> tuple[str, str]:
    return accelerator_of_system(entry["system"]).vendor or "other", draw.evidence_group(entry)


def _dots(
    places: Sequence[tuple[float, float, View]], kind: Against, time: TimeFormat
) -> list[Trace]:
    """Entries at their places, by vendor, the most frequent first, and by evidence."""
    vendors = Counter(_group(entry)[0] for _, _, entry in places)
    groups = [
        (vendor, status, [p for p in places if _group(p[2]) == (vendor, status)])
        for vendor, _ in vendors.most_common()
        for status in draw.SYMBOLS
    ]
    return [
        draw.dots(
            f"{vendor}, {status}",
            [x for x, _, _ in members],
            [y for _, y, _ in members],
            f"vendor-{vendor.lower() if vendor in VENDORS else 'other'}",
            symbol=draw.SYMBOLS[status],
            text=[_entry_text(entry, kind, time) for _, _, entry in members],
            customdata=[draw.address_of(entry) for _, _, entry in members],
        )
        for vendor, status, members in groups
        if members
    ]


def _entry_text(entry: View, kind: Against, time: TimeFormat) -> str:
    spread = time.interval(entry["tta_low_seconds"], entry["tta_high_seconds"])
    amount = entry.get(kind.key)
    return draw.told(
        entry,
        time(entry["tta_seconds"]) + (f" ({spread})" if spread else ""),
        "no price stated" if amount is None else f"{kind.label} {kind.shown(amount)}",
    )
