"""JSON written by strangers: no NaN, no deep nesting, no key that is there twice."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from rules.errors import LogFormatError

MAX_DEPTH = 32
_KEY = re.compile(rb'"([^"]*)"\s*:')


def parse_json(text: bytes, *, file: str, line: int | None = None) -> Any:
    """The value of a JSON text, bytes that are not UTF-8 replaced.

    `line` is where the text stands in its file, None if it is the file. Raises LogFormatError on
    broken JSON, on NaN, Infinity or a number no float can hold, and on deep nesting.
    """
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if (repaired := replace_bad_bytes(text)) != text:
            return parse_json(repaired, file=file, line=line)
        raise LogFormatError(
            f"broken JSON: {error.msg} (column {error.colno})",
            file=file,
            line=line or error.lineno,
            expected="JSON, in which NaN and Infinity are no numbers",
            code="bad_json",
        ) from error
    if text.count(b"[") + text.count(b"{") > MAX_DEPTH:
        _refuse_deep(value, file=file, line=line)
    return value


def replace_bad_bytes(text: bytes) -> bytes:
    """The text with every byte that is not UTF-8 replaced by the replacement character."""
    return text.decode("utf-8", "replace").encode("utf-8")


def refuse_repeated_keys(text: bytes, *, file: str, line: int | None = None) -> None:
    """Raise LogFormatError if one object of a text, which parsed, has a key twice.

    Readers differ in which of the two they believe. Without a backslash a look at the quotes
    settles most texts; only a key that two objects share, or an escape, needs the slow reading.
    """
    keys = _KEY.findall(text)
    if len(set(keys)) == len(keys) and b"\\" not in text:
        return

    def refuse_repeated(pairs: list[tuple[str, Any]]) -> None:
        for name, times in Counter(name for name, _ in pairs).most_common(1):
            if times > 1:
                raise LogFormatError(
                    f"a key that is there {times} times",
                    file=file,
                    line=line,
                    field=name[:100],
                    expected="each key once",
                    code="repeated_key",
                )

    json.loads(
        replace_bad_bytes(text), object_pairs_hook=refuse_repeated, parse_int=str, parse_float=str
    )


def _refuse_deep(value: Any, *, file: str, line: int | None) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in _children(node)]
        if not level:
            return
    raise LogFormatError(
        f"JSON nested more than {MAX_DEPTH} levels deep",
        file=file,
        line=line,
        expected=f"at most {MAX_DEPTH} levels",
        code="deep_json",
    )


def _children(node: Any) -> Iterator[Any]:
    inner: Iterable[Any] = ()
    if isinstance(node, dict):
        inner = node.values()
    elif isinstance(node, list):
        inner = node
    return iter(inner)
