"""`finishline submit`, `admin withdraw` and `admin waive`."""

from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from finishline.cli.answers import place_line, submission_lines, violation_lines
from finishline.cli.client import ServerClient, View, connect, segment
from finishline.cli.commands.check import (
    BenchmarkOption,
    DivisionOption,
    check_files,
    remark_lines,
    remarks_on,
    with_next_step,
)
from finishline.cli.commands.entry import submit_code
from finishline.cli.errors import CliError, ExitCode, UsageError
from finishline.cli.options import ROOT, BenchmarksDir, shows
from finishline.cli.rows import asks_server
from finishline.cli.screen import Screen
from finishline.client.errors import Problem
from finishline.client.files import (
    find_submission_files,
    form_parts,
    idempotency_key,
    is_code,
)


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
        bool, Option("--dry-run", help="Check and score it on the server, and store nothing.")
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
        Option(metavar="ID", help="Withdraw this submission of yours instead; its page stays."),
    ] = None,
    reason: Annotated[
        str | None, Option(help="Why it is withdrawn; shown on the submission's page.")
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
            _withdraw(server, screen, str(withdraw), "withdrawal", str(reason))
        return ExitCode.OK
    if is_code(path):
        if benchmark or division:
            raise UsageError(f"--benchmark, --division: expected for logs only; {path} is code.")
        return submit_code(
            screen, path, hardware_class=hardware_class, watch=watch, dry_run=dry_run
        )
    files = find_submission_files(path)
    remarks: tuple[Problem, ...] = ()
    with suppress(CliError, OSError):  # Of files that break a rule the server says which.
        scored = check_files(
            files,
            benchmarks_dir,
            benchmark=benchmark,
            division=division,
            url=ROOT.server,
            token=ROOT.token,
        )
        remarks = remarks_on(scored)
    screen.say(*remark_lines(remarks))
    with connect() as server:
        try:
            view = send_submission(
                server, path, benchmark=benchmark, division=division, dry_run=dry_run
            )
        except CliError as error:
            raise with_next_step(error) from error
        document = {**view, "remarks": [asdict(remark) for remark in remarks]}
        page = place_line(view) if dry_run else f"{server.url}/submissions/{view.get('id')}"
        screen.answer(document, [*submission_lines(view), page])
    return ExitCode.OK


def send_submission(
    server: ServerClient,
    path: Path,
    *,
    benchmark: str | None = None,
    division: str | None = None,
    dry_run: bool = False,
) -> View:
    """The server's view of the submission at a path, or its preview. Raises CliError."""
    files = find_submission_files(path)
    fields = {"benchmark": benchmark, "division": division}
    view: View
    view, _ = server.post_form(
        "/submissions" + ("?dry_run=true" if dry_run else ""),
        files=form_parts(files),
        fields={name: value for name, value in fields.items() if value is not None},
        key=idempotency_key(files, **fields),
    )
    return view


@asks_server
def withdraw(
    server: ServerClient,
    screen: Screen,
    submission: Annotated[str, Argument(help="Id of a submission.")],
    reason: Annotated[str, Option(help="Reason; shown on the submission's page.")],
    undo: Annotated[
        bool, Option("--undo", help="Reinstate the submission (organisers only).")
    ] = False,
) -> None:
    """Withdraw a submission from its board. Its page stays."""
    _withdraw(server, screen, submission, "reinstatement" if undo else "withdrawal", reason)


def _withdraw(server: ServerClient, screen: Screen, name: str, act: str, reason: str) -> None:
    view = server.post(f"/submissions/{segment(name)}/{act}", {"reason": reason})
    told = "is withdrawn; its page stays, unranked" if act == "withdrawal" else "ranks again"
    screen.answer(view, [f"Submission {view['id']} {told}."])


@asks_server
def waive(
    server: ServerClient,
    screen: Screen,
    submission: Annotated[str, Argument(help="Id of a submission that breaks the rule.")],
    rule: Annotated[str, Argument(help="Code of the rule, such as too_few_runs.")],
    reason: Annotated[str, Option(help="Reason; shown beside the result.")],
    undo: Annotated[bool, Option("--undo", help="Take the waiver back.")] = False,
) -> None:
    """Waive a rule for one submission, so that it may rank (organisers only)."""
    path = f"/submissions/{segment(submission)}/waivers"
    if undo:
        view = server.post(f"{path}/{segment(rule)}/revocation", {"reason": reason})
    else:
        view = server.post(path, {"rule": rule, "reason": reason})
    told = f"{rule} {'counts again' if undo else 'is waived'} for submission {view['id']}."
    screen.answer(view, [told, *violation_lines(view["result"], view["waivers"])])
