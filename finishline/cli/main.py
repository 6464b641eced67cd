"""The `finishline` command."""

import inspect
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from rich.text import Text

import finishline
from finishline.cli.commands import (
    account,
    admin,
    benchmark,
    calibration,
    data,
    entry,
    lists,
    own_benchmark,
    probe,
    quota,
    service,
    training,
    webhook,
)
from finishline.cli.commands.bench import bench
from finishline.cli.commands.calibration import calibrate
from finishline.cli.commands.check import check
from finishline.cli.commands.check_proof import audit_log, check_proof_of
from finishline.cli.commands.convert import convert
from finishline.cli.commands.copies import backup, rescore, restore
from finishline.cli.commands.import_archive import import_archive
from finishline.cli.commands.login import login, logout
from finishline.cli.commands.run import run
from finishline.cli.commands.score import score
from finishline.cli.commands.steps import profile, scale
from finishline.cli.commands.submit import submit, waive, withdraw
from finishline.cli.commands.up import up
from finishline.cli.commands.verify import compare_verifications, decide, duel, verify
from finishline.cli.commands.workers import queue_app, workers_app
from finishline.cli.errors import INTERRUPTED, INTERRUPTION, CliError, ExitCode
from finishline.cli.screen import flowing, open_console
from finishline.client.errors import told_besides
from finishline.profiles import ProfileError, chosen_profile
from finishline.rules.errors import StatisticsMissingError

TERMINATED = 143  # 128 + SIGTERM.

app = typer.Typer(
    name="finishline",
    help="Submit training runs, replay them, rank measured times.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"finishline {finishline.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", is_eager=True, callback=_show_version),
    ] = False,
) -> None:
    """Submit training runs, replay them, rank measured times."""


for command in (
    up, run, bench, check, score, submit, verify, duel, calibrate, decide,
    withdraw, waive,
    lists.show, lists.leaderboard, lists.benchmarks, backup, restore, login, logout, convert,
    probe.probe, scale, profile,
):  # fmt: skip
    app.command()(command)
app.command("invite")(admin.invite)
app.command("import")(import_archive)
app.command("audit-log")(audit_log)
app.command("check-proof")(check_proof_of)
app.command("compare-verifications")(compare_verifications)
training.app.command("submit")(entry.submit)
training.app.command("run-again")(entry.run_again)
training.app.command("factors")(entry.factors)
for registered in (*app.registered_commands, *training.app.registered_commands):
    registered.help = flowing(inspect.getdoc(registered.callback) or "")
app.add_typer(account.app, name="account")
admin.app.command("rescore")(rescore)
admin.app.add_typer(quota.price_app, name="price")
app.add_typer(admin.app, name="admin")
benchmark.app.command("init")(own_benchmark.init)
benchmark.app.command("check")(own_benchmark.check)
benchmark.app.command("add")(own_benchmark.add)
app.add_typer(benchmark.app, name="benchmark")
app.add_typer(quota.prices_app, name="prices")
app.add_typer(quota.quota_app, name="quota")
app.add_typer(workers_app, name="workers")
app.add_typer(queue_app, name="queue")
app.add_typer(webhook.app, name="webhook")
app.add_typer(calibration.app, name="calibration")
app.add_typer(training.app, name="training")
app.add_typer(data.app, name="data")
app.add_typer(service.app, name="service")


def main(arguments: Sequence[str] | None = None, command: typer.Typer = app) -> int:
    """Run one command; its exit code (see docs/cli.md)."""
    _open_closed_outputs()
    given = list(sys.argv[1:] if arguments is None else arguments)
    previous = signal.signal(signal.SIGTERM, _on_terminate)
    if os.environ.get("NO_COLOR"):
        os.environ["_TYPER_FORCE_DISABLE_TERMINAL"] = "1"  # For help, which Typer writes.
    from_login = {} if given[:1] == ["login"] else _server_of_login()
    os.environ |= from_login
    try:
        code = int(_built(command)(given, prog_name="finishline", standalone_mode=False) or 0)
        sys.stdout.flush()
        if code == INTERRUPTED:
            sys.stderr.write(f"{INTERRUPTION}\n")
        return code
    except CliError as error:
        _report(error, as_json="--json" in given)
        return int(error.exit_code)
    except ProfileError as error:
        _report(CliError(str(error), exit_code=ExitCode.USAGE), as_json="--json" in given)
        return int(ExitCode.USAGE)
    except StatisticsMissingError as error:
        _report(CliError(str(error), exit_code=ExitCode.SERVER), as_json="--json" in given)
        return int(ExitCode.SERVER)
    except typer.TyperException as error:
        return _report_usage(error, as_json="--json" in given)
    except (KeyboardInterrupt, typer.Abort):
        sys.stderr.write(f"{INTERRUPTION}\n")
        return INTERRUPTED
    except SystemExit as ended:
        # Typer and Rich end the process with 1 where nobody reads their output.
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        return _stop_writing()
    except BrokenPipeError:
        return _stop_writing()
    except OSError as error:
        _report(_failed_file(error), as_json="--json" in given)
        if error.filename is None:
            _stop_writing()
        return int(ExitCode.REFUSED)
    finally:
        signal.signal(signal.SIGTERM, previous)
        for name in from_login:
            del os.environ[name]


@cache
def _built(command: typer.Typer) -> Callable[..., Any]:
    """The tree of commands, which takes 30 ms to build."""
    return typer.main.get_command(command)


def _open_closed_outputs() -> None:
    """Let a command write to nowhere where it was started with a closed output, as by cron."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115


def _stop_writing() -> int:
    """The exit code where the reader of the output, for example `head`, has seen enough."""
    with suppress(OSError, ValueError):  # Python would flush it once more as it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return int(ExitCode.OK)


def _failed_file(error: OSError) -> CliError:
    """The error of a file that no command foresaw, or of its output, which has no name."""
    what = error.filename if error.filename is not None else "the output"
    return CliError(f"Cannot use {what} ({error.strerror or error}).", exit_code=ExitCode.REFUSED)


def _server_of_login() -> dict[str, str]:
    """The environment's address of the server where a login takes its place."""
    if os.environ.get("FINISHLINE_URL"):
        return {}
    try:
        profile = chosen_profile()
    except ProfileError:
        return {}  # A command that asks the server says so.
    return {} if profile is None else {"FINISHLINE_URL": profile.url}


def _on_terminate(number: int, frame: FrameType | None) -> None:
    """End as an exception does, so that every child is ended on the way out."""
    raise SystemExit(TERMINATED)


def _report(error: CliError, *, as_json: bool) -> None:
    if as_json:
        sys.stderr.write(json.dumps(error.document(), ensure_ascii=False) + "\n")
        return
    console = open_console(stderr=True)
    console.print(Text.assemble(("error: ", "bold red"), error.message), soft_wrap=True)
    for problem in told_besides(error.message, error.problems):
        console.print(Text(f"  {problem}"), soft_wrap=True)


def _report_usage(error: typer.TyperException, *, as_json: bool) -> int:
    message = " ".join(error.format_message().split()).replace("Value error, ", "")  # Pydantic's.
    if not message and not as_json:
        return int(ExitCode.USAGE)  # No command at all asks for help, which is shown by now.
    if message and not message.endswith((".", "?")):
        message += "."
    asked = getattr(getattr(error, "ctx", None), "command_path", "finishline")
    usage = CliError(f"{message} See `{asked} --help`.".strip(), exit_code=ExitCode.USAGE)
    _report(usage, as_json=as_json)
    return int(ExitCode.USAGE)


if __name__ == "__main__":
    sys.exit(main())
