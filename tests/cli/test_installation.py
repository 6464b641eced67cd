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
from finishline.cli.names import RENAMED, examples_of

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


@pytest.mark.parametrize(
    ("module", "others", "needed"),
    [("finishline.cli.main", "", {"finishline.cli", "typer"}),
     ("finishline", "finishline.cli typer rich", {"finishline", "httpx2"})],
)  # fmt: skip
def test_heavy_modules_stay_unloaded(module, others, needed):
    script = (
        f"import json, sys; import {module} as loaded; getattr(loaded, 'Client', None); "
        "names = {'.'.join(name.split('.')[:depth]) for name in sys.modules for depth in (1, 2)}; "
        "print(json.dumps(sorted(names)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(json.loads(done.stdout))
    # The client reads its answers with pydantic.
    heavy = {*HEAVY, *others.split()} - ({"pydantic"} if others else set())
    assert (loaded & heavy, needed - loaded) == (set(), set())


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
    context = typer.Context(command, help_option_names=["-h", "--help"])
    _, words = split_flags(words)
    while isinstance(command, TyperGroup) and words:
        first, *words = words
        if first.isupper() or first in ("...", "…"):
            return
        if type(command).__name__ == "OrBenchmark" and first not in command.commands:
            first, words = "add", [first, *words]
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


def test_top_has_twenty_names_in_four_panels(finishline):
    shown = finishline("--help").out
    tree = typer.main.get_command(app)
    panels = [tree.get_command(None, name).rich_help_panel for name in tree.list_commands(None)]

    assert len(panels) == 20
    assert set(panels) == {"Take part", "Read", "Organise", "Operate"}
    assert all(f"─ {panel} ─" in shown for panel in panels)


def test_each_command_has_two_examples_that_it_takes(finishline):
    tree = typer.main.get_command(app)
    for command in (*tree.list_commands(None), *known_commands(tree)):
        if command == "admin price owned":  # It takes six amounts.
            continue
        title, *calls = examples_of(command).split("\n\n")
        assert "\n Examples:" in finishline(*command.split(), "-h").out
        assert (title, len(calls)) == ("Examples:", 2), command
        for call in calls:
            with suppress(NoArgsIsHelpError):
                parse(shlex.split(call)[1:])


@pytest.mark.parametrize(
    ("typed", "new"),
    [("leaderboard digits", "board"), ("training run-again abc", "verify --again"),
     ("account make --days 3", "account token add"), ("bench digits", "bench train"),
     ("workers", "admin worker list"),
     ("admin user erase ann --yes", "admin user remove"),
     ("data check x", "benchmark fetch --check")],
)  # fmt: skip
def test_an_earlier_name_answers_with_the_new_one(finishline, typed, new):
    ran = finishline(*typed.split())
    assert (ran.code, ran.out) == (2, "")
    assert re.fullmatch(rf"error: `finishline [\w -]+` is now `finishline {new}`\.\n", ran.err)


def test_every_new_name_is_a_command():
    for line in RENAMED.replace("|", "\n").splitlines():
        if line:
            parse_known(line.partition(": ")[2].split())


def parse_known(words):
    with suppress(*UNFINISHED):
        parse(words)


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


def test_make_bench_names_every_program():
    texts = {path.stem: path.read_text() for path in (ROOT / "perf").glob("*.py")}
    programs = {name for name, text in texts.items() if "\ndef measure(" in text}
    makefile = (ROOT / "Makefile").read_text()
    named = re.search(r"^PROGRAMS := ((?:.*\\\n)*.*)$", makefile, re.MULTILINE)

    assert len(programs) > 5
    assert set(named[1].replace("\\", " ").split()) == programs


def test_the_list_of_commands_has_every_command():
    table = PAGES["docs/cli.md"].partition("## Exit codes")[0]
    # A row names its group once: `benchmark calibrate list`, `show ID`.
    rows = [re.findall(r"`([a-z][^`]*)`", row.split(" | ")[0]) for row in table.splitlines()]
    listed = set()
    for names in filter(None, rows):
        group = names[0].split()[:-1] if len(names[0].split()) > 1 else []
        listed |= {word for name in names for word in re.split(r"[ |\\]+", name)} | set(group)

    for command in known_commands(typer.main.get_command(app)):
        assert set(command.split()) <= listed, command
