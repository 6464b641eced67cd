"""System descriptions of v0.6 that are the submission lines of a log: `org: {"value": "ACME"}`."""

import re
from typing import Any

from rules.errors import LogFormatError
from rules.logs.json_text import parse_json
from rules.system_description import SystemDescription, read_system, read_system_table

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
