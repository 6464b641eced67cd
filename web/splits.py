"""Split times, as at a running race: a replay beside a ghost, control point by control point."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from finishline.rules.text import count_text
from web.formats import DASH
from web.progress import expected_evaluations

View = Mapping[str, Any]

MOST_ROWS = 40
MINUS = "\u2212"


def chosen_ghost(race: View, wanted: str | None) -> View | None:
    """The ghost that is asked for, else the first; None where there is none."""
    ghosts: Sequence[View] = race["ghosts"]
    return next((one for one in ghosts if one["role"] == wanted), ghosts[0] if ghosts else None)


def ghost_label(ghost: View) -> str:
    """What a ghost is: whose run, or which mean."""
    whose = f"{ghost['model']} by {ghost['submitter']}"
    if ghost["role"] == "claim":
        runs = max((point["runs"] for point in ghost["points"]), default=0)
        return f"the claim, mean of {count_text(runs, 'run')}"
    if ghost["is_own"]:
        return "the claim's own median run: it holds the record"
    return f"the record, median run of {whose}"


def split_rows(verification: View, race: View, ghost: View) -> list[dict[str, Any]]:
    """One row for each control point, at most forty: the ghost there, and each run beside it.

    A run's cell is None where it has not got there; `seconds_off` below 0 is ahead of the ghost,
    `quality_off` is the run's quality less the ghost's.
    """
    there = {point["index"]: point for point in ghost["points"] if point["index"] is not None}
    curves = {run["index"]: run["evaluations"] for run in race["runs"]}
    longest = max((len(curve) for curve in curves.values()), default=0)
    last = max(longest, max(there, default=0), expected_evaluations(verification) or 0)
    step = max(1, math.ceil(last / MOST_ROWS))
    runs = sorted(set(range(verification["runs_planned"] or 0)) | set(curves))
    return [
        {
            "index": index,
            "ghost": there.get(index),
            "cells": [_cell(curves.get(run, ()), index, there.get(index)) for run in runs],
        }
        for index in range(step, last + 1, step)
    ]


def _cell(curve: Sequence[View], index: int, ghost: View | None) -> dict[str, Any] | None:
    if index > len(curve):
        return None
    at = curve[index - 1]
    return {
        "seconds": at["seconds"],
        "quality": at["quality"],
        "seconds_off": at["seconds"] - ghost["seconds"] if ghost else None,
        "quality_off": at["quality"] - ghost["quality"] if ghost else None,
    }


def signed(value: float | None, unit: str = "") -> str:
    """A difference with its sign: "−0.30 s"."""
    if value is None:
        return DASH
    size = f"{abs(value):.2f}"
    sign = "±" if float(size) == 0 else "+" if value > 0 else MINUS
    return f"{sign}{size}{unit}"


def off_class(value: float | None, *, lower_is_better: bool) -> str:
    """The class of a difference: whether it is ahead of the ghost, behind it, or neither."""
    if not value:
        return "is-level"
    return "is-ahead" if (value < 0) == lower_is_better else "is-behind"
