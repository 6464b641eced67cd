"""`finishline benchmark`: its phases, and its definition and files as a server has them."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from finishline.cli.board_tables import phases_table
from finishline.cli.client import ServerClient, View, segment
from finishline.cli.definitions import download_definition, download_files
from finishline.cli.errors import CliError, ExitCode
from finishline.cli.options import DEFAULT_URL, BenchmarksDir, Json, Token, Url
from finishline.cli.screen import open_screen
from finishline.definitions import FETCHED
from finishline.rules.submissions.submission import ScoredSubmission
from finishline.rules.trainings.manifest import FILE as MANIFEST

app = typer.Typer(
    no_args_is_help=True, help="A benchmark: its phases, its files, and one of your own."
)
NAMES = ("opens_at", "freezes_at", "closes_at", "embargo_until")
NO_DATE = "none"
Moment = str | None


@app.callback()
def _benchmark() -> None:
    """Show or set phases, fetch a benchmark from a server, make one of your own."""


@app.command("phases")
def phases(
    benchmark: Annotated[str, typer.Argument(help="Id of a benchmark.")],
    opens: Annotated[
        Moment,
        typer.Option(
            "--opens", metavar="MOMENT", help="Submissions open, such as 2026-12-01T09:00Z."
        ),
    ] = None,
    freezes: Annotated[
        Moment, typer.Option("--freezes", metavar="MOMENT", help="The rules freeze.")
    ] = None,
    closes: Annotated[
        Moment, typer.Option("--closes", metavar="MOMENT", help="Submissions close.")
    ] = None,
    embargo: Annotated[
        Moment, typer.Option("--embargo", metavar="MOMENT", help="The embargo on results ends.")
    ] = None,
    reason: Annotated[Moment, typer.Option("--reason", help="Why; kept in the audit log.")] = None,
    unfreeze: Annotated[
        bool, typer.Option("--unfreeze", help="Allow --freezes after the freeze has begun.")
    ] = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Show the phases of a benchmark, or set some of its dates (organisers only).

    Omitted dates stay unchanged; `none` removes a date.
    """
    given = dict(zip(NAMES, (opens, freezes, closes, embargo), strict=True))
    changes = {name: value for name, value in given.items() if value is not None}
    path = f"/benchmarks/{segment(benchmark)}/phases"
    if changes and not reason:
        raise CliError("Give a --reason with the dates.", exit_code=ExitCode.USAGE)
    with ServerClient(url, token) as server:
        found = server.get(path)
        if changes:
            body = {name: found["phases"][name] for name in NAMES} | {
                name: None if value == NO_DATE else value for name, value in changes.items()
            }
            server.post(path, body | {"reason": reason, "unfreeze": unfreeze})
            found = server.get(path)
    open_screen(as_json=as_json).answer(found, _lines(found))
    return int(ExitCode.OK)


def _lines(found: View) -> list[RenderableType]:
    told = Text.assemble((f"{found['benchmark']}  ", "bold"), found["phases"]["sentence"])
    return [told, *([phases_table(found["history"])] if found["history"] else [])]


@app.command("fetch")
def fetch(
    benchmark: Annotated[str, typer.Argument(help="Id of a benchmark of the server.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Overwrite a file that differs.")
    ] = False,
    benchmarks_dir: BenchmarksDir = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Download a server's definition, and its task and data, into the folder of benchmarks here.

    `run`, `check` and `training run` read it.
    """
    with ServerClient(url, token) as server:
        content, found = download_definition(server, benchmark)
        files = download_files(server, found)
    folder = benchmarks_dir or FETCHED
    path = folder / f"{found.benchmark_id}.toml"
    for name, file in files.items():
        _write(folder / found.benchmark_id / name, file, replace=replace)
    _write(path, content, replace=replace)
    document = {
        "benchmark": found.benchmark_id,
        "path": str(path),
        "sha256": found.sha256,
        "files": sorted(files),
    }
    own = folder / found.benchmark_id
    task = f" Its task and data: {own}." if files else ""
    lines = [f"Wrote {path}: {found.benchmark_id} from {url} ({found.sha256[:12]}).{task}"]
    if f"reference/{MANIFEST}" in files:
        lines.append(f"Next: copy {own / 'reference'}, and begin a package of your own with it.")
    open_screen(as_json=as_json).answer(document, lines)
    return int(ExitCode.OK)


def _write(path: Path, content: bytes, *, replace: bool) -> None:
    try:
        if path.exists() and path.read_bytes() != content and not replace:
            raise CliError(
                f"{path} differs from the server's. Compare them, or overwrite the file "
                "with --replace.",
                exit_code=ExitCode.REFUSED,
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise CliError(
            f"{path} cannot be written ({error.strerror}); name another folder with "
            "--benchmarks-dir.",
            exit_code=ExitCode.REFUSED,
        ) from error


def ask_phase(url: str, token: str | None, scored: ScoredSubmission) -> tuple[View, list[Text]]:
    """Phase of a checked submission's benchmark on a server, as JSON and in sentences.

    A server that does not answer is no fault of the submission's.
    """
    benchmark_id = scored.claim.benchmark_id
    try:
        with ServerClient(url, token) as server:
            found: dict[str, Any] = server.get(f"/benchmarks/{segment(benchmark_id)}")
    except CliError as error:
        told = f"The phase of {benchmark_id} is not known: {error.message}"
        return {"error": error.message}, [Text(told, "yellow")]
    phases = found.get("phases") or {}
    style = "" if phases.get("takes_submissions", True) else "bold red"
    lines = [Text(f"{benchmark_id} at {url}: {phases.get('sentence', 'no dates')}", style)]
    if found.get("sha256") != scored.result.benchmark_sha256:
        lines.append(
            Text(
                f"The server scores by another definition, {str(found.get('sha256'))[:12]}; "
                f"this check used {scored.result.benchmark_sha256[:12]}.",
                "yellow",
            )
        )
    return {"phases": phases, "benchmark_sha256": found.get("sha256")}, lines
