"""The name of a row on every page: count and accelerator, with its submitter and system."""

from collections.abc import Iterable, Mapping
from typing import Any

from finishline.rules.benchmarks.accelerators import hardware_words

View = Mapping[str, Any]


def hardware(row: View) -> str:
    """Count and accelerator of a row, as in "8 × V100"."""
    return str(row["hardware"]) if "hardware" in row else hardware_words(row["system"])


def byline(row: View) -> str:
    """Display name of a row's submitter, else the name of their account."""
    return str(row.get("display_name") or row["submitter"])


def named(account: str, display_name: str | None) -> str:
    """Both names of a person where they differ, as in "Ada Lovelace (ada)"."""
    return f"{display_name} ({account})" if display_name else account


def row_name(row: View) -> str:
    """The hardware of a row, its submitter and its system, as in "8 × V100 · NVIDIA DGX-1"."""
    system = row.get("system") or ""
    name = system["name"] if isinstance(system, Mapping) else system
    return f"{hardware(row)} · {byline(row)} {name}".strip()


def models_differ(rows: Iterable[View]) -> bool:
    """Whether the rows of a board train several models, so that each is worth telling."""
    return len({row["model"] for row in rows}) > 1


def models_lead(rows: Iterable[View]) -> bool:
    """Whether models tell the rows of a board apart and hardware, equal in all, does not."""
    rows = list(rows)
    return models_differ(rows) and len({hardware(row) for row in rows}) == 1
