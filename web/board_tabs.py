"""The tabs of a benchmark: its divisions, rounds and kinds, each of which is numbered apart."""

from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import quote

from web.board_table import METRICS, board_query
from web.home_words import round_name

Tab = tuple[str, str, bool]
# A division and a round; None where there is only one.
Part = tuple[str | None, str | None]


def board_tabs(
    benchmark: Mapping[str, Any],
    filters: Mapping[str, Any],
    kinds: Collection[str],
    shown: str,
) -> list[Tab]:
    """Each board of a benchmark: its words, the link to it, and whether it is the one shown.

    Closed is first, an archive last: `published` has the kinds and divisions that it has results
    of. Another kind keeps the text that was searched for.
    """
    tabs = []
    for kind in kinds:
        other = {"q": filters.get("q"), "metric": next(iter(METRICS[kind]))}
        kept = filters if kind == shown else other
        parts = _parts(benchmark, kind)
        for division, part in parts:
            link = "?" + board_query(kept, division=division, round=part)
            is_shown = kind == shown and (
                division in (None, filters.get("division")) and part in (None, filters.get("round"))
            )
            alone = kind == "inference" and len(benchmark["divisions"]) == 1
            words = _division_words(None if alone else division, kind, is_alone=len(kinds) == 1)
            if part == "archive":
                archives = sum(other == "archive" for _, other in parts)
                words = _archive_words(benchmark, kind, division if archives > 1 else None)
            tabs.append((words, link, is_shown))
    return tabs


def board_address(row: Mapping[str, Any]) -> str:
    """The address of the board that numbers a submission.

    Where one was measured its round comes first, and an archive has but one.
    """
    name, is_inference = str(row["benchmark"]), row.get("kind") == "inference"
    rounds = {} if name.startswith("mlperf-") else {"published": "archive", "claimed": "open"}
    query = board_query(
        {
            "metric": "latency" if is_inference else None,
            "division": row["division"],
            "round": rounds.get(str(row.get("evidence"))),
        }
    )
    return f"/benchmarks/{quote(name)}?{query}"


def _parts(benchmark: Mapping[str, Any], kind: str) -> list[Part]:
    divisions = sorted(benchmark["divisions"], key=lambda name: (name != "closed", name))
    published = benchmark.get("published", ()) if benchmark.get("round") else ()
    archives: list[Part] = [(name, "archive") for name in divisions if (kind, name) in published]
    if archives:
        return [*((name, "open") for name in divisions), *archives]
    return [(name, None) for name in divisions] if len(divisions) > 1 else [(None, None)]


def _division_words(division: str | None, kind: str, *, is_alone: bool) -> str:
    if kind == "inference":
        return f"Inference, {division}" if division else "Inference"
    return division.capitalize() if division else "Leaderboard" if is_alone else "Training"


def _archive_words(benchmark: Mapping[str, Any], kind: str, division: str | None) -> str:
    name = round_name({**benchmark, "round": "archive"})
    parts = ("Inference" if kind == "inference" else None, name, division)
    return ", ".join(part for part in parts if part)
