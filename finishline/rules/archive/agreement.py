"""Check that the files of a submission agree: system descriptions, logs, folders."""

import math
import re
from collections.abc import Sequence
from typing import Any

from finishline.rules.archive.files import Archive, shown
from finishline.rules.archive.problems import Problems, Severity
from finishline.rules.archive.submissions import ResultSet
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

MAX_DESCRIPTION_BYTES = 1024 * 1024
_LINE = re.compile(rb"^([a-z_]{1,40}): *(\{.{0,16000}\})\s*$", re.MULTILINE)
_NAMES = {"org": "submitter", "platform": "system_name"}


def read_logged_system(content: bytes, *, file: str) -> SystemDescription:
    """The system in a description of v0.6: a JSON object as ever, or a line for each field.

    Raises RuleError as read_system does.
    """
    if (
        content.lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"{")
        or len(content) > MAX_DESCRIPTION_BYTES
    ):
        return read_system(content, file=file)
    table: dict[str, Any] = {}
    for name, text in _LINE.findall(content):
        value = parse_json(text, file=file).get("value")
        table[_NAMES.get(name.decode(), name.decode())] = value
    if not table:
        return read_system(content, file=file)
    return read_system_table(_entry(table.pop("entry", None), file) | table, file=file)


def _entry(value: Any, file: str) -> dict[str, Any]:
    """The fields of `entry`, a table or the text that Python has for one."""
    if type(value) is str:
        try:
            value = parse_json(value.replace("'", '"').encode(), file=file)
        except LogFormatError:
            return {}
    return value if type(value) is dict else {}


SAME_FACTOR = 1e-6
# What a scaling.json may tell of the set that it is for.
NAMES_OF_SETS = {"benchmark", "system", "submitter", "path", "file", "files", "runs"}
READERS = {"0.5": read_entry_system, "0.6": read_logged_system}
DIVISION_CALLED = {"close": "closed"}


def read_description(
    found: ResultSet, archive: Archive, version: str | None, problems: Problems
) -> SystemDescription | None:
    """The system description of a set in a package: ORG/systems/SYSTEM.json, in v0.5 entry.json."""
    *organisation, _, system = found.system_place
    places = [(*organisation, "systems", f"{system}.json")]
    if version == "0.5":
        places = [(*found.place[:-1], "entry.json")]
    file = next((file for place in places if (file := archive.find(place))), None)
    if file is None:
        problems.add(
            "missing_system",
            f"no system description of {shown(system)}",
            file=found.path,
            expected=shown("/".join(places[0][-3:])),
        )
        return None
    try:
        read = READERS.get(version or "", read_system)
        description = read(archive.small(file), file=file.path)
    except RuleError as error:
        problems.report(error)
        return None
    for problem in description.problems:
        problems.reporter("warning")(problem)
    return description


def check_agreement(
    record: dict[str, Any],
    runs: Sequence[Run],
    description: SystemDescription | None,
    problems: Problems,
) -> None:
    """Note where logs differ from each other, from the path or from the system description."""
    declared = _declared_open(record, description)
    for name, code in (("division", "wrong_division"), ("batch_size", "batch_size_differs")):
        severity: Severity = "warning" if declared and name == "division" else "error"
        first = next((run for run in runs if getattr(run, name) is not None), None)
        for run in runs:
            value, said = getattr(run, name), getattr(first, name, None)
            if first is not None and value not in (None, said):
                message = f"{name.replace('_', ' ')} {value!r}, but {said!r} in {first.name}"
                problems.add(
                    code, message, file=run.name, expected="one in a set", severity=severity
                )
    _check_description(record, description, problems)
    if declared:
        record["division"] = "open"
    logged = next((run for run in runs if run.organisation), None)
    if logged is not None and _plain(logged.organisation) != _plain(record["organisation"]):
        problems.add(
            "organisation_differs",
            f"the log is of {logged.organisation!r}",
            file=logged.name,
            field="submission_org",
            expected=f"{record['organisation']!r}, as in the path",
            severity="warning",
        )


