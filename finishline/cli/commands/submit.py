"""`finishline submit`: send a submission to the server."""

from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from finishline.cli.client import ServerClient, View
from finishline.cli.commands.check import (
    BenchmarkOption,
    DivisionOption,
    check_files,
    remark_lines,
    remarks_on,
    with_next_step,
)
from finishline.cli.errors import CliError, ExitCode, Problem
from finishline.cli.options import DEFAULT_BENCHMARKS, DEFAULT_URL, BenchmarksDir, Json, Token, Url
from finishline.cli.screen import open_screen
from finishline.cli.submission_files import SubmissionFiles, find_submission_files
from finishline.cli.submission_tables import submission_lines
from finishline.client.files import idempotency_key, open_parts


def submit(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="A submission's JSON, or the folder that has it.")
    ],
    benchmark: BenchmarkOption = None,
    division: DivisionOption = None,
    benchmarks_dir: BenchmarksDir = DEFAULT_BENCHMARKS,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Send a submission to the server. The same files sent twice are one submission."""
    files = find_submission_files(path)
    screen = open_screen(as_json=as_json)
    remarks = _remarks(files, benchmarks_dir, benchmark=benchmark, division=division)
    screen.say(*remark_lines(remarks))
    with ServerClient(url, token) as server:
        try:
            view = send_submission(server, files, benchmark=benchmark, division=division)
        except CliError as error:
            raise with_next_step(error) from error
    page = f"{server.url}/submissions/{view.get('id')}"
    document = {**view, "remarks": [asdict(remark) for remark in remarks]}
    screen.answer(document, [*submission_lines(view), page])
    return int(ExitCode.OK)


def _remarks(
    files: SubmissionFiles, benchmarks_dir: Path, *, benchmark: str | None, division: str | None
) -> tuple[Problem, ...]:
    """What `finishline check` would remark. None on what cannot be scored here: the server tells
    what is wrong with it, and may have a benchmark that is not in the folder.
    """
    try:
        return remarks_on(
            check_files(
                files, benchmarks_dir=benchmarks_dir, benchmark=benchmark, division=division
            )
        )
    except CliError:
        return ()


def send_submission(
    server: ServerClient,
    files: SubmissionFiles,
    *,
    benchmark: str | None = None,
    division: str | None = None,
) -> View:
    """The server's view of the submission made of these files. Raises CliError."""
    fields = {"benchmark": benchmark, "division": division}
    with ExitStack() as opened:
        view, _ = server.post_once(
            "/submissions",
            files=open_parts(files.upload, opened),
            fields={name: value for name, value in fields.items() if value is not None},
            key=idempotency_key(files.upload, **fields),
        )
    return view
