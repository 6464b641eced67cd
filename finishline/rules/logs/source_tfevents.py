"""Read TensorBoard's event files: records with masked checksums, each an Event in protobuf.

Sources: tensorflow, lib/io/record_writer.h (the records), lib/hash/crc32c.h (the mask),
core/util/event.proto, core/framework/summary.proto and tensor.proto (the fields).
"""

import math
import struct
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from finishline.rules.errors import LogFormatError
from finishline.rules.logs.source import STEP, Row, Source

MOST_EVENTS = 1_000_000
LARGEST_RECORD = 256 * 1024 * 1024
# Scalars are small. Larger records are pictures and graphs, and are skipped.
LARGEST_SCALARS = 64 * 1024
MOST_VALUES = 1_000
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
# Types of a tensor, and how a number of each is packed.
PACKED = {1: "<f", 2: "<d"}
TIME, NO_TIME = "wall_time", struct.pack("<d", math.nan)


class Scalar(NamedTuple):
    """A number of an event file. The time is in seconds since 1970."""

    tag: str
    step: int
    seconds: float
    value: float


def read_tfevents(paths: Sequence[Path]) -> Source:
    """Read the scalars in the event files of one training. Raises LogFormatError.

    A resumed training writes another file, which holds from its first step on.
    """
    found: list[Scalar] = []
    begins: dict[str, int] = {}
    parts = [scalars for path in paths if (scalars := _read(path))]
    for scalars in sorted(parts, key=lambda each: each[0].seconds, reverse=True):
        found[:0] = [s for s in scalars if s.tag not in begins or s.step < begins[s.tag]]
        for tag, step, _, _ in scalars:
            begins[tag] = min(step, begins.get(tag, step))
    name = paths[0].name if len(paths) == 1 else paths[0].parent.name
    rows = [Row({s.tag: s.value, STEP: s.step, TIME: s.seconds}) for s in found]
    return Source(name, rows, [STEP, *begins], time=TIME)


def _read(path: Path) -> list[Scalar]:
    scalars: list[Scalar] = []
    number = 1
    try:
        with path.open("rb") as opened:
            for record in _records(opened):
                scalars += _scalars(record)
                number += 1
                if number > MOST_EVENTS:
                    raise ValueError(f"expected at most {MOST_EVENTS:,}")
    except (ValueError, struct.error) as error:
        fault = "cut off" if isinstance(error, struct.error) else error
        expected = "a whole event file of TensorBoard"
        raise LogFormatError(
            f"record {number}: {fault}", file=path.name, expected=expected
        ) from error
    return scalars


def _records(opened: BinaryIO) -> Iterator[bytes]:
    """Yield the content of each record, empty if too large for scalars. Raises at a wrong one."""
    while header := opened.read(12):
        length, check = struct.unpack("<QI", header)
        if masked_crc32c(header[:8]) != check:
            raise ValueError("wrong checksum of the length")
        if length > LARGEST_RECORD:
            raise ValueError(f"{length:,} bytes")
        is_small = length <= LARGEST_SCALARS
        content = opened.read(length) if is_small else b""
        if not is_small:
            opened.seek(length, 1)
        (check,) = struct.unpack("<I", opened.read(4))
        if is_small and masked_crc32c(content) != check:
            raise ValueError("wrong checksum")
        yield content


def _scalars(record: bytes) -> Iterator[Scalar]:
    """Yield an Event's scalars: wall_time is field 1, step 2, summary 5 with values in 1.

    Of a value the tag is field 1, simple_value 2, tensor 8.
    """
    fields = list(read_fields(record))
    event = {field[:2]: field[2] for field in fields}
    (seconds,) = struct.unpack("<d", event.get((1, FIXED64), NO_TIME))
    step = event.get((2, VARINT), 0)
    for _, _, summary in (field for field in fields if field[:2] == (5, BYTES)):
        for count, (number, kind, message) in enumerate(read_fields(summary)):
            if count >= MOST_VALUES:
                raise ValueError(f"more than {MOST_VALUES:,} values")
            if (number, kind) != (1, BYTES):
                continue
            value = {field[:2]: field[2] for field in read_fields(message)}
            tag = value.get((1, BYTES), b"").decode("utf-8", "replace")
            scalar = _scalar_of_tensor(value.get((8, BYTES), b""))
            if (2, FIXED32) in value:
                (scalar,) = struct.unpack("<f", value[2, FIXED32])
            if tag and scalar is not None:
                yield Scalar(tag, step, seconds, scalar)


def _scalar_of_tensor(message: bytes) -> float | None:
    """Read the number of a TensorProto: dtype is field 1, content 4, float_val 5, double_val 6."""
    packed, content = "", b""
    for number, kind, value in read_fields(message):
        if (number, kind) == (1, VARINT):
            packed = PACKED.get(value, "")
        elif number in (4, 5, 6) and kind != VARINT:
            content = value
    if not packed or len(content) != struct.calcsize(packed):
        return None
    return float(struct.unpack(packed, content)[0])


def read_fields(message: bytes) -> Iterator[tuple[int, int, Any]]:
    """Yield number, kind and value of each field of a protobuf message. Raises ValueError."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value, place = _varint(message, place)
            yield number, kind, value
            continue
        if kind == BYTES:
            length, place = _varint(message, place)
        elif kind in (FIXED64, FIXED32):
            length = 8 if kind == FIXED64 else 4
        else:
            raise ValueError(f"a field of kind {kind}")
        if length > len(message) - place:
            raise ValueError("a field that ends beyond its message")
        yield number, kind, message[place : place + length]
        place += length


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift, byte in enumerate(message[place : place + 10]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value & (2**64 - 1), place + shift + 1
    raise ValueError("a number without an end")


@cache
def _crc_table() -> list[int]:
    table = list(range(256))
    for _ in range(8):
        table = [byte >> 1 ^ (0x82F63B78 if byte & 1 else 0) for byte in table]
    return table


def masked_crc32c(content: bytes) -> int:
    """Compute Castagnoli's checksum (RFC 3720, B.4), turned and moved as records have it."""
    table, crc = _crc_table(), 0xFFFFFFFF
    for byte in content:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
