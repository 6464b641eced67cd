"""Read a zip that every program reads alike: entries without gaps, told twice in equal words.

Refused: a name that is there twice, entries that overlap or leave gaps, bytes before the first or
behind the last, a local header unlike the central one, encryption, zip64, extra fields, comments.
"""

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass

from finishline.rules.errors import RuleError
from finishline.rules.text import count_text

LOCAL = struct.Struct("<4s5H3I2H")
CENTRAL = struct.Struct("<4s6H3I5H2I")
END = struct.Struct("<4s4H2IH")
# Bits of a header's flags that change nothing: how hard it was packed, and names in UTF-8.
HARMLESS_FLAGS = 0x0806
STORED, DEFLATED = 0, 8

Limit = Callable[[str], int]


@dataclass(frozen=True)
class _Entry:
    """An entry of the directory: its name, its place, and what both of its headers say."""

    name: bytes
    start: int
    told: tuple[int, ...]  # version, flags, method, time, date, CRC, two sizes, name's length

    @property
    def label(self) -> str:
        return self.name.decode("ascii")


def read_zip(
    content: bytes, *, limit_of: Limit, most_files: int, most_bytes: int
) -> dict[str, bytes]:
    """The files of a zip by name; `limit_of` a name is the most bytes of it. Raises RuleError."""
    try:
        entries, directory = _read_directory(content, most_files)
        files: dict[str, bytes] = {}
        end, left = 0, most_bytes
        for entry in entries:
            limit = min(limit_of(entry.label), left)
            if entry.label in files:
                raise _fault("appears twice", "each file once", entry.label)
            if entry.told[7] > limit:
                raise _fault("too large unpacked", f"at most {limit} bytes", entry.label)
            begin = _check_header(content, entry, end)
            end = begin + entry.told[6]
            if end > directory:
                raise _fault("overlaps the directory", "entries before it", entry.label)
            files[entry.label] = _unpack(content[begin:end], entry)
            left -= entry.told[7]
    except (struct.error, UnicodeError) as error:
        raise _fault(f"not a readable zip ({error})", "a proof bundle") from error
    if end != directory:
        raise _fault("bytes that belong to no entry", "entries one after the other")
    return files


def _read_directory(content: bytes, most_files: int) -> tuple[list[_Entry], int]:
    """Entries of the directory, and where it begins."""
    end = len(content) - END.size
    if end < 0:
        raise _fault("not a readable zip (too short)", "a proof bundle")
    mark, disk, of_disk, here, count, size, directory, comment = END.unpack_from(content, end)
    if mark != b"PK\5\6" or comment:
        raise _fault("not a readable zip (its end is cut off, or data follow)", "a proof bundle")
    if disk or of_disk or here != count or directory + size != end:
        raise _fault("its directory does not fit", "a zip in one piece, not zip64")
    if count > most_files:
        raise _fault(count_text(count, "file"), f"at most {most_files}")
    entries, place = [], directory
    for _ in range(count):
        mark, _made, *told, extra, comment, disk, _, _, start = CENTRAL.unpack_from(content, place)
        place += CENTRAL.size + told[8]
        entry = _Entry(content[place - told[8] : place], start, tuple(told))
        if mark != b"PK\1\2" or extra or comment or disk:
            raise _fault("extra fields or a comment", "entries without", entry.label)
        entries.append(entry)
    if place != end:
        raise _fault("bytes that belong to no entry", "a directory of entries alone")
    return entries, directory


def _check_header(content: bytes, entry: _Entry, end: int) -> int:
    """Where an entry's bytes begin, if it is as the directory says and follows the one before."""
    if entry.told[1] & ~HARMLESS_FLAGS or entry.told[2] not in (STORED, DEFLATED):
        raise _fault("is encrypted, or packed in another way", "stored or deflated", entry.label)
    begin = end + LOCAL.size + len(entry.name)
    local = LOCAL.unpack_from(content, end)
    if entry.start != end or local != (b"PK\3\4", *entry.told, 0):
        raise _fault("its two headers differ", "entries one after the other", entry.label)
    if content[end + LOCAL.size : begin] != entry.name:
        raise _fault("its two names differ", "one name", entry.label)
    return begin


def _unpack(packed: bytes, entry: _Entry) -> bytes:
    """An entry's bytes. Never unpacks more than one byte beyond the size in its header.

    Its CRC is not looked at: signatures and SHA-256 say more.
    """
    method, size = entry.told[2], entry.told[7]
    content, is_whole = packed, True
    if method == DEFLATED:
        unpacking = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            content = unpacking.decompress(packed, size + 1)
        except zlib.error as error:
            raise _fault(f"cannot be unpacked ({error})", "deflated bytes", entry.label) from error
        is_whole = unpacking.eof and not unpacking.unused_data
    if not is_whole or len(content) != size:
        raise _fault("not as long as its header says", f"{size} bytes", entry.label)
    return content


def _fault(message: str, expected: str, name: str | None = None) -> RuleError:
    return RuleError(message, file=name and name[:100], expected=expected)
