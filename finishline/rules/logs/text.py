"""Check the text of logs: lines of bounded length, other kinds of text, JSON with its line."""

import json
import re
from collections import Counter
from contextlib import suppress
from typing import Any

import orjson

from finishline.rules.errors import LogFormatError
from finishline.rules.text import refuse_utf16

MAX_FILE_BYTES = 64 * 1024 * 1024
COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "zip",
    b"PK\x05\x06": "zip",
    b"PK\x07\x08": "zip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ\x00": "xz",
    b"BZh": "bzip2",
}
_MARK = re.compile(rb":::(?:MLLOG|MLL |MLPv0\.5)")
QUOTES = b'""'
_QUOTED_MARK = re.compile(rb'%b\s*\{\s*(?:\\|"")' % _MARK.pattern)
# Fields with the text of a line, as docker, Kubernetes, journald and clouds name them.
WRAPPERS = ("log", "message", "msg", "line", "text", "textpayload", "event")


def refuse_other_content(start: bytes, *, name: str) -> None:
    """Raise LogFormatError for large, empty, compressed or UTF-16 text, or lines in JSON or CSV."""
    if len(start) > MAX_FILE_BYTES:
        expected = f"at most {MAX_FILE_BYTES:,} bytes"
        raise LogFormatError(f"{len(start):,} bytes", file=name, expected=expected)
    if not start or start.isspace():
        raise LogFormatError(
            "an empty log", file=name, expected="one training run", code="empty_log"
        )
    for magic, kind in COMPRESSED.items():
        if start.startswith(magic):
            raise LogFormatError(
                f"{kind} compressed; send plain text",
                file=name,
                expected="a plain text log; unpack it first",
                code="compressed",
            )
    refuse_utf16(start, file=name, error=LogFormatError)
    _refuse_wrapped(start, name=name)


def _refuse_wrapped(content: bytes, *, name: str) -> None:
    """Raise LogFormatError if the first line with a mark, else the first line, is inside JSON."""
    mark = _MARK.search(content)
    place = mark.start() if mark else len(content) - len(content.lstrip())
    begin, end = content.rfind(b"\n", 0, place) + 1, content.find(b"\n", place)
    line = content[begin:end] if end >= 0 else content[begin:]
    table: Any = None
    if line.lstrip().startswith(b"{"):
        with suppress(orjson.JSONDecodeError):
            table = orjson.loads(line)
    for field, text in table.items() if isinstance(table, dict) else ():
        if not isinstance(text, str):
            continue
        # One word, as in {"event": "eval"}, is a value of a trainer's own line.
        is_line = len(text.split()) > 1 or text.endswith("\n")
        is_wrapper = field.casefold() in WRAPPERS and is_line
        if mark[0].decode() in text if mark else is_wrapper:
            message = (
                f"each line is inside JSON, in the field {field[:40]!r}, as docker writes logs"
            )
            expected = f"the lines alone, as `jq -r '.\"{field[:40]}\"' FILE` prints them"
            break
    else:
        quoted = _QUOTED_MARK.search(line)
        if quoted is None:
            return
        message = f"each line is inside {'CSV' if quoted[0].endswith(QUOTES) else 'JSON'}"
        expected = "the lines alone"
    number = content.count(b"\n", 0, begin) + 1
    raise LogFormatError(message, file=name, line=number, expected=expected, code="wrapped")


MAX_PLACEHOLDER_BYTES = 1000
_WORD = re.compile(r"[^\W\d_]{2,}")


def is_placeholder(content: bytes) -> bool:
    """Whether a few words replace a log.

    Published sets have them for runs that may be dropped. Log lines, tables and binary are broken.
    """
    if len(content) > MAX_PLACEHOLDER_BYTES or b":::ML" in content:
        return False
    try:
        text = content.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        return False
    is_text = all(word.isprintable() for word in text.split())
    return is_text and not text.startswith(("{", "[", "<")) and _WORD.search(text) is not None


MAX_LINE_BYTES = 1024 * 1024


