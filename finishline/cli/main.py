"""The `finishline` command."""

import inspect
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from rich.text import Text
from typer import Option
from typer.core import TyperCommand, TyperGroup

import finishline
from finishline.cli.errors import (
    INTERRUPTED,
    INTERRUPTION,
    CliError,
    ExitCode,
    UsageError,
    cli_error,
    server_missing,
)
from finishline.cli.names import PANELS, SERVER_ADMIN, examples_of, renamed
from finishline.cli.options import ROOT
from finishline.cli.screen import open_console
from finishline.client.errors import FinishlineError, refusal, told_besides
from finishline.places import installed_server
from finishline.profiles import ProfileError
from finishline.rules.errors import RuleError, StatisticsMissingError
from finishline.rules.text import count_text

TERMINATED = 143  # 128 + SIGTERM.
MOST_PROBLEMS = 20  # Of an error, at a terminal.
FAILURES = (
    CliError, FinishlineError, ProfileError, RuleError, StatisticsMissingError,
    typer.TyperException, OSError, UnicodeEncodeError,
)  # fmt: skip
COMMANDS = {name: place for panel in PANELS.values() for name, place in panel.items()}
PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names}
# The flags of the root, with their parameters.
FLAGS = {"--json": "as_json", "--url": "url", "--token": "token"}


