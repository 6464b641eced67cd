"""`finishline submit`: send a submission to the server."""

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from cli.client import ServerClient, View
from cli.commands.check import BenchmarkOption, DivisionOption, with_next_step
from cli.errors import CliError, ExitCode
from cli.options import DEFAULT_URL, Json, Token, Url
from cli.screen import open_screen
from cli.submission_files import SubmissionFiles, find_submission_files
from cli.submission_tables import submission_lines
from finishline.files import idempotency_key, open_parts


def submit(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="A submission's JSON, or the folder that has it.")
    ],
    benchmark: BenchmarkOption = None,
    division: DivisionOption = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Send a submission to the server. The same files sent twice are one submission."""
    files = find_submission_files(path)
    with ServerClient(url, token) as server:
        try:
            view = send_submission(server, files, benchmark=benchmark, division=division)
        except CliError as error:
            raise with_next_step(error) from error
    page = f"{server.url}/submissions/{view.get('id')}"
    open_screen(as_json=as_json).answer(view, [*submission_lines(view), page])
    return int(ExitCode.OK)


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
