"""Lines of a stranger's text, found in linear time and without copying what does not matter."""

from rules.errors import LogFormatError

MAX_FILE_BYTES = 64 * 1024 * 1024
MAX_LINE_BYTES = 1024 * 1024


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
