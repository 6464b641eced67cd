"""A log of any size as blocks of whole lines, so that memory stays small and time linear."""

from collections.abc import Iterable, Iterator

MAX_MLLOG_LINE_BYTES = 16 * 1024  # The longest real line has 367 bytes.
KEPT_BYTES = 2 * MAX_MLLOG_LINE_BYTES


class Block:
    """Some whole lines of a log, and the number of the first of them."""

    def __init__(self, content: bytes, first_line: int) -> None:
        self.content = content
        self._first_line = first_line
        self._counted = (0, first_line)

    def line_at(self, offset: int) -> int:
        """The 1-based number of the line an offset lies on; cheap for offsets in their order."""
        start, line = self._counted if offset >= self._counted[0] else (0, self._first_line)
        line += self.content.count(b"\n", start, offset)
        self._counted = (offset, line)
        return line

    def next_line(self) -> int:
        """The number of the line after this block."""
        return self.line_at(len(self.content))


def whole_line_blocks(chunks: Iterable[bytes], *, mark: bytes) -> Iterator[Block]:
    """The chunks of a file cut anew at line ends; a carriage return ends a line where need be.

    Of a line that is longer than any line with `mark` in it may be, only so much is kept that a
    reader can tell: the beginning of what follows its first mark, or nothing.
    """
    rest, block = b"", Block(b"", 1)
    for chunk in chunks:
        content = rest + chunk
        end = content.rfind(b"\n") + 1 or content.rfind(b"\r") + 1
        if end:
            block = Block(content[:end], block.next_line())
            yield block
        rest = content[end:]
        if len(rest) > KEPT_BYTES:
            rest = _telling_part(rest, mark)
    if rest:
        yield Block(rest, block.next_line())


def _telling_part(line: bytes, mark: bytes) -> bytes:
    start = line.find(mark)
    if start < 0:
        return line[-len(mark) + 1 :]
    return line[start : start + KEPT_BYTES]
