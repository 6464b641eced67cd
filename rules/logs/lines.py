"""Lines of a stranger's text, found in linear time and without copying what does not matter."""

from collections.abc import Iterator

from rules.errors import LogFormatError

MAX_FILE_BYTES = 64 * 1024 * 1024
MAX_LINE_BYTES = 1024 * 1024
MAX_MLLOG_LINE_BYTES = 16 * 1024  # The longest real line has 367 bytes.
MAX_MLLOG_LINES = 200_000
MLLOG_MARK = b":::MLLOG"


def refuse_long_lines(content: bytes, *, file: str, limit: int = MAX_LINE_BYTES) -> None:
    """Raise LogFormatError if a line has more than `limit` bytes.

    Looks back from `limit` bytes ahead to the last line end on the way, so lines of ordinary
    length are jumped over by the thousand.
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


def mllog_lines(content: bytes, *, file: str) -> Iterator[tuple[int, bytes]]:
    """Number (from 1) and JSON text of every line with `:::MLLOG` anywhere in it.

    Raises LogFormatError on a line or a number of lines beyond the limits.
    """
    refuse_long_lines(content, file=file)
    number, counted, found = 1, 0, 0
    mark = content.find(MLLOG_MARK)
    while mark >= 0:
        found += 1
        number += content.count(b"\n", counted, mark)
        counted = mark
        end = content.find(b"\n", mark)
        end = len(content) if end < 0 else end
        length = end - content.rfind(b"\n", 0, mark) - 1
        if length > MAX_MLLOG_LINE_BYTES:
            expected = f"at most {MAX_MLLOG_LINE_BYTES:,} bytes"
            message = f"an MLLOG line of {length:,} bytes"
            raise LogFormatError(message, file=file, line=number, expected=expected)
        if found > MAX_MLLOG_LINES:
            expected = f"at most {MAX_MLLOG_LINES:,} MLLOG lines"
            raise LogFormatError("too many lines", file=file, line=number, expected=expected)
        yield number, content[mark + len(MLLOG_MARK) : end]
        mark = content.find(MLLOG_MARK, end)
