"""Commands in the documents: each is there, with every option that it is shown with."""

import importlib.util
import re
import shlex
from pathlib import Path
from typing import Any

import typer

from finishline.cli.main import app

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
# A removed command may be told of where changes are.
PAGES.remove(ROOT / "CHANGELOG.md")
TOP: Any = typer.main.get_command(app)
PIECE = re.compile(r"^```\w*\n(.*?)^```|`([^`\n]+(?:\n[^`\n]+)?)`", re.MULTILINE | re.DOTALL)


def commands(text, name):
    """Words of each command line that begins with a name, in code blocks and code words."""
    call = re.compile(rf"(?:^\s*(?:\w+=\S+ )*|[$(] ?|&& |bin/){name} ([^#&|;>)]*)")
    for block, span in PIECE.findall(text):
        lines = block.replace("\\\n", " ").splitlines() if block else [" ".join(span.split())]
        for line in filter(None, map(call.search, lines)):
            try:
                yield shlex.split(line[1])
            except ValueError:  # A quotation that goes on.
                yield line[1].split()


def problem_of(words):
    """The first word of a command line that the program would not know."""
    command = TOP
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        if words[0].isupper() or words[0] in ("...", "…"):
            return None
        names = words[0].split("|")  # `training init|check|run` is three.
        missing = [name for name in names if name not in command.commands]
        if missing:
            return missing[0]
        command, words = command.commands[names[0]], words[1:]
        if len(names) > 1:
            return None
    known = {option for each in command.params for option in each.opts + each.secondary_opts}
    known |= {"--help"}
    own = words[: words.index("--")] if "--" in words else words
    given = [part for word in own if word.startswith("--") for part in word.split("=")[:1]]
    return next((word for word in given if word.rstrip(",.") not in known), None)


def test_every_command_of_the_documents_is_there_with_its_options():
    texts = {page.relative_to(ROOT).as_posix(): page.read_text() for page in PAGES}
    found = [(name, words) for name in texts for words in commands(texts[name], "finishline")]
    problems = {
        f"{name}: {' '.join(words)}": word
        for name, words in found
        if (word := problem_of(words)) is not None
    }
    text = "\n".join(texts.values())
    programs = re.findall(r"python -m ((?:perf|server|worker|tests)\b[\w.]*)", text)
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    asked = re.findall(r"^make ([a-z][\w-]*)|`make ([a-z][\w-]*)", text, re.MULTILINE)

    assert len(found) > 200
    assert problems == {}
    assert [name for name in programs if importlib.util.find_spec(name.rstrip(".")) is None] == []
    assert {one or other for one, other in asked} <= targets


def test_a_command_or_option_that_is_gone_is_found():
    text = "```\nfinishline runn digits\nfinishline run digits --sets 3  # no\n```\n`finishline up`"
    assert [problem_of(words) for words in commands(text, "finishline")] == ["runn", "--sets", None]