def split_flags(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split a command line into the flags of the root and the other words."""
    flags, others = list[str](), list[str]()
    left = iter(words)
    for word in left:
        if word == "--":
            return flags, [*others, word, *left]
        if word.partition("=")[0] not in FLAGS:
            others.append(word)
        elif word == "--json" or "=" in word:
            flags.append(word)
        else:
            flags += [word, *islice(left, 1)]
    return flags, others


class Commands(TyperGroup):
    """The commands by name. The first use of a command imports its module."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = {name: TyperCommand(name) for name in COMMANDS}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take the flags of the root, which may also follow the command."""
        flags, words = split_flags(args)
        rest: list[str] = super().parse_args(ctx, [*flags, *words])
        ROOT.as_json, ROOT.url, ROOT.token = (ctx.params[name] for name in FLAGS.values())
        return rest

    def list_commands(self, ctx: Any) -> list[str]:
        added = _of_the_server().names
        return [name for name in self.commands if COMMANDS[name] or name in added]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Load a known command. Raises CliError if its server is missing."""
        return _load(cmd_name) if cmd_name in self.commands else None


def _of_the_server() -> Any:
    from importlib.metadata import entry_points  # Takes 40 ms, and reads every distribution.

    return entry_points(group="finishline.commands")


@cache
def _load(name: str) -> Any:
    added: Any = () if COMMANDS[name] and name != "admin" else _of_the_server()
    if COMMANDS[name]:
        module, attribute = COMMANDS[name].split(":")
        found = getattr(import_module(f"finishline.cli.commands.{module}"), attribute)
    else:
        if name not in added.names or installed_server() is None:
            raise server_missing(name)
        found = added[name].load()
    if isinstance(found, dict):
        found = found[name]
    elif not isinstance(found, typer.Typer):
        single = typer.Typer(add_completion=False)
        single.command(name)(found)
        found = single
    if name == "admin" and name in added.names and installed_server() is not None:
        of_server = added[name].load()
        found.registered_commands += of_server.registered_commands
        found.registered_groups += of_server.registered_groups
    command: Any = typer.main.get_command(found)
    command.name, command.rich_help_panel = name, PANEL_OF[name]
    _explain(command, name)
    return command


def _explain(command: Any, name: str) -> None:
    """Make each paragraph of the help one line, so that the terminal wraps it."""
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    command.help = "\n\n".join(" ".join(each.split()) for each in paragraphs)
    command.epilog = examples_of(name)
    for each, below in getattr(command, "commands", {}).items():
        _explain(below, f"{name} {each}")


app = typer.Typer(
    name="finishline",
    cls=Commands,
    help="Submit training runs, replay them, rank measured times.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"finishline {finishline.__version__}")
        raise typer.Exit


@app.callback()
def options(
    as_json: Annotated[
        bool, Option("--json", help="Write a single JSON document to stdout.")
    ] = False,
    url: Annotated[
        str | None,
        Option(help="Address of the server (default: FINISHLINE_URL, else the login's)."),
    ] = None,
    token: Annotated[
        str | None, Option(envvar="FINISHLINE_TOKEN", help="API token (fl_...).")
    ] = None,
    version: Annotated[
        bool, Option("--version", help="Show the version.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Submit training runs, replay them, rank measured times.

    --json, --url and --token may also follow the command.
    """


def main(arguments: Sequence[str] | None = None, command: typer.Typer = app) -> int:
    """Run one command. Returns its exit code (see docs/cli.md)."""
    for name in ("stdout", "stderr"):  # Cron, for example, closes the outputs of a command.
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115
    given = list(sys.argv[1:] if arguments is None else arguments)
    previous = signal.signal(signal.SIGTERM, _on_terminate)
    if "FINISHLINE_DATA" in os.environ:  # A shorter name of the same setting.
        os.environ.setdefault("FINISHLINE_DATA_DIR", os.environ["FINISHLINE_DATA"])
    if os.environ.get("NO_COLOR"):
        os.environ["_TYPER_FORCE_DISABLE_TERMINAL"] = "1"  # For help, which Typer writes.
    try:
        code = int(_built(command)(given, prog_name="finishline", standalone_mode=False) or 0)
        sys.stdout.flush()
        if code == INTERRUPTED:
            sys.stderr.write(f"{INTERRUPTION}\n")
        return code
    except (KeyboardInterrupt, typer.Abort):
        sys.stderr.write(f"{INTERRUPTION}\n")
        return INTERRUPTED
    except SystemExit as ended:
        # Typer and Rich end the process with 1 when the reader of their output is gone.
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        return _stop_writing()
    except BrokenPipeError:
        return _stop_writing()
    except FAILURES as error:
        failure, as_json = _cli_error(error), "--json" in given
        if "No such command" in failure.message:
            words = split_flags(given)[1]
            failure = renamed(words) or failure
            if words[0] == "admin" and words[1] in SERVER_ADMIN and installed_server() is None:
                failure = server_missing(f"admin {words[1]}")
        # A call that lacks a command shows the help instead of a message.
        if as_json or not isinstance(error, typer.TyperException) or error.format_message():
            _report(failure, as_json=as_json)
        if isinstance(error, OSError) and error.filename is None:
            _stop_writing()
        return int(failure.exit_code)
    finally:
        signal.signal(signal.SIGTERM, previous)


@cache
def _built(command: typer.Typer) -> Callable[..., Any]:
    """Build the tree of commands, which takes 30 ms."""
    return typer.main.get_command(command)


def _stop_writing() -> int:
    """Return the exit code after the reader of the output, for example `head`, has left."""
    with suppress(OSError, ValueError):  # Python would flush it once more as it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return int(ExitCode.OK)


def _cli_error(error: Exception) -> CliError:
    if isinstance(error, CliError):
        return error
    if isinstance(error, FinishlineError):
        return cli_error(error)
    if isinstance(error, ProfileError):
        return UsageError(str(error))
    if isinstance(error, RuleError):
        return cli_error(refusal(error))
    if isinstance(error, UnicodeEncodeError):
        part = error.object[error.start : error.end]
        return UsageError(f"Invalid argument: {part!r} can't be written in {error.encoding}.")
    if isinstance(error, typer.TyperException):
        # Pydantic begins its messages so.
        message = " ".join(error.format_message().split()).replace("Value error, ", "")
        if message and not message.endswith((".", "?")):
            message += "."
        asked = getattr(getattr(error, "ctx", None), "command_path", "finishline")
        return UsageError(f"{message} See `{asked} --help`.".strip())
    if isinstance(error, OSError):  # Of an unexpected file, or of the output.
        if error.filename is None:
            return CliError(f"Cannot use the output ({error.strerror or error}).")
        what = f"Cannot use {error.filename} ({error.strerror or error})"
        return CliError(f"{what}. Expected a path that you may read or write.")
    return CliError(str(error), exit_code=ExitCode.SERVER)


def _on_terminate(number: int, frame: FrameType | None) -> None:
    """Raise, so that every child is ended on the way out."""
    raise SystemExit(TERMINATED)


def _report(error: CliError, *, as_json: bool) -> None:
    if as_json:
        sys.stderr.write(json.dumps(error.document(), ensure_ascii=False) + "\n")
        return
    console = open_console(stderr=True)
    console.print(Text.assemble(("error: ", "bold red"), error.message), soft_wrap=True)
    problems = told_besides(error.message, error.problems)
    for problem in problems[:MOST_PROBLEMS]:
        console.print(Text(f"  {problem}"), soft_wrap=True)
    if (more := len(problems) - MOST_PROBLEMS) > 0:
        console.print(f"  and {count_text(more, 'problem')} more; --json lists all.")


if __name__ == "__main__":
    sys.exit(main())
