"""The MLLOG lines of a block all at once, where a look at them together finds each in order.

Most logs have no other lines. Evaluations that Finishline wrote are found whole; the other lines
become one JSON text, and one check for each column takes little more than half the time of looking
at one line after the other.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any

import orjson

from rules.logs.blocks import MAX_MLLOG_LINE_BYTES, Block
from rules.logs.mllog_record import MAX_KEY_LENGTH, MAX_TIME_MS, MllogRecord, record_of
from rules.logs.mllog_whole_evaluation import (
    WHOLE_EVALUATION,
    MllogItem,
    read_whole_evaluations,
)

_LINES = re.compile(rb":::MLLOG(?:" + WHOLE_EVALUATION + rb"|(.*+))")
_TEXT = _LINES.groups  # The group of any other line: the text after its mark.


def read_at_once(block: Block) -> list[MllogItem] | None:
    """All MLLOG lines of a block in their order, None if one of them is to be looked at by itself.

    Whatever passes has the same records by `read_record`, line by line.
    """
    if b"\r" in block.content:  # It ends a line too.
        return None
    found = list(_LINES.finditer(block.content))
    records = _records([line for line in found if line.lastindex == _TEXT], block)
    evaluations = read_whole_evaluations([each for each in found if each.lastindex != _TEXT], block)
    if records is None or evaluations is None:
        return None
    single: Iterator[MllogItem] = iter(records)
    whole: Iterator[MllogItem] = iter(evaluations)
    return [next(single if each.lastindex == _TEXT else whole) for each in found]


def _records(lines: Sequence[re.Match[bytes]], block: Block) -> list[MllogRecord] | None:
    texts = [line[_TEXT] for line in lines]
    joined = b",\n".join(texts)
    tables = _tables(texts, joined)
    if tables is None:
        return None
    try:
        keys = [table["key"] for table in tables]
        times = [table["time_ms"] for table in tables]
        metadata = [table["metadata"] for table in tables]
        sound = _are_keys(set(keys)) and _are_times(times) and set(map(type, metadata)) <= {dict}
    except (LookupError, TypeError):
        return None
    # Each key is followed by a colon: no more colons than keys in all, and no line repeats one.
    if not sound or joined.count(b":") != sum(map(len, tables)) + sum(map(len, metadata)):
        return None
    offsets = [line.start() for line in lines]
    values = [table.get("value") for table in tables]
    points = [table.get("event_type") == "POINT_IN_TIME" for table in tables]
    return list(map(record_of, zip(repeat(block), offsets, keys, times, values, metadata, points)))


def _tables(texts: Sequence[bytes], joined: bytes) -> list[dict[str, Any]] | None:
    """The table of each text, None where there may be another number of them in one.

    `joined` is the texts with a comma and a line end between each two. No string goes on behind a
    line end, no list is open there, and an object does not go on with the brace that each text
    begins with: so a text is one value or several, and as many values as texts are one in each.
    """
    if (
        b"[" in joined
        or joined.count(b"{") != 2 * len(texts)  # A table in a table is found out before parsing.
        or not {text[:2] for text in texts} <= {b" {"}
        or max(map(len, texts), default=0) > MAX_MLLOG_LINE_BYTES
    ):
        return None
    try:
        tables: list[dict[str, Any]] = orjson.loads(b"[" + joined + b"]")
    except orjson.JSONDecodeError:
        return None
    return tables if len(tables) == len(texts) else None


def _are_keys(keys: set[Any]) -> bool:
    return all(type(key) is str and 0 < len(key) <= MAX_KEY_LENGTH for key in keys)


def _are_times(times: Sequence[Any]) -> bool:
    if not set(map(type, times)) <= {int, float}:
        return False
    return not times or (min(times) >= 0 and max(times) <= MAX_TIME_MS)
