"""The part of a ranked board that a query asks for, and the values that its filters may choose."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, get_args

from sqlalchemy.orm import Session

from finishline.rules.benchmarks.accelerators import NOT_STATED, SIZES, Accelerator
from finishline.rules.measurements import PrecisionName
from server.base.errors import ConflictError, ContentError
from server.boards.ranked import PlacedRow, RankedBoard
from server.boards.ranking import Standing
from server.boards.schemas import SORTED_FIGURES, Best, BoardQuery, SortColumn

# The narrowest type first; a measured precision replaces the claimed one.
PRECISIONS = {name: place for place, name in enumerate(reversed(get_args(PrecisionName)))}
STATUSES = ("verified", "verifying", "claimed", "inconclusive", "rejected")

FRAMEWORKS = (
    *("PyTorch", "TensorFlow", "JAX", "MXNet", "NeMo", "HugeCTR", "DGL", "PaddlePaddle"),
    *("MindSpore", "Caffe", "BigDL", "TensorRT", "Keras", "tinygrad", "numpy"),
)
_FRAMEWORK = re.compile(
    "|".join(rf"(?P<{name}>{name})" for name in FRAMEWORKS) + "|torch", re.IGNORECASE
)


@lru_cache(maxsize=4096)
def framework_family(text: str) -> str:
    """The framework that a text names first, without its version: "PyTorch" of "NGC pytorch 1.0".

    Of a text that names none of those known it is the first word.
    """
    if (found := _FRAMEWORK.search(text)) is not None:
        return found.lastgroup or "PyTorch"
    word = re.match(r"\W*([^\s,;/+(]+)", text)
    return word[1] if word else text


def _figure(name: str) -> Callable[[PlacedRow], Any]:
    return lambda row: row.figure(name)


def _progress(row: PlacedRow) -> Any:
    rcp = row.figure("rcp") or {}
    return row.figure("epochs_to_target") or rcp.get("submission_mean")


def _text(name: str) -> Callable[[PlacedRow], Any]:
    return lambda row: row.row.shown[name].casefold()


SORT_KEYS: dict[SortColumn, Callable[[PlacedRow], Any]] = {
    "rank": _figure("rank"),
    "model": _text("model"),
    "submitter": _text("submitter"),
    "division": _text("division"),
    "framework": _text("framework"),
    "system": lambda row: row.row.shown["system"]["name"].casefold(),
    "tta": lambda row: row.row.standing.tta_seconds,
    "epochs": _progress,
    "cost": lambda row: row.row.standing.cost_usd,
    "precision": lambda row: PRECISIONS.get(
        row.figure("precision_measured") or row.figure("precision")
    ),
    "status": lambda row: STATUSES.index(row.row.standing.status),
    "date": lambda row: row.row.standing.submitted_at,
    **{column: _figure(name) for column, name in SORTED_FIGURES.items()},
}
BEST_OF: dict[Best, Callable[[PlacedRow], str]] = {
    "submitter": lambda row: str(row.row.shown["submitter"]),
    "system": lambda row: str(row.row.shown["system"]["name"]),
    "accelerator": lambda row: row.row.accelerator.model or NOT_STATED,
}


def select_page(
    session: Session, board: RankedBoard, query: BoardQuery, start: int
) -> tuple[list[PlacedRow], int]:
    """The rows of a page that starts at a place, and how many there are on all pages."""
    stop = start + query.limit
    if not query.is_selective:
        return board.page(session, start, stop), len(board)
    chosen = _selected(board.all_rows(session), query)
    return chosen[start:stop], len(chosen)


def _selected(rows: Sequence[PlacedRow], query: BoardQuery) -> list[PlacedRow]:
    chosen = [row for row in rows if _matches(row, query)]
    if query.best is not None:
        chosen = _first_of_each(chosen, BEST_OF[query.best])
    if query.sort == "rank" and query.order == "asc":
        return chosen
    key = SORT_KEYS[query.sort]
    keyed = [(key(row), row) for row in chosen]
    present = [pair for pair in keyed if pair[0] is not None]
    present.sort(key=lambda pair: pair[0], reverse=query.order == "desc")
    return [row for _, row in present] + [row for value, row in keyed if value is None]


def _first_of_each(rows: Sequence[PlacedRow], name: Callable[[PlacedRow], str]) -> list[PlacedRow]:
    firsts: dict[str, PlacedRow] = {}
    for row in rows:
        firsts.setdefault(name(row), row)
    return list(firsts.values())


def _matches(placed: PlacedRow, query: BoardQuery) -> bool:
    row, shown = placed.row, placed.row.shown
    if query.status is not None and row.standing.status != query.status:
        return False
    for name in ("evidence", "check"):
        if getattr(query, name) not in (None, shown[name]):
            return False
    if query.framework not in (None, shown["framework"], framework_family(shown["framework"])):
        return False
    found = row.accelerator
    if query.vendor not in (None, found.vendor or NOT_STATED):
        return False
    if query.accelerator not in (None, found.model or NOT_STATED):
        return False
    if query.size not in (None, found.size):
        return False
    if query.ids is not None and row.standing.submission_id not in query.ids:
        return False
    wanted_class = query.hardware_class
    if wanted_class is not None and shown["system"]["hardware_class"] != wanted_class:
        return False
    day = row.standing.submitted_at[:10]
    if query.date_from is not None and day < query.date_from.isoformat():
        return False
    if query.date_to is not None and day > query.date_to.isoformat():
        return False
    return query.q is None or query.q.casefold() in row.search_text


def first_place(query: BoardQuery, version: int) -> int:
    """First place of the page that a query asks for, counted from 0."""
    if query.cursor is None:
        return (query.page - 1) * query.limit
    of_version, _, start = query.cursor.partition(".")
    if not (of_version.isascii() and of_version.isdigit() and start.isascii() and start.isdigit()):
        raise ContentError("Invalid cursor. Pass the next_cursor of the previous page.")
    if int(of_version) != version:
        raise ConflictError("The board has changed since that page. Start again without a cursor.")
    return int(start)


# Nobody reads a menu of thousands; values left out can be searched for.
MOST_CHOICES = 60
FIGURES = (
    *("tta_seconds", "epochs_to_target", "cost_usd"),
    *("precision", "precision_measured"),
    *SORTED_FIGURES.values(),
)
Counts = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Facets:
    """The values on a whole board with how many entries have each, the most frequent first.

    `accelerators` are models by vendor. `present` names the figures that some entry has;
    `qualities` are the lowest and the highest of the best qualities, `days` the first and the last
    day of a submission, `fastest_seconds` the shortest time of a numbered row.
    """

    divisions: Counts = ()
    evidences: Counts = ()
    accelerators: tuple[tuple[str, Counts], ...] = ()
    sizes: Counts = ()
    frameworks: Counts = ()
    present: frozenset[str] = field(default_factory=frozenset)
    qualities: tuple[float, float] | None = None
    days: tuple[str, str] | None = None
    fastest_seconds: float | None = None


def facets_of(session: Session, board: RankedBoard) -> Facets:
    """The values on a whole board, found once for each of its versions."""
    found: Facets = board.facets or _facets(board.all_rows(session), board.numbered())
    board.facets = found
    return found


def _facets(rows: Sequence[PlacedRow], numbered: Sequence[Standing]) -> Facets:
    shown = [placed.row.shown for placed in rows]
    accelerators = [placed.row.accelerator for placed in rows]
    sizes = Counter(one.size for one in accelerators)
    times = [one.tta_seconds for one in numbered if one.tta_seconds]
    qualities = [one["quality"] for one in shown if one["quality"] is not None]
    days = [placed.row.standing.submitted_at[:10] for placed in rows]
    return Facets(
        divisions=_counts(one["division"] for one in shown),
        evidences=_counts(one["evidence"] for one in shown),
        accelerators=_by_vendor(accelerators),
        sizes=tuple((name, sizes[name]) for name in SIZES if sizes[name]),
        frameworks=_counts(framework_family(one["framework"]) for one in shown),
        present=frozenset(
            name for name in FIGURES if any(row.figure(name) is not None for row in rows)
        )
        | ({"availability"} if any(one["system"]["availability"] for one in shown) else set()),
        qualities=(min(qualities), max(qualities)) if qualities else None,
        days=(min(days), max(days)) if days else None,
        fastest_seconds=min(times, default=None),
    )


def _by_vendor(accelerators: Sequence[Accelerator]) -> tuple[tuple[str, Counts], ...]:
    vendors = _counts(one.vendor or NOT_STATED for one in accelerators)
    return tuple(
        (
            vendor,
            _counts(
                one.model or NOT_STATED
                for one in accelerators
                if (one.vendor or NOT_STATED) == vendor
            ),
        )
        for vendor, _ in sorted(vendors, key=lambda item: item[0] == NOT_STATED)
    )


def _counts(values: Any) -> Counts:
    found = Counter(values)
    return tuple(sorted(found.items(), key=lambda item: (-item[1], item[0]))[:MOST_CHOICES])
