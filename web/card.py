"""The picture of a shared link: a board or a submission as a card of 1200 x 630."""

import html
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import resvg_py

from finishline.rules.ranking.evidence import (
    check_of_row,
    evidence_words,
    place_words,
    ranked_seconds,
)
from web.board_map import BoardMap
from web.citation import COLOURS, cut, figure, printable
from web.formats import TimeFormat, quality
from web.home_words import short_title
from web.names import byline, hardware

WIDTH, HEIGHT = 1200, 630
FONTS = sorted((Path(__file__).parent / "fonts").glob("*.ttf"))
INK, SOFT, LINE, PAGE = "#16191d", "#5a6169", "#dfdfd7", "#fbfbf8"
VENDORS = {
    "vendor-nvidia": "#3f7d00",
    "vendor-amd": "#c2410c",
    "vendor-google": "#1a5fd0",
    "vendor-intel": "#0f7f86",
    "vendor-other": "#55606b",
}
MOST_CARDS = 64
_MAP_ZOOM = 1.5

View = Mapping[str, Any]
_drawing = Lock()


@lru_cache(maxsize=MOST_CARDS)
def card_png(svg: str) -> bytes:
    """A card as PNG, drawn with the packaged font alone; one at a time."""
    with _drawing:
        return bytes(
            resvg_py.svg_to_bytes(
                svg_string=svg,
                skip_system_fonts=True,
                font_files=[str(path) for path in FONTS],
                font_family="DejaVu Sans",
                sans_serif_family="DejaVu Sans",
            )
        )


def board_card(
    benchmark: View, leader: View | None, time: TimeFormat, drawn: BoardMap | None
) -> str:
    """A board: its target, its leader with hardware and evidence, and its picture."""
    target = benchmark["target"]
    sign = "≥" if target["direction"] == "higher" else "≤"
    goal = f"{sign} {quality(target['value'], target['unit'])} {target['metric']}"
    lines = [_text(70, 235, goal, 34, SOFT, longest=40)]
    if leader is not None:
        words = f"{hardware(leader)} · {byline(leader)}"
        lines += _result(leader, time(ranked_seconds(leader)), words)
    else:
        lines.append(_text(70, 380, "Be the first.", 56, INK, bold=True))
    return _card(short_title(benchmark), [*lines, *(_picture(drawn) if drawn else [])])


def submission_card(submission: View, place: View | None, time: TimeFormat) -> str:
    """A submission: its hardware, its number on the board, and its time unless that is a claim."""
    number = place_words(place) if place else None
    of = f" of {place['ranked']}" if place and place["rank"] is not None else ""
    words = f"{byline(submission)} · {submission['system']['name']}"
    lines = [
        _text(70, 235, submission["benchmark"], 34, SOFT, longest=40),
        *_result(submission, figure(submission, time) or "not measured", words),
    ]
    if number:
        lines.append(_text(1130, 360, f"#{number}{of}", 64, INK, bold=True, anchor="end"))
    return _card(hardware(submission), lines)


def _result(row: View, time: str, words: str) -> list[str]:
    """A time, whose it is, and how it is known."""
    told = "contradicted" if check_of_row(row) == "contradicted" else row["evidence"]
    return [
        _text(70, 360, time, 84, INK, bold=True, longest=20),
        _text(70, 430, words, 34, INK, longest=44),
        f'<circle cx="84" cy="482" r="12" fill="{COLOURS[told]}"/>',
        _text(110, 493, evidence_words(row), 32, COLOURS[told], longest=50),
    ]


def _picture(drawn: BoardMap) -> list[str]:
    """The board's map to the right, without its ticks: a shared link is seen small."""
    marks = [
        f'<circle cx="{mark.x}" cy="{mark.y}" r="4.5" fill="{VENDORS[mark.css.split()[0]]}"/>'
        for mark in drawn.marks
    ]
    names = [
        f'<text x="{name.x}" y="{name.y}" font-size="11" font-weight="700" fill="{INK}" '
        f'text-anchor="{name.anchor}">{html.escape(name.text)}</text>'
        for name in drawn.names
    ]
    axis = f'<path d="M46 14V152H348" fill="none" stroke="{SOFT}"/>'
    front = f'<path d="{drawn.front}" fill="none" stroke="{SOFT}" stroke-dasharray="4 4"/>'
    place = f"translate(610 250) scale({_MAP_ZOOM})"
    return [f'<g transform="{place}">{axis}{front}{"".join((*marks, *names))}</g>']


def _card(title: str, lines: Sequence[str]) -> str:
    flag = "".join(
        f'<rect x="{70 + 12 * column}" y="{56 + 12 * row}" width="12" height="12" fill="{INK}"/>'
        for row in range(4)
        for column in range(4)
        if (row + column) % 2 == 0
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="DejaVu Sans"><rect width="{WIDTH}" height="{HEIGHT}" fill="{PAGE}"/>'
        f"{flag}{_text(136, 94, 'Finishline', 34, INK, bold=True)}"
        f"{_text(70, 185, title, 60, INK, bold=True, longest=30)}{''.join(lines)}"
        f'<path d="M70 560H1130" stroke="{LINE}" stroke-width="2"/>'
        f"{_text(70, 600, 'Time to accuracy, replayed', 26, SOFT)}</svg>"
    )


def _text(
    x: int,
    y: int,
    text: object,
    size: int,
    colour: str,
    *,
    bold: bool = False,
    anchor: str = "start",
    longest: int = 60,
) -> str:
    words = html.escape(cut(printable(str(text).replace("\u00a0", " ")), longest))
    weight = ' font-weight="700"' if bold else ""
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" fill="{colour}" text-anchor="{anchor}"{weight}>'
        f"{words}</text>"
    )
