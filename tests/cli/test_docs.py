"""Every command that the documents name is one, with the options they name."""

import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import typer
from typer._click.exceptions import MissingParameter, NoArgsIsHelpError
from typer.core import TyperGroup

from finishline.cli.main import app

CHECKOUT = Path(__file__).parents[2]
DOCS = CHECKOUT / "docs"
PAGES = [CHECKOUT / "README.md", *sorted(DOCS.glob("*.md"))]
# What a sentence says without what it is for: `finishline submit` sends a key of its own.
UNFINISHED = (MissingParameter, NoArgsIsHelpError)


def commands_of(text: str) -> Iterator[str]:
    """`finishline ...` on lines of their own and within sentences."""
    text = text.replace("\\\n", " ")
    for block in re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield from re.findall(r"^finishline .*?(?=\s+#|$)", block, re.MULTILINE)
    for within in re.findall(r"(?<!`)`(finishline\s[^`]+)`(?!`)", text):
        yield " ".join(within.split())


def known_commands(group: TyperGroup, *before: str) -> Iterator[str]:
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from known_commands(command, *before, name)
        else:
            yield " ".join((*before, name))


def parse(words: list[str]) -> None:
    """Raises what the command itself would say of wrong words."""
    command = typer.main.get_command(app)
    context = typer.Context(command)
    while isinstance(command, TyperGroup) and words:
        if words[0] not in command.commands:
            # What a page calls by a capital stands for any of them.
            assert words[0].isupper(), f"no command {words[0]!r}"
            return
        command = command.commands[words[0]]
        context = typer.Context(command, parent=context, info_name=words.pop(0))
    command.parse_args(context, words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_of_a_page_is_taken(page: Path) -> None:
    for line in commands_of(page.read_text()):
        with suppress(*UNFINISHED):
            parse(shlex.split(line)[1:])


def test_the_pages_name_commands() -> None:
    assert sum(len(list(commands_of(page.read_text()))) for page in PAGES) > 80


def test_the_list_of_commands_has_every_command() -> None:
    table = (DOCS / "cli.md").read_text().partition("## Exit codes")[0]
    # A row names its group once: `calibration list`, `show ID`.
    rows = [re.findall(r"`([a-z][^`]*)`", row.split(" | ")[0]) for row in table.splitlines()]
    listed = set()
    for names in filter(None, rows):
        group = names[0].split()[:-1] if len(names[0].split()) > 1 else []
        listed |= {word for name in names for word in re.split(r"[ |\\]+", name)} | set(group)

    for command in known_commands(typer.main.get_command(app)):
        assert set(command.split()) <= listed, command
