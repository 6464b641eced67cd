"""Output of a command: rich text for people, one JSON document for programs."""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from finishline.rules.table import MISLEADING

# Output to a file or another program keeps its long lines.
WIDTH_WITHOUT_TERMINAL = 10_000


class PlainConsole(Console):
    """A console that strips control characters from titles, logs and names of strangers."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        for piece in super().render(renderable, options):
            shown = MISLEADING.sub("\ufffd", piece.text)
            yield piece if piece.control else Segment(shown, piece.style)


def open_console(*, stderr: bool = False) -> Console:
    """Open a console that prints brackets as they are, because names and notes may hold them."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else WIDTH_WITHOUT_TERMINAL
    return PlainConsole(
        stderr=stderr,
        width=width,
        markup=False,
        highlight=False,
        emoji=False,
        # Switches off colours, bold and redrawn lines.
        force_terminal=False if os.environ.get("NO_COLOR") else None,
    )


@dataclass(frozen=True)
class Screen:
    """Destination of a command's output. With `as_json` people's lines are left out."""

    as_json: bool
    console: Console

    def say(self, *lines: RenderableType) -> None:
        if not self.as_json:
            for line in lines:
                # A console joins texts before it prints them and loses their no_wrap.
                whole = isinstance(line, Text) and line.no_wrap is True
                self.console.print(line, soft_wrap=whole)

    def answer(self, document: Any, lines: Iterable[RenderableType]) -> None:
        """Write the document for programs, or the lines for people."""
        if self.as_json:
            sys.stdout.write(json.dumps(document, indent=2) + "\n")
            sys.stdout.flush()
        else:
            self.say(*lines)


def as_it_is(*parts: str | tuple[str, str]) -> Text:
    """Return a line with a path to copy: only the terminal may fold it."""
    return Text.assemble(*parts, no_wrap=True)


def open_screen(*, as_json: bool) -> Screen:
    return Screen(as_json=as_json, console=open_console())
