"""Citations of a submission in BibTeX and plain text. Text of strangers is escaped."""

import re
from collections.abc import Mapping
from typing import Any

from web.formats import duration, milliseconds, moment
from web.verdicts import standing_words

View = Mapping[str, Any]
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


def bibtex(submission: View, address: str) -> str:
    """A @misc entry that BibTeX and biber read, whatever the names hold."""
    fields = {
        "author": f"{{{escape_tex(submission['submitter'])}}}",
        "title": f"{{{escape_tex(_title(submission))}}}",
        "year": str(submission_year(submission)),
        "howpublished": rf"\url{{{_escaped(address, _IN_ADDRESS)}}}",
        "note": escape_tex(_note(submission)),
    }
    key = "finishline-" + re.sub(r"[^A-Za-z0-9-]", "-", str(submission["id"]))
    lines = ",\n".join(f"  {name} = {{{value}}}" for name, value in fields.items())
    return f"@misc{{{key},\n{lines}\n}}"


def plain_citation(submission: View, address: str) -> str:
    """The same in a sentence."""
    return one_line(
        f"{submission['submitter']} ({submission_year(submission)}). {_title(submission)}. "
        f"{_note(submission)} {address}"
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
    return f"{submission['model']}: {what} on {submission['benchmark']}"


def _note(submission: View) -> str:
    version = f"{submission['benchmark']} {submission['benchmark_version']}"
    status = standing_words(submission)
    return f"{_figure(submission)}, {submission['division']} division, rules {version}, {status}."


def _figure(submission: View) -> str:
    result = submission["result"]
    if submission["kind"] == "inference":
        return f"Latency {milliseconds(result['latency_ms'])}"
    if result["tta_seconds"] is None:
        return "Target not reached"
    return f"Time to accuracy {duration(result['tta_seconds'])}"
