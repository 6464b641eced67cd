"""`finishline benchmark calibrate`: measure a reference, and its runs as TOML."""

import time
from collections.abc import Iterable
from typing import Annotated, Any

import typer
from typer import Argument, Option
from typer.core import TyperGroup

from finishline.cli.answers import calibration_lines
from finishline.cli.client import ServerClient, View, segment
from finishline.cli.commands.requests import COMMANDS
from finishline.cli.errors import ExitCode, UsageError
from finishline.cli.rows import asks_server
from finishline.cli.screen import Screen
from finishline.rules.benchmarks.definition_tables import ReferenceRun
from finishline.rules.text import count_text
from finishline.rules.verification.calibration import reference_run_toml

POLL_SECONDS = 1.0


class OrBenchmark(TyperGroup):
    """A group that begins with a command, or with the benchmark of a new calibration."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        return super().resolve_command(ctx, args if args[0] in self.commands else ["add", *args])


@asks_server
def calibrate(
    server: ServerClient,
    screen: Screen,
    benchmark: Annotated[str, Argument(help="Id of a benchmark.")],
    batch_sizes: Annotated[str | None, Option(help="For example 32,64,128.")] = None,
    runs: Annotated[int | None, Option(min=1, max=200, help="Runs at each batch size.")] = None,
    precision: Annotated[
        str | None, Option(help="fp32, tf32, bf16 or fp16 (default: the reference's).")
    ] = None,
    continued: Annotated[
        str | None, Option("--continue", help="Continue this calibration.")
    ] = None,
    watch: Annotated[bool, Option("--watch", help="Wait until every run is trained.")] = False,
    reason: Annotated[str | None, Option(help="Reason. The calibration shows it.")] = None,
) -> ExitCode:
    """Train the reference to its end with secret seeds, many times (organisers only).

    `benchmark calibrate digits ...` is the same as `benchmark calibrate add digits ...`.

    With --watch the exit code is 0 if every run was trained and 3 if some failed.
    """
    try:
        sizes = [int(part) for part in batch_sizes.split(",")] if batch_sizes is not None else None
    except ValueError as error:
        raise UsageError(
            f"--batch-sizes {batch_sizes}: expected whole numbers between commas, such as "
            "32,64,128."
        ) from error
    if continued is not None and precision is not None:
        raise UsageError(
            "--continue goes on in the calibration's own precision. Remove --precision."
        )
    if continued is None and (sizes is None or runs is None):
        raise UsageError(
            "A new calibration needs --batch-sizes and --runs, for example "
            f"`finishline benchmark calibrate {benchmark} --batch-sizes 32,64 --runs 20`."
        )
    body: dict[str, object] = {"batch_sizes": sizes, "runs": runs}
    if continued is None:
        body |= {"benchmark": benchmark, "reason": reason}
        body |= {} if precision is None else {"precision": precision}
        view = server.post("/calibrations", body)
    else:
        path = f"/calibrations/{segment(continued)}"
        if (found := server.get(path)["benchmark"]) != benchmark:
            raise UsageError(f"Calibration {continued} belongs to {found}, not to {benchmark}.")
        view = server.post(f"{path}/continuation", body)
    if watch:
        view = _wait(server, screen, view)
    screen.answer(view, calibration_lines(view, {}))
    return ExitCode.OK if view["state"] == "done" or not watch else ExitCode.NOT_VERIFIED


def _wait(server: ServerClient, screen: Screen, view: View) -> View:
    said = None
    while True:
        trained = sum(int(each["finished"]) + int(each["under_way"]) for each in view["sizes"])
        if trained != said:
            said = trained
            screen.say(f"  {trained} of {count_text(view['runs_planned'], 'run')} trained")
        if view["state"] != "running":
            return view
        time.sleep(POLL_SECONDS)
        view = server.get(f"/calibrations/{segment(str(view['id']))}")


@asks_server
def show_calibration(
    server: ServerClient,
    screen: Screen,
    calibration: Annotated[str, Argument(metavar="ID", help="Id of a calibration.")],
    toml: Annotated[
        bool, Option("--toml", help="Print its runs in the format of a benchmark file.")
    ] = False,
    runs: Annotated[bool, Option("--runs", help="With --json: include every run.")] = False,
) -> None:
    """Show epochs to converge by batch size, or the runs themselves."""
    path = f"/calibrations/{segment(calibration)}"
    view = server.get(f"{path}/runs" if toml or (runs and screen.as_json) else path)
    if toml and not screen.as_json:
        # A console would wrap the long lines.
        typer.echo("\n".join(calibration_toml(view)))
    else:
        screen.answer(view, [] if screen.as_json else calibration_lines(view, {}))


def calibration_toml(view: View) -> Iterable[str]:
    """Write the completed runs as the `[[reference_runs]]` of a benchmark file."""
    yield (
        f"# Calibration {view['id']} of {view['benchmark']}, version {view['version']},\n"
        f"# requested on {str(view['created_at'])[:10]}; runs {view['runs_sha256']}."
    )
    systems = {
        (run["system"]["processor"], *sorted(run["system"]["software"].items()))
        for run in view["runs"]
    }
    for processor, *software in sorted(systems):
        words = ", ".join([processor, *(f"{name} {version}" for name, version in software)])
        yield f"# Made on {' '.join(words.split())}."
    for run in view["runs"]:
        if run["status"] in ("reached", "not_reached"):
            quality = tuple(float(value) for value in run["quality"])
            yield "\n" + reference_run_toml(
                ReferenceRun(batch_size=run["batch_size"], seed=run["seed"], quality=quality)
            )


BENCHMARK, CALIBRATE = COMMANDS["benchmark"], COMMANDS["benchmark calibrate"]
CALIBRATE.info.cls = OrBenchmark
CALIBRATE.command("add")(calibrate)
CALIBRATE.command("show")(show_calibration)
