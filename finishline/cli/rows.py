"""Commands that send one request and show its answer, declared as rows of a text."""

import re
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from inspect import Parameter, Signature
from string import Formatter
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from typer import Argument, Option

from finishline.cli.client import ServerClient, View, connect, segment
from finishline.cli.errors import ExitCode
from finishline.cli.listings import TABLES, table_of
from finishline.cli.options import ROOT, Function, declared
from finishline.cli.screen import open_screen

REQUIRED = Parameter.empty
# A call, its request with the answer, and the help.
ROW = re.compile(
    r"^(\S.*(?:\n {8}.*)?)\n +([A-Z]+) (\S+(?: \| \S+)?)\s+-> (.+)\n((?: +.*\n)+)", re.MULTILINE
)

Given = Mapping[str, Any]
Lines = Callable[[View, Given], Iterable[RenderableType]]
Body = Callable[[Given], dict[str, Any]]


@dataclass(frozen=True)
class Row:
    """A command of one request."""

    name: str
    method: str
    path: str
    lines: Lines
    about: str


@dataclass(frozen=True)
class Words:
    """Names of rows: parameters, lines of answers, and by command its body or field of pages."""

    parameters: Mapping[str, Parameter]
    lines: Mapping[str, Lines]
    bodies: Mapping[str, Body]
    pages: Mapping[str, str]


def argument(
    name: str, about: str, kind: Any = str, default: Any = REQUIRED, **more: Any
) -> Parameter:
    taken = kind | None if default is None else kind
    return _parameter(name, Annotated[taken, Argument(help=about, **more)], default)


def option(
    name: str, about: str, kind: Any = str, default: Any = None, flag: str = "", **more: Any
) -> Parameter:
    taken = kind | None if default is None else kind
    declared = Option(flag or f"--{name.replace('_', '-')}", help=about, **more)
    return _parameter(name, Annotated[taken, declared], default)


def _parameter(name: str, annotation: Any, default: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


CONTEXT = _parameter("context", typer.Context, REQUIRED)


def asks_server(function: Callable[..., int | None]) -> Function:
    """Give a function a connection and a screen."""

    def run(**given: Any) -> int:
        with connect() as server:
            return int(function(server, open_screen(as_json=ROOT.as_json), **given) or ExitCode.OK)

    return declared(run, function, given=2)


def read_rows(text: str, groups: Mapping[str, str], words: Words) -> dict[str, typer.Typer]:
    """Return the groups of a text, each with its commands, and the other commands.

    A row is a call such as `admin token add USER --days`, its request with the answer such as `POST
    /tokens -> tokens`, and the help. The path takes the values that it names. The others are the
    query or the body, if they were given. A path behind a bar is for --undo. The answer is the name
    of lines or of a table, or a sentence.
    """
    rows = {}
    if left := ROW.sub("", text).strip():
        raise ValueError(f"not a row: {left}")
    for call, method, path, answer, about in ROW.findall(text):
        parts = call.split()
        name = " ".join(part for part in parts if part[0].islower())
        takes = [words.parameters[part] for part in parts if not part[0].islower()]
        lines = words.lines[answer] if answer.endswith("_lines") else _lines_by(answer)
        rows[name] = _function(Row(name, method, path, lines, about), takes, words)
    apps = {
        name: typer.Typer(help=about, add_completion=False, no_args_is_help=name not in rows)
        for name, about in groups.items()
    }
    for name, function in rows.items():
        group, _, last = name.rpartition(" ")
        if name in apps:
            apps[name].callback(invoke_without_command=True)(function)
        else:
            apps.setdefault(group or name, typer.Typer(add_completion=False)).command(last)(
                function
            )
    for name, app in apps.items():
        group, _, last = name.rpartition(" ")
        if group:
            apps[group].add_typer(app, name=last)
    return apps


def _function(row: Row, takes: list[Parameter], words: Words) -> Function:
    def run(*, context: typer.Context, **given: Any) -> int:
        if context.invoked_subcommand is None:
            with connect() as server:
                view = _ask(server, row, given, words)
                open_screen(as_json=ROOT.as_json).answer(view, row.lines(view, given))
        return int(ExitCode.OK)

    vars(run)["__signature__"] = Signature([*takes, CONTEXT])
    run.__doc__ = " ".join(row.about.split())
    return run


def _ask(server: ServerClient, row: Row, given: Given, words: Words) -> View:
    path, _, undoing = row.path.partition(" | ")
    path = undoing if undoing and given["undo"] else path
    named = {name: given[name] for _, name, _, _ in Formatter().parse(path) if name}
    path = path.format_map({name: segment(str(value)) for name, value in named.items()})
    body = words.bodies.get(row.name)
    # A name that Python reserves, such as `with`, ends in an underscore.
    present = {name.rstrip("_"): value for name, value in given.items() if value is not None}
    rest = body(given) if body else {k: v for k, v in present.items() if k not in {*named, "undo"}}
    if row.name in words.pages:
        return _every_page(server, path, rest, words.pages[row.name])
    if row.method == "GET":
        answered = server.get(path, **rest)
    else:
        answered = server.send(row.method, path, None if row.method == "DELETE" else rest)
    # Of a deletion with an empty answer.
    view: View = named | {"deleted": True} if answered is None else answered
    return view


def _every_page(server: ServerClient, path: str, query: Given, field: str) -> View:
    name, found, place = path.rpartition("/")[2], list[View](), None
    while True:
        page = server.get(path, **query, **{field: place})
        found += page[name]
        place = page.get(f"next_{field}")
        if place is None:
            return {name: found}


def _lines_by(answer: str) -> Lines:
    """Show a table, or a sentence with fields of the command and of the answer, its `view`.

    A table shows the field with its name, or `from` another field, `from .` the answer itself.
    """
    table, _, field = answer.partition(" from ")
    if table not in TABLES:
        return lambda view, given: [answer.format_map(ChainMap(dict(given), view, {"view": view}))]
    if field == ".":
        return lambda view, given: [table_of(table, [view])]
    return lambda view, given: [table_of(table, view[field or table])]
