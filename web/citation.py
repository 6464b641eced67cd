"""A submission cited elsewhere: a badge for a README as an SVG of its own, BibTeX, plain text.

Text of strangers is escaped.
"""

import html
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from finishline.rules.ranking import check_of_row, is_entry, ranked_seconds
from web.formats import SECONDS, TimeFormat, milliseconds, moment
from web.names import byline, hardware, row_name
from web.verdicts import standing_words

View = Mapping[str, Any]
# Each is dark enough for white text on it: a contrast of at least 4.5 to 1.
COLOURS = {
    "measured": "#126b3a",
    "published": "#0a5a88",
    "claimed": "#5a6169",
    "contradicted": "#b0261c",
}
LABEL_COLOUR = "#30363c"
HEIGHT, PADDING, FONT_PIXELS = 20, 7, 11
_LONGEST_LABEL = 60
# Advance widths of Verdana's printable ASCII, from the space on, in 1/2048 of the font's size.
_ASCII_WIDTHS = (
    720, 806, 940, 1676, 1302, 2204, 1488, 550, 930, 930, 1302, 1676, 745, 930, 745, 930,
    1302, 1302, 1302, 1302, 1302, 1302, 1302, 1302, 1302, 1302, 930, 930, 1676, 1676, 1676, 1117,
    2048, 1400, 1404, 1430, 1578, 1295, 1177, 1588, 1539, 862, 931, 1419, 1140, 1726, 1532, 1612,
    1235, 1612, 1424, 1400, 1262, 1499, 1400, 2025, 1403, 1260, 1403, 930, 930, 930, 1676, 1302,
    1302, 1230, 1276, 1067, 1276, 1220, 720, 1276, 1296, 562, 705, 1212, 562, 1992, 1296, 1243,
    1276, 1276, 874, 1067, 807, 1296, 1212, 1676, 1212, 1212, 1076, 1300, 930, 1300, 1676,
)  # fmt: skip
_OTHER_WIDTHS = {"·": 745, "…": 1676, "–": 1302}
_UNPRINTABLE = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def badge_words(submission: View, time: TimeFormat = SECONDS, of: int = 0) -> tuple[str, str]:
    """Both halves of a submission's badge, `of` so many numbered; a claim shows no time."""
    rank = submission.get("rank") if of else None
    place = None if rank is None or submission["withdrawal"] else f"#{rank} of {of:,}"
    parts = (standing_words(submission), figure(submission, time), place)
    right = " · ".join(part for part in parts if part).replace("\u00a0", " ")
    return cut(printable(submission["benchmark"]), _LONGEST_LABEL), right


def badge_endpoint(submission: View, time: TimeFormat = SECONDS, *, of: int = 0) -> dict[str, Any]:
    """The badge for a page that draws it itself, as shields.io's endpoint badge asks for it."""
    label, message = badge_words(submission, time, of)
    colours = {"labelColor": LABEL_COLOUR, "color": _colour(submission)}
    return {"schemaVersion": 1, "label": label, "message": message, **colours}


def badge_svg(submission: View, time: TimeFormat = SECONDS, *, of: int = 0) -> str:
    """The badge of a submission as a picture."""
    left, right = badge_words(submission, time, of)
    title = f"{printable(row_name(submission))} on {left}: {right}"
    return _drawn(left, right, title, _colour(submission))


def _colour(submission: View) -> str:
    if submission["withdrawal"]:
        return COLOURS["claimed"]
    if check_of_row(submission) == "contradicted":
        return COLOURS["contradicted"]
    return COLOURS[submission["evidence"]]


def figure(submission: View, time: TimeFormat) -> str | None:
    """The figure that ranks a submission first; None for a claim, because its time is not ours."""
    result = submission["result"]
    is_inference = submission["kind"] == "inference"
    if is_entry(submission):
        if not result["eligible"]:
            return "not ranked"
        return time(_time_of(submission)) if submission["evidence"] == "measured" else None
    if not (result["reached"] if is_inference else result["tta_seconds"] is not None):
        return "target not reached"
    if not result["eligible"]:
        return "not ranked"
    if submission["evidence"] == "claimed":
        return None
    return milliseconds(result["latency_ms"]) if is_inference else time(_time_of(submission))


def _time_of(submission: View) -> float | None:
    seconds = submission["result"].get("tta_seconds")
    return ranked_seconds({**submission, "tta_seconds": seconds})


def text_width(text: str) -> float:
    """Width of a text in pixels at the badge's size; other characters than ASCII at drawn width."""
    return sum(_width(character) for character in text) * FONT_PIXELS / 2048


def printable(text: object) -> str:
    """A text without the characters that XML cannot hold, on one line."""
    return " ".join(_UNPRINTABLE.sub("", str(text)).split())


