"""`finishline show`: a benchmark, a submission or a verification, by its id."""

from pathlib import Path
from typing import Annotated

from typer import Argument

from finishline.cli.answers import shown_submission_lines, verdict_lines
from finishline.cli.client import connect, segment
from finishline.cli.commands.benchmark import benchmark_lines
from finishline.cli.commands.check import check
from finishline.cli.errors import CliError, ExitCode
from finishline.cli.options import shows
from finishline.cli.screen import Screen
from finishline.client.errors import NotFound


@shows
def show(
    screen: Screen,
    name: Annotated[
        str, Argument(metavar="ID", help="Id of a benchmark, a submission or a verification.")
    ],
) -> int:
    """Show a benchmark, or a submission with its runs and verifications, or a verification.

    A path is checked as `check` does.
    """
    if Path(name).exists():
        return check(path=Path(name))
    with connect() as server:
        for kind in ("benchmarks", "submissions", "verifications"):
            try:
                view = server.get(f"/{kind}/{segment(name)}")
            except NotFound:
                continue
            if kind == "benchmarks":
                lines = [] if screen.as_json else [*benchmark_lines(server, view)]
            elif kind == "submissions":
                lines = [*shown_submission_lines(view, {})]
            else:
                lines = [*verdict_lines(view)]
            screen.answer(view, lines)
            return ExitCode.OK
    raise CliError(
        f"{server.url} has no benchmark, submission or verification {name}. Hint: "
        f"`finishline board` lists benchmarks, `finishline board BENCHMARK` submissions.",
        exit_code=ExitCode.NOT_FOUND,
    )
