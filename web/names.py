"""The name of a row on every page: count and accelerator, with its submitter and system."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from finishline.rules.benchmarks.accelerators import (
    NOT_STATED,
    PROCESSORS,
    Accelerator,
    accelerator_of,
    rented_of,
    stated_accelerator,
)
from finishline.rules.ranking import Row
from finishline.rules.text import unseen_gap_text

View = Mapping[str, Any]


def accelerator_of_system(system: Mapping[str, Any]) -> Accelerator:
    """The accelerators of a system: as stated, of its instance, or named in its prose."""
    if accelerator := system.get("accelerator"):
        return stated_accelerator(str(accelerator), system.get("accelerator_count") or None)
    if (cloud := system.get("cloud")) and (rented := rented_of(cloud)) is not None:
        return rented
    return _of_prose(str(system.get("name") or ""), str(system.get("processor") or ""))


@lru_cache(maxsize=4096)
def _of_prose(name: str, processor: str) -> Accelerator:
    found = [one for text in (name, processor) if (one := accelerator_of(text)).model is not None]
    if found:
        # A name such as a hardware class begins with "cpu": its processor says more.
        return next((one for one in found if one.model != PROCESSORS), found[0])
    # An entry of prose has it in both fields. Any other without accelerators trains on processors.
    is_prose = processor in (name, "", NOT_STATED)
    return Accelerator() if is_prose else Accelerator(PROCESSORS, PROCESSORS)


def hardware_words(system: Mapping[str, Any]) -> str:
    """The name of a system's row: "8 × V100", or the stated words if they hold no known name."""
    return accelerator_of_system(system).words


def hardware(row: View) -> str:
    """Count and accelerator of a row, as in "8 × V100"."""
    return str(row["hardware"]) if "hardware" in row else hardware_words(row["system"])


def byline(row: View) -> str:
    """Display name of a row's submitter, else the name of their account."""
    return str(row.get("display_name") or row["submitter"])


def named(account: str, display_name: str | None) -> str:
    """Both names of a person where they differ, as in "Ada Lovelace (ada)"."""
    return f"{display_name} ({account})" if display_name else account


def entry_title(row: View) -> str:
    """Title of a row: its model. MLPerf's results share a model: theirs is the hardware."""
    return hardware(row) if is_mlperf(row) else str(row["model"])


def is_mlperf(row: View) -> bool:
    """Whether a row is of a round of MLPerf."""
    return str(row.get("benchmark")).startswith("mlperf-")


def row_name(row: View) -> str:
    """The title of a row and its submitter. A result of MLPerf has its system too."""
    system = row.get("system") or ""
    name = system["name"] if isinstance(system, Mapping) else system
    return f"{entry_title(row)} by {byline(row)}" + (f", {name}" if is_mlperf(row) else "")


def separation_words(row: Row) -> str | None:
    """Sentence that a row and a better one are too close to tell, if they are."""
    number, gap = row.get("not_separated_from"), row.get("visible_gap_percent")
    if number is None or gap is None:
        return None
    place = "first place" if number == 1 else f"rank {number}"
    return f"too close to {place} to tell: {unseen_gap_text(gap)}"
