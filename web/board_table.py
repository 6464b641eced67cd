"""The table of a leaderboard: which columns it has, and the words in its cells."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from web.formats import number, significant

Entry = Mapping[str, Any]
_GAP = "\u00a0"
_JOULES = ((1e9, "GJ"), (1e6, "MJ"), (1e3, "kJ"))


@dataclass(frozen=True)
class Column:
    """A column by the name it is sorted by.

    It is left out of a board where no entry has one of the figures it `needs`; one without any
    always stands. `css` are the classes of its head.
    """

    name: str
    words: str
    css: str = ""
    needs: tuple[str, ...] = ()


TRAIN = (
    Column("rank", "#", "r rank"),
    Column("model", "Model", "model"),
    Column("submitter", "Submitter", "wide"),
    Column("system", "System", "wide"),
    Column("tta", "TTA, 95 % interval", "r"),
    Column("cost", "Cost", "r", ("cost_usd",)),
    Column("cv", "CV, runs", "r"),
    Column("latency", "Latency stated", "r", ("latency_ms",)),
    Column("measured_latency", "Latency measured", "r", ("measured_latency_ms",)),
    Column("energy", "Energy", "r", ("energy_joules",)),
    Column("epochs", "Epochs", "r", ("epochs_to_target",)),
    Column("samples", "Samples/s", "r", ("samples_per_second",)),
    Column("precision", "Precision", "", ("precision", "precision_measured")),
    Column("division", "Division", "", ("division",)),
    Column("status", "Evidence"),
    Column("date", "Date"),
)
INFERENCE = (
    Column("rank", "#", "r rank"),
    Column("model", "Model", "model"),
    Column("submitter", "Submitter", "wide"),
    Column("system", "Hardware", "wide"),
    Column("latency", "Latency", "r", ("latency_ms",)),
    Column("measured_latency", "Measured", "r", ("measured_latency_ms",)),
    Column("inference_cost", "Cost of 10,000", "r", ("cost_usd_per_10000",)),
    Column("quality", "Quality", "r", ("quality",)),
    Column("division", "Division", "", ("division",)),
    Column("status", "Evidence"),
    Column("date", "Date"),
)
NUMBERED, CLAIMED = "", "Claimed, not measured here"
LISTED = "Claimed: times are the submitters' own"
COLUMNS = {"train": TRAIN, "inference": INFERENCE}
FIGURES = frozenset(name for columns in COLUMNS.values() for c in columns for name in c.needs)


def present_figures(entries: Iterable[Entry]) -> frozenset[str]:
    """The figures that some entry has."""
    return frozenset(name for entry in entries for name in FIGURES if entry.get(name) is not None)


def board_columns(
    kind: str, present: Collection[str], divisions: Collection[str], *, counts: str = "epochs"
) -> list[Column]:
    """The columns of a board of a kind whose entries have these figures.

    Divisions are told apart where there are several. A benchmark that counts samples shows those in
    the place of epochs.
    """
    has = set(present) - {"division"} | ({"division"} if len(divisions) > 1 else set())
    if counts == "samples":
        has |= {"epochs_to_target"}
    shown = [c for c in COLUMNS[kind] if not c.needs or has.intersection(c.needs)]
    return [replace(c, words=counts.capitalize()) if c.name == "epochs" else c for c in shown]


def progress(entry: Entry) -> str:
    """The epochs of an entry to the target; its samples where the benchmark counts those."""
    samples = (entry.get("rcp") or {}).get("submission_mean")
    epochs = entry["epochs_to_target"]
    return number(samples, 9) if epochs is None else number(epochs, 3)


def columns_by_name(columns: Iterable[Column], quality_unit: str) -> dict[str, Any]:
    """What a row asks of its board: which columns there are, and the unit of a quality."""
    there = {column.name for column in columns}
    return {c.name: c.name in there for kind in COLUMNS.values() for c in kind} | {
        "quality_unit": quality_unit
    }


def board_sections(entries: Sequence[Entry]) -> dict[int, str]:
    """Headings of a board in the order of ranks, by the place of the entry below, from 0."""
    headings: dict[int, str] = {}
    before = NUMBERED
    for place, entry in enumerate(entries):
        section = _section(entry)
        if section != before:
            headings[place] = section
        before = section
    return headings


def _section(entry: Entry) -> str:
    if entry["rank"] is not None:
        return NUMBERED
    if entry.get("listed_rank") is not None:
        return LISTED
    return CLAIMED if entry.get("provisional_rank") is not None else "Not ranked"


def nothing_measured(entries: Sequence[Entry]) -> str | None:
    """What a board without any numbered row says above its claims; None of any other board."""
    claims = sum(_section(entry) in (LISTED, CLAIMED) for entry in entries)
    if not claims or any(entry["rank"] is not None for entry in entries):
        return None
    return f"Nothing measured yet. {claims:,} claim{'' if claims == 1 else 's'} below."


def hardware(system: Mapping[str, Any]) -> str:
    """The accelerators of a system and how many, or its name where it has none."""
    accelerator, count = system["accelerator"], system["accelerator_count"]
    if not accelerator:
        return str(system["name"])
    return f"{count}{_GAP}×{_GAP}{accelerator}" if count else str(accelerator)


def beside_hardware(system: Mapping[str, Any]) -> str | None:
    """What is said of a system beneath its hardware, None where that says it already."""
    if system["accelerator"]:
        return str(system["name"])
    processor, name = str(system["processor"] or ""), str(system["name"])
    return processor if processor and processor.casefold() not in name.casefold() else None


def energy(joules: float | None) -> str:
    """Joules with three significant digits, in the unit that leaves the fewest zeros."""
    if joules is None:
        return "–"
    scale, unit = next(((s, u) for s, u in _JOULES if joules >= s), (1.0, "J"))
    return f"{significant(joules / scale, 3)}{_GAP}{unit}"


def rate(per_second: float | None) -> str:
    """Something per second with three significant digits, in full."""
    return "–" if per_second is None else significant(per_second, 3)
