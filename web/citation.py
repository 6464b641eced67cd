"""A submission cited elsewhere: a badge for a README, BibTeX, plain text."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from finishline.rules.ranking import check_of_row, is_entry
from web.formats import SECONDS, TimeFormat, milliseconds, moment
from web.names import byline, hardware, row_name
from web.progress import standing_words

View = Mapping[str, Any]
# Each is dark enough for white text on it: a contrast of at least 4.5 to 1.
COLOURS = {
    "measured": "#126b3a",
    "published": "#0a5a88",
    "claimed": "#5a6169",
    "contradicted": "#b0261c",
}
_LONGEST_LABEL = 60
# Characters that XML 1.0 does not allow in a text. A stranger's name may hold anything.
NOT_IN_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Badge:
    """Both halves of a badge, what it is of, and the colour of its right half."""

    label: str
    message: str
    title: str
    colour: str
    label_colour: str = "#30363c"

    def endpoint(self) -> dict[str, Any]:
        """The badge for a page that draws it itself, as shields.io's endpoint badge asks for it."""
        colours = {"labelColor": self.label_colour, "color": self.colour}
        return {"schemaVersion": 1, "label": self.label, "message": self.message, **colours}


def badge(submission: View, time: TimeFormat = SECONDS, *, of: int = 0) -> Badge:
    """The badge of a submission, `of` so many numbered. A claim shows no time."""
    rank = submission.get("rank") if of else None
    place = None if rank is None or submission["withdrawal"] else f"#{rank} of {of:,}"
    parts = (standing_words(submission), figure(submission, time), place)
    message = " · ".join(part for part in parts if part).replace("\u00a0", " ")
    left = cut(printable(submission["benchmark"]), _LONGEST_LABEL)
    title = f"{printable(row_name(submission))} on {left}: {message}"
    word = submission["evidence"]
    if submission["withdrawal"]:
        word = "claimed"
    elif check_of_row(submission) == "contradicted":
        word = "contradicted"
    return Badge(left, message, title, COLOURS[word])


def figure(submission: View, time: TimeFormat) -> str | None:
    """The figure that ranks a submission first. None for a claim, because its time is not ours."""
    result = submission["result"]
    is_inference = submission["kind"] == "inference"
    has_reached = result["reached"] if is_inference else result["tta_seconds"] is not None
    if not has_reached and not is_entry(submission):
        return "target not reached"
    if not result["eligible"]:
        return "not ranked"
    if submission["evidence"] == "claimed":
        return None
    return milliseconds(result["latency_ms"]) if is_inference else time.ranked(_row(submission))


def _row(submission: View) -> View:
    """The submission with the figures of its logs, as a row has them."""
    result = submission["result"]
    figures = {"tta_seconds": result.get("tta_seconds"), "quality": result.get("best_quality")}
    return {**submission, **figures}


def printable(text: object) -> str:
    """A text of the characters that XML can hold, on one line."""
    return " ".join(NOT_IN_XML.sub("", str(text)).split())


def cut(text: str, longest: int) -> str:
    """A text of at most so many characters."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


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
    """A text of printable characters on one line."""
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
    row = _row(submission)
    if time.figure(row) is None:
        return "No time measured" if is_entry(submission) else "Target not reached"
    what = "Time to accuracy" if time.quality_unit is None else time.title
    return f"{what} {time.ranked(row)}"
