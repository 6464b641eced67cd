"""Check that the files of a submission agree: system descriptions, logs, folders."""

import math
import re
from collections.abc import Sequence
from typing import Any

from finishline.rules.archive.files import Archive, Problems, Severity, shown
from finishline.rules.archive.find import ResultSet
from finishline.rules.errors import LogFormatError, RuleError
from finishline.rules.logs.lines import is_number
from finishline.rules.logs.text import parse_json, refuse_repeated_keys
from finishline.rules.run import Run
from finishline.rules.submissions.claim import MOST_SCALING
from finishline.rules.submissions.descriptions import (
    SystemDescription,
    read_entry_system,
    read_system,
    read_system_table,
)
from finishline.rules.text import shown as shown_value

_LINE = re.compile(rb"^([a-z_]{1,40}): *(\{.{0,16000}\})\s*$", re.MULTILINE)
_NAMES = {"org": "submitter", "platform": "system_name"}
SAME_FACTOR = 1e-6
# Fields of a scaling.json that name its set.
NAMES_OF_SETS = {"benchmark", "system", "submitter", "path", "file", "files", "runs"}


def _read_logged_system(content: bytes, *, file: str) -> SystemDescription:
    """Read the system in a description of v0.6: a JSON object, or a line for each field."""
    if content.lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"{"):
        return read_system(content, file=file)
    table: dict[str, Any] = {}
    for name, text in _LINE.findall(content):
        value = parse_json(text, file=file).get("value")
        table[_NAMES.get(name.decode(), name.decode())] = value
    if not table:
        return read_system(content, file=file)
    entry = table.pop("entry", None)
    if type(entry) is str:  # The text that Python has for a table.
        try:
            entry = parse_json(entry.replace("'", '"').encode(), file=file)
        except LogFormatError:
            entry = None
    return read_system_table((entry if type(entry) is dict else {}) | table, file=file)


READERS = {"0.5": read_entry_system, "0.6": _read_logged_system}


def read_description(
    found: ResultSet, archive: Archive, version: str | None, problems: Problems
) -> SystemDescription | None:
    """Read the system description of a set: ORG/systems/SYSTEM.json, in v0.5 entry.json."""
    *organisation, _, system = found.system_place
    place = (*organisation, "systems", f"{system}.json")
    if version == "0.5":
        place = (*found.place[:-1], "entry.json")
    file = archive.find(place)
    if file is None:
        message = f"no system description of {shown(system)}"
        expected = shown("/".join(place[-3:]))
        problems.add("missing_system", message, found.path, expected=expected)
        return None
    try:
        read = READERS.get(version or "", read_system)
        description = read(archive.small(file), file=file.path)
    except RuleError as error:
        problems.report(error)
        return None
    for problem in description.problems:
        problems.report(problem, "warning")
    return description


def check_agreement(
    record: dict[str, Any],
    runs: Sequence[Run],
    description: SystemDescription | None,
    problems: Problems,
) -> None:
    """Note where logs differ from each other, from the path or from the system description.

    A set submitted as open is open even if its logs say closed, because open asks for less, unless
    the logs were compared with the reference as closed ones.
    """
    described = description and division_of(description)
    was_compared = record["rcp"] is not None and record["rcp"]["submission_mean"] is not None
    is_open = described == "open" and not was_compared
    of_division: Severity = "warning" if is_open else "error"
    for name, code, severity in (
        ("division", "wrong_division", of_division),
        ("batch_size", "batch_size_differs", "error"),
    ):
        first = next((run for run in runs if getattr(run, name) is not None), None)
        for run in runs:
            value, said = getattr(run, name), getattr(first, name, None)
            if first is not None and value not in (None, said):
                message = f"{name.replace('_', ' ')} {value!r}, but {said!r} in {first.name}"
                expected = "one in a set"
                problems.add(code, message, run.name, expected=expected, severity=severity)
    if description and described and record["division"] and described != record["division"]:
        message = f"the logs are of the {record['division']!r} division"
        expected = f"{description.division!r}, as in the system description"
        place = record["path"], "submission_division"
        problems.add("wrong_division", message, *place, expected, severity=of_division)
    if is_open:
        record["division"] = "open"
    logged = next((run for run in runs if run.organisation), None)
    if logged is not None and _plain(logged.organisation) != _plain(record["organisation"]):
        message = f"the log is of {logged.organisation!r}"
        expected = f"{record['organisation']!r}, as in the path"
        problems.warn("organisation_differs", message, logged.name, "submission_org", expected)


def division_of(description: SystemDescription) -> str | None:
    """Return the division in a system description, in the word of the rules."""
    said = (description.division or "").lower()
    return "closed" if said == "close" else said or None


def _plain(text: str | None) -> str:
    return re.sub(r"[^a-z0-9]", "", (text or "").lower())


def read_scaling(found: ResultSet, archive: Archive, problems: Problems) -> float | None:
    """Read the factor of a set's scaling.json, if it is usable."""
    file = archive.find((*found.place, "scaling.json"))
    if file is None:
        above = archive.find((*found.place[:-1], "scaling.json"))
        if above is not None:
            message = "a scaling.json beside no results, so it is not applied"
            expected = f"scaling.json in {shown(found.place[-1])}, beside the logs it is for"
            problems.warn("misplaced_scaling", message, above.path, expected=expected)
        return None
    try:
        content = archive.small(file)
        table = parse_json(content, file=file.path)
        refuse_repeated_keys(content, file=file.path)
    except LogFormatError as error:
        problems.report(error, "warning")
        return None
    fields = table if isinstance(table, dict) else {}
    factor, other = fields.get("scaling_factor"), _other_set(fields, found)
    if is_number(factor) and 1 <= factor <= MOST_SCALING and other is None:
        return float(factor)
    said = "no scaling_factor" if factor is None else f"scaling_factor is {shown_value(factor)}"
    message = f"{other or said}, so it is not applied"
    expected = f"a number from 1 to {MOST_SCALING:g}, for the logs beside it"
    problems.warn("bad_scaling", message, file.path, "scaling_factor", expected)
    return None


def _other_set(fields: dict[str, Any], found: ResultSet) -> str | None:
    own = {*found.place, *(file.name for file in found.runs)}
    for name in NAMES_OF_SETS & fields.keys():
        values = fields[name] if type(fields[name]) is list else [fields[name]]
        for value in values:
            if str(value).rpartition("/")[2] not in own:
                return f"it is for {shown_value(value)}"
    return None


def check_scaling(record: dict[str, Any], found: ResultSet, problems: Problems) -> None:
    """Note a believed factor, and a factor unlike the reference points'."""
    rcp, said = record["rcp"], record["scaling_json"]
    path = f"{found.path}/scaling.json"
    if rcp is not None and rcp["verdict"] == "published":
        message = f"multiplied by {said:.9g}, as scaling.json says"
        message += ": the reference points give no factor"
        problems.warn("scaling_believed", message, path, "scaling_factor")
    elif rcp is not None and not any(problem.file == path for problem in problems):
        ours = rcp["factor"] if rcp["verdict"] == "pass" else 1.0
        if not math.isclose(1.0 if said is None else said, ours, rel_tol=SAME_FACTOR):
            message = "no scaling.json" if said is None else f"scaling.json says {said:.9g}"
            expected = f"{ours:.9g}, from the logs"
            file = found.path if said is None else path
            problems.warn("scaling_differs", message, file, "scaling_factor", expected)