def refuse_long_lines(content: bytes, *, file: str, limit: int = MAX_LINE_BYTES) -> None:
    """Raise LogFormatError if a line has more than `limit` bytes.

    Looks back from `limit` bytes ahead, to skip thousands of ordinary lines at once.
    """
    start = 0
    while len(content) - start > limit:
        end = content.rfind(b"\n", start, start + limit + 1)
        if end < 0:
            raise LogFormatError(
                f"a line of more than {limit:,} bytes",
                file=file,
                line=content.count(b"\n", 0, start) + 1,
                expected=f"at most {limit:,} bytes a line",
            )
        start = end + 1


MAX_DEPTH = 32
# Values for infinite numbers: as Python and C write them, and too large for a float.
_NOT_FINITE = re.compile(
    rb"([:\[,]\s*)-?(?i:nan|inf(?:inity)?|[0-9][0-9.]*e\+?[0-9]{3,})(?![0-9A-Za-z])"
)
_KEY = re.compile(rb'"([^"]*)"\s*:')


def parse_json(text: bytes, *, file: str) -> Any:
    """Read a JSON text, with bytes outside UTF-8 replaced. Raises LogFormatError.

    Its code is "not_finite" if NaN, Infinity or too large a number is the only fault.
    """
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        refuse_utf16(text, file=file, error=LogFormatError)
        if (repaired := replace_bad_bytes(text)) != text:
            return parse_json(repaired, file=file)
        code = "bad_json"
        with suppress(orjson.JSONDecodeError):
            # With 0 in place of NaN, infinities and numbers beyond a float.
            orjson.loads(_NOT_FINITE.sub(rb"\g<1>0", text))
            code = "not_finite"
        raise LogFormatError(
            f"broken JSON: {error.msg} (column {error.colno})",
            file=file,
            line=error.lineno,
            expected="JSON, which has no NaN or Infinity",
            code=code,
        ) from error
    if text.count(b"[") + text.count(b"{") > MAX_DEPTH:
        refuse_deep(value, file=file)
    return value


MAX_OBJECT_BYTES = 1024 * 1024


def parse_json_object(content: bytes, *, file: str) -> dict[str, Any]:
    """Read a JSON object of at most 1 MiB, also after a byte order mark. Raises LogFormatError."""
    if len(content) > MAX_OBJECT_BYTES:
        expected = f"at most {MAX_OBJECT_BYTES:,} bytes"
        raise LogFormatError(f"{len(content):,} bytes", file=file, expected=expected)
    value = parse_json(content.removeprefix(b"\xef\xbb\xbf"), file=file)
    if not isinstance(value, dict):
        raise LogFormatError("not a JSON object", file=file, line=1, expected="a JSON object")
    return value


def replace_bad_bytes(text: bytes) -> bytes:
    """Replace every byte outside UTF-8 by the replacement character."""
    return text.decode("utf-8", "replace").encode("utf-8")


def refuse_repeated_keys(text: bytes, *, file: str) -> None:
    """Raise LogFormatError if one object of a parsed text has a key twice.

    Readers differ in which of the two they believe. Without a backslash a look at the quotes
    settles most texts. Only a key that two objects share, or an escape, needs the slow reading.
    """
    keys = _KEY.findall(text)
    if len(set(keys)) == len(keys) and b"\\" not in text:
        return

    def refuse_repeated(pairs: list[tuple[str, Any]]) -> None:
        for name, times in Counter(name for name, _ in pairs).most_common(1):
            if times > 1:
                raise LogFormatError(
                    f"a key that appears {times} times",
                    file=file,
                    field=name[:100],
                    expected="each key once",
                    code="repeated_key",
                )

    json.loads(
        replace_bad_bytes(text), object_pairs_hook=refuse_repeated, parse_int=str, parse_float=str
    )


def refuse_deep(value: Any, *, file: str) -> None:
    """Raise LogFormatError if a JSON value is nested more than MAX_DEPTH levels deep."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for node in level
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
        ]
        if not level:
            return
    raise LogFormatError(
        f"JSON nested more than {MAX_DEPTH} levels deep",
        file=file,
        expected=f"at most {MAX_DEPTH} levels",
        code="deep_json",
    )
