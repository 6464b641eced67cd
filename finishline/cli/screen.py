"""Output of a command: rich text for people, one JSON document for programs."""

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rich.console import Console, RenderableType
from rich.text import Text

# Output to a file or another program is neither wrapped nor cut.
WIDTH_WITHOUT_TERMINAL = 10_000


def open_console(*, stderr: bool = False) -> Console:
    """A console that prints texts as they are, because names and notes may hold brackets."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else WIDTH_WITHOUT_TERMINAL
    return Console(stderr=stderr, width=width, markup=False, highlight=False, emoji=False)


@dataclass(frozen=True)
class Screen:
    """Destination of a command's output. With `as_json` people's lines are left out."""

    as_json: bool
    console: Console

    def say(self, *lines: RenderableType) -> None:
        """Lines for people."""
        if not self.as_json:
            for line in lines:
                # A console joins texts before it prints them and loses their no_wrap.
                whole = isinstance(line, Text) and line.no_wrap is True
                self.console.print(line, soft_wrap=whole)

    def say_as_is(self, *lines: str) -> None:
        """Lines to be copied from: a terminal may fold them, no line end is put into them."""
        if not self.as_json:
            for line in lines:
                self.console.print(line, soft_wrap=True)

    def answer(self, document: Any, lines: Iterable[RenderableType]) -> None:
        """The command's answer: the document for programs, the lines for people."""
        if self.as_json:
            sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
            sys.stdout.flush()
        else:
            self.say(*lines)


def as_it_is(*parts: str | tuple[str, str]) -> Text:
    """A line with a path to be copied: a terminal may fold it, no line end is put into it."""
    return Text.assemble(*parts, no_wrap=True)


def log_text(log: str) -> Text:
    """The end of a program's log; of its characters a terminal gets only those that print."""
    shown = "".join(one if one.isprintable() or one in "\n\t" else "\ufffd" for one in log.rstrip())
    return as_it_is(shown)


def flowing(text: str) -> str:
    """Join each paragraph of a text into one line, so that the terminal wraps it."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def open_screen(*, as_json: bool) -> Screen:
    """The screen of one command."""
    return Screen(as_json=as_json, console=open_console())
