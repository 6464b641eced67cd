"""The command by itself: what it imports, and its commands in the documents."""

import importlib.util
import json
import re
import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import typer
from typer._click.exceptions import MissingParameter, NoArgsIsHelpError
from typer.core import TyperGroup

from finishline.cli.main import app, split_flags

HEAVY = (
    "alembic", "celery", "fastapi", "kombu", "numpy", "plotly", "pyarrow", "pydantic", "redis",
    "reference_models", "scipy", "server", "sqlalchemy", "torch", "web", "worker",
)  # fmt: skip
ROOT = Path(__file__).parents[2]
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for path in (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))
    if path.name != "CHANGELOG.md"  # It may name a removed command.
}
PIECE = re.compile(r"^```\w*\n(.*?)^```|`([^`\n]+(?:\n[^`\n]+)?)`", re.MULTILINE | re.DOTALL)
CALL = re.compile(r"(?:^\s*(?:\w+=\S+ )*|[$(] ?|&& |bin/)finishline ([^#&|;>)]*)")
# What a sentence leaves out.
UNFINISHED = (MissingParameter, NoArgsIsHelpError)


def test_the_command_loads_no_server_no_array_library_and_no_broker():
    script = (
        "import json, sys; import finishline.cli.main; "
        "names = {'.'.join(name.split('.')[:depth]) for name in sys.modules for depth in (1, 2)}; "
        "print(json.dumps(sorted(names)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(json.loads(done.stdout))

    assert loaded.intersection(HEAVY) == set()
    assert {"finishline.cli", "typer"} <= loaded


def commands_of(text):
    """Words of each command line, in code blocks and code words."""
    for block, span in PIECE.findall(text):
        lines = block.replace("\\\n", " ").splitlines() if block else [" ".join(span.split())]
        for line in filter(None, map(CALL.search, lines)):
            try:
                yield shlex.split(line[1])
            except ValueError:  # A quotation that goes on.
                yield line[1].split()


def known_commands(group, *before):
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if isinstance(command, TyperGroup):
            yield from known_commands(command, *before, name)
        else:
            yield " ".join((*before, name))


def parse(words):
    """Raises what the command itself would say of wrong words."""
    command = typer.main.get_command(app)
    context = typer.Context(command)
    _, words = split_flags(words)
    while isinstance(command, TyperGroup) and words:
        first, *words = words
        if first.isupper() or first in ("...", "…"):
            return
        for name in first.split("|"):  # `training init|check|run` is three.
            assert name in command.commands, f"no command {name!r}"
        if "|" in first:
            return
        command = command.get_command(context, first)
        context = typer.Context(command, parent=context, info_name=first)
    command.parse_args(context, words)


def test_each_command_has_a_short_flag_for_its_help(finishline):
    for command in known_commands(typer.main.get_command(app)):
        assert f"Usage: finishline {command} " in finishline(*command.split(), "-h").out


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_is_taken(page):
    for words in commands_of(PAGES[page]):
        with suppress(*UNFINISHED):
            parse(words)


def test_documents_name_commands_programs_and_targets_that_are_there():
    text = "\n".join(PAGES.values())
    programs = re.findall(r"python -m ((?:perf|server|worker|tests)\b[\w.]*)", text)
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    asked = re.findall(r"^make ([a-z][\w-]*)|`make ([a-z][\w-]*)", text, re.MULTILINE)

    assert len(list(commands_of(text))) > 200
    assert [name for name in programs if importlib.util.find_spec(name.rstrip(".")) is None] == []
    assert {one or other for one, other in asked} <= targets


def test_the_list_of_commands_has_every_command():
    table = PAGES["docs/cli.md"].partition("## Exit codes")[0]
    # A row names its group once: `calibration list`, `show ID`.
    rows = [re.findall(r"`([a-z][^`]*)`", row.split(" | ")[0]) for row in table.splitlines()]
    listed = set()
    for names in filter(None, rows):
        group = names[0].split()[:-1] if len(names[0].split()) > 1 else []
        listed |= {word for name in names for word in re.split(r"[ |\\]+", name)} | set(group)

    for command in known_commands(typer.main.get_command(app)):
        assert set(command.split()) <= listed, command