def cut(text: str, longest: int) -> str:
    """A text of at most so many characters."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _width(character: str) -> int:
    place = ord(character) - 32
    if 0 <= place < len(_ASCII_WIDTHS):
        return _ASCII_WIDTHS[place]
    if character in _OTHER_WIDTHS:
        return _OTHER_WIDTHS[character]
    if unicodedata.combining(character) or unicodedata.category(character) == "Cf":
        return 0
    return 2048 if unicodedata.east_asian_width(character) in "WF" else 1302


def _drawn(left: str, right: str, title: str, colour: str) -> str:
    widths = [text_width(text) for text in (left, right)]
    places = [width + 2 * PADDING for width in widths]
    total = sum(places)
    texts = "".join(
        f'<text x="{start + PADDING:.1f}" y="14" textLength="{width:.1f}" '
        f'lengthAdjust="spacingAndGlyphs">{_svg_text(text)}</text>'
        for text, width, start in zip((left, right), widths, (0.0, places[0]), strict=True)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{total:.1f}" height="{HEIGHT}" '
        f'viewBox="0 0 {total:.1f} {HEIGHT}" role="img" aria-labelledby="t">'
        f'<title id="t">{_svg_text(title)}</title>'
        f'<clipPath id="r"><rect width="{total:.1f}" height="{HEIGHT}" rx="4"/></clipPath>'
        f'<g clip-path="url(#r)"><rect width="{total:.1f}" height="{HEIGHT}" '
        f'fill="{LABEL_COLOUR}"/><rect x="{places[0]:.1f}" width="{places[1]:.1f}" '
        f'height="{HEIGHT}" fill="{colour}"/></g>'
        '<g fill="#fff" font-family="Verdana,DejaVu Sans,Geneva,sans-serif" '
        f'font-size="{FONT_PIXELS}">{texts}</g></svg>\n'
    )


def _svg_text(text: str) -> str:
    return html.escape(text)


_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "–": "--",
}
_IN_ADDRESS = {"%": r"\%", "#": r"\#", "{": r"\{", "}": r"\}", "\\": "/"}


def bibtex(submission: View, address: str, time: TimeFormat = SECONDS) -> str:
    """A @misc entry that BibTeX and biber read, whatever the names hold."""
    fields = {
        "author": f"{{{escape_tex(byline(submission))}}}",
        "title": f"{{{escape_tex(_title(submission))}}}",
        "year": str(submission_year(submission)),
        "howpublished": rf"\url{{{_escaped(address, _IN_ADDRESS)}}}",
        "note": escape_tex(_note(submission, time)),
    }
    key = "finishline-" + re.sub(r"[^A-Za-z0-9-]", "-", str(submission["id"]))
    lines = ",\n".join(f"  {name} = {{{value}}}" for name, value in fields.items())
    return f"@misc{{{key},\n{lines}\n}}"


def plain_citation(submission: View, address: str, time: TimeFormat = SECONDS) -> str:
    """The same in a sentence."""
    return one_line(
        f"{byline(submission)} ({submission_year(submission)}). {_title(submission)}. "
        f"{_note(submission, time)} {address}"
    )


def submission_year(submission: View) -> int:
    """The year of a submission: of its archive where that names a day."""
    return moment(submission["submitted_on"] or submission["submitted_at"]).year


def escape_tex(text: object) -> str:
    """A stranger's text as TeX prints it: on one line, no character of it a command."""
    return _escaped(one_line(str(text)), _SPECIAL)


def one_line(text: str) -> str:
    """A text without line breaks and without characters that cannot be printed."""
    joined = " ".join(text.split())
    return "".join(character for character in joined if character.isprintable() or character == " ")


def _escaped(text: str, table: Mapping[str, str]) -> str:
    return "".join(table.get(character, character) for character in text)


def _title(submission: View) -> str:
    what = "inference" if submission["kind"] == "inference" else "time to accuracy"
    return f"{submission['model']} on {hardware(submission)}: {what} on {submission['benchmark']}"


def _note(submission: View, time: TimeFormat) -> str:
    version = f"{submission['benchmark']} {submission['benchmark_version']}"
    found, status = _figure(submission, time), standing_words(submission)
    return f"{found}, {submission['division']} division, rules {version}, {status}."


def _figure(submission: View, time: TimeFormat) -> str:
    result = submission["result"]
    if submission["kind"] == "inference":
        return f"Latency {milliseconds(result['latency_ms'])}"
    seconds = _time_of(submission)
    if seconds is None:
        return "No time measured" if is_entry(submission) else "Target not reached"
    return f"Time to accuracy {time(seconds)}"
