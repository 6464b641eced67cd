"""`finishline submit`: send logs or code to the server."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from rich.console import RenderableType
from typer import Argument, Option

from finishline.cli.answers import (
    place_line,
    submission_lines,
    time_lines,
    verdict_lines,
)
from finishline.cli.client import ServerClient, View, connect, segment
from finishline.cli.commands.check import (
    BenchmarkOption,
    DivisionOption,
    check_files,
    remark_lines,
    remarks_on,
    with_next_step,
)
from finishline.cli.commands.code import open_code
from finishline.cli.errors import CliError, ExitCode, UsageError
from finishline.cli.options import ROOT, BenchmarksDir, shows
from finishline.cli.screen import Screen, as_it_is
from finishline.cli.watching import verdict_code, watch_verification
from finishline.client.errors import FinishlineError, Problem
from finishline.client.files import find_submission_files, is_code, send_code, send_logs
from finishline.rules.verification.purposes import ENTRY


@shows
def submit(
    screen: Screen,
    path: Annotated[
        Path | None,
        Argument(metavar="PATH", help="A submission's JSON, its folder, or a code folder."),
    ] = None,
    benchmark: BenchmarkOption = None,
    division: DivisionOption = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Only check and score it on the server.")
    ] = False,
    hardware_class: Annotated[
        str | None,
        Option(
            "--class",
            help="Hardware class to measure code on (default: of a worker with the environment).",
        ),
    ] = None,
    watch: Annotated[
        bool, Option("--watch/--no-watch", help="Follow the measurement of code to its verdict.")
    ] = True,
    withdraw: Annotated[
        str | None,
        Option(metavar="ID", help="Withdraw this submission of yours instead. Its page stays."),
    ] = None,
    reason: Annotated[
        str | None, Option(help="Why it is withdrawn. The submission's page shows it.")
    ] = None,
    benchmarks_dir: BenchmarksDir = None,
) -> ExitCode:
    """Send logs or code to the server. The same files sent twice are one submission.

    Code, a folder with a training.toml, is checked as `check` does. Then a worker trains it in a
    sandbox, and its time ranks. Its source is published with the first verdict.
    """
    if (path is None) == (withdraw is None) or (withdraw is None) != (reason is None):
        raise UsageError("Pass a PATH, or --withdraw ID with a --reason.")
    if path is None:
        with connect() as server:
            view = server.post(
                f"/submissions/{segment(str(withdraw))}/withdrawal", {"reason": reason}
            )
            screen.answer(view, [f"Submission {view['id']} is withdrawn. Its page stays."])
        return ExitCode.OK
    if not is_code(path):
        form = {"benchmark": benchmark, "division": division}
        return _submit_logs(screen, path, form, benchmarks_dir, dry_run=dry_run)
    if benchmark or division:
        raise UsageError(f"--benchmark, --division: expected for logs only; {path} is code.")
    code = open_code(path, benchmarks=None)
    with connect() as server:
        submission, repeated = send_code(
            server, code.files, hardware_class=hardware_class, dry_run=dry_run
        )
        if dry_run:
            told = "Nothing was sent. A worker would measure it."
            screen.answer(submission, [*submission_lines(submission), told])
            return ExitCode.OK
        told = "Submitted before" if repeated else "Submitted"
        screen.say(as_it_is(f"{told}: {code.manifest.title}, sha256 {code.sha256}"))
        if repeated:
            screen.say(f"More runs: finishline verify {submission['id']} --again")
        return _follow(server, screen, submission, watch=watch)


def _submit_logs(
    screen: Screen,
    path: Path,
    form: Mapping[str, str | None],
    benchmarks_dir: Path | None,
    *,
    dry_run: bool,
) -> ExitCode:
    files = find_submission_files(path)
    remarks: tuple[Problem, ...] = ()
    # The server reports the files that break a rule.
    with suppress(CliError, FinishlineError, OSError):
        scored = check_files(
            files,
            benchmarks_dir,
            benchmark=form["benchmark"],
            division=form["division"],
            url=ROOT.server,
            token=ROOT.token,
        )
        remarks = remarks_on(scored)
    with connect() as server:
        try:
            view, repeated = send_logs(server, files, form=form, dry_run=dry_run)
        except FinishlineError as error:
            raise with_next_step(error) from error
        document = {**view, "remarks": [asdict(remark) for remark in remarks]}
        page = place_line(view) if dry_run else f"{server.url}/submissions/{view.get('id')}"
        lines = [*submission_lines(view), page, *remark_lines(remarks)]
        if repeated and not dry_run:
            lines.insert(0, f"Submitted before, as {view['id']}. Nothing changed.")
        elif not dry_run:
            lines += _next_lines(view)
        screen.answer(document, lines)
    return ExitCode.OK


def _next_lines(view: View) -> list[RenderableType]:
    """Say how to have a log submission measured, where that can be asked for."""
    if view.get("duplicate_of"):
        return [as_it_is("Change a setting, such as the batch size, to have yours measured.")]
    can_be = view.get("kind") == "inference" or view.get("trained_with") == "reference"
    if not can_be or not (view.get("result") or {}).get("eligible"):
        return []
    return [as_it_is(f"Next: finishline verify {view['id']} --watch")]


def _follow(server: ServerClient, screen: Screen, submission: View, *, watch: bool) -> ExitCode:
    page = as_it_is(f"{server.url}/submissions/{submission['id']}")
    if original := submission.get("duplicate_of"):
        words = (
            f"It is a duplicate of submission {original}: the same program, but for names and "
            "layout. Only the earlier one is trained and ranked. Change the program to have yours "
            "measured."
        )
        screen.answer(submission, [as_it_is(words), page])
        return ExitCode.OK
    ids = [str(each["id"]) for each in submission["verifications"] if each["kind"] == ENTRY.name]
    if not ids:
        raise CliError(
            f"Submission {submission['id']} waits for no measurement; ask for one with "
            f"`finishline verify {submission['id']} --again`.",
            exit_code=ExitCode.NOT_VERIFIED,
        )
    measurement = server.get(f"/verifications/{segment(ids[-1])}")
    lines: list[RenderableType] = [f"Follow it: finishline verify {ids[-1]} --watch"]
    if watch:
        measurement = watch_verification(server, measurement, screen)
        submission = server.get(f"/submissions/{segment(str(submission['id']))}")
        lines = [*verdict_lines(measurement), *time_lines(submission)]
    screen.answer(submission | {"verification": measurement}, [*lines, page])
    return verdict_code(measurement) if watch else ExitCode.OK