def read_scaling(found: ResultSet, archive: Archive, problems: Problems) -> float | None:
    """The factor of a set's scaling.json, None without one or where it cannot be used.

    It is written while results are reviewed, for a set that converged faster than the reference.
    """
    file = archive.find((*found.place, "scaling.json"))
    if file is None:
        above = archive.find((*found.place[:-1], "scaling.json"))
        if above is not None:
            problems.add(
                "misplaced_scaling",
                "a scaling.json beside no results, so it is not applied",
                file=above.path,
                expected=f"scaling.json in {shown(found.place[-1])}, beside the logs it is for",
                severity="warning",
            )
        return None
    try:
        content = archive.small(file)
        table = parse_json(content, file=file.path)
        refuse_repeated_keys(content, file=file.path)
    except LogFormatError as error:
        problems.reporter("warning")(error)
        return None
    fields = table if isinstance(table, dict) else {}
    factor, other = fields.get("scaling_factor"), _other_set(fields, found)
    if is_number(factor) and 1 <= factor <= MOST_SCALING and other is None:
        return float(factor)
    said = "no scaling_factor" if factor is None else f"scaling_factor is {shown_value(factor)}"
    problems.add(
        "bad_scaling",
        f"{other or said}, so it is not applied",
        file=file.path,
        field="scaling_factor",
        expected=f"a number from 1 to {MOST_SCALING:g}, for the logs beside it",
        severity="warning",
    )
    return None


def _other_set(fields: dict[str, Any], found: ResultSet) -> str | None:
    """What a scaling.json names that is not of its set."""
    own = {*found.place, *(file.name for file in found.runs)}
    for name in NAMES_OF_SETS & fields.keys():
        values = fields[name] if type(fields[name]) is list else [fields[name]]
        for value in values:
            if str(value).rpartition("/")[2] not in own:
                return f"it is for {shown_value(value)}"
    return None


def check_scaling(record: dict[str, Any], found: ResultSet, problems: Problems) -> None:
    """Note a factor that is believed, and one that is not the factor of the reference points."""
    rcp, said = record["rcp"], record["scaling_json"]
    path = f"{found.path}/scaling.json"
    if rcp is not None and rcp["verdict"] == "published":
        problems.add(
            "scaling_believed",
            f"multiplied by {said:.9g}, as scaling.json says: the reference points give no factor",
            file=path,
            field="scaling_factor",
            severity="warning",
        )
    elif rcp is not None and not any(problem.file == path for problem in problems):
        ours = rcp["factor"] if rcp["verdict"] == "pass" else 1.0
        if not math.isclose(1.0 if said is None else said, ours, rel_tol=SAME_FACTOR):
            problems.add(
                "scaling_differs",
                "no scaling.json" if said is None else f"scaling.json says {said:.9g}",
                file=found.path if said is None else path,
                field="scaling_factor",
                expected=f"{ours:.9g}, from the logs",
                severity="warning",
            )


def _check_description(
    record: dict[str, Any], description: SystemDescription | None, problems: Problems
) -> None:
    if description is None or not description.division or not record["division"]:
        return
    if division_called(description.division) != record["division"]:
        problems.add(
            "wrong_division",
            f"the logs are of the {record['division']!r} division",
            file=record["path"],
            field="submission_division",
            expected=f"{description.division!r}, as in the system description",
            severity="warning" if _declared_open(record, description) else "error",
        )


def division_called(text: str) -> str:
    """A division as a system description has it, in the word of the rules."""
    return DIVISION_CALLED.get(text.lower(), text.lower())


def _declared_open(record: dict[str, Any], description: SystemDescription | None) -> bool:
    """Whether a set is submitted to the open division, even if its logs say closed.

    To be open asks for less and is compared with less, so nothing is won by it; but where logs were
    compared with the reference as closed ones, the two must agree.
    """
    rcp = record["rcp"]
    if description is None or description.division is None:
        return False
    if rcp is not None and rcp["submission_mean"] is not None:
        return False
    return division_called(description.division) == "open"


def _plain(text: str | None) -> str:
    return re.sub(r"[^a-z0-9]", "", (text or "").lower())
