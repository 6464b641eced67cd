"""`finishline rescore`: results derived again from their raw logs, by the server."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import httpx2
import typer
from rich.console import Console, RenderableType
from rich.progress import Progress
from rich.text import Text

from finishline.cli.client import ServerClient, View
from finishline.cli.errors import CliError, ExitCode
from finishline.cli.options import DEFAULT_URL, Json, Token, Url
from finishline.cli.screen import open_screen
from finishline.rules.text import count_text

# A server ends a batch after a few seconds, but a single submission may have a hundred long logs.
TIMEOUT = httpx2.Timeout(300.0, connect=5.0)
Advance = Callable[[int, int], None]


@dataclass
class Report:
    """Sum of the batches so far; `next_cursor` starts the next one, if any."""

    definition: str
    dry_run: bool
    submissions: int = 0
    unchanged: int = 0
    changed: list[View] = field(default_factory=list)
    failed: list[View] = field(default_factory=list)
    total: int | None = None
    next_cursor: str | None = None

    def take(self, batch: View) -> None:
        """Count a batch in."""
        self.submissions += batch["submissions"]
        self.unchanged += batch["unchanged"]
        self.changed += batch["changed"]
        self.failed += batch["failed"]
        self.total = batch["total"]
        self.next_cursor = batch["next_cursor"]


def rescore(
    benchmark: Annotated[
        str | None, typer.Option("--benchmark", help="Only submissions of this benchmark.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the changes without storing them.")
    ] = False,
    definition: Annotated[
        Literal["stored", "current"],
        typer.Option(
            "--definition", help="Score by each result's own definition, or the server's."
        ),
    ] = "stored",
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Score results again from their raw logs and store the changes (organisers only).

    A second run changes nothing. If one is interrupted, run it again.
    """
    report = Report(definition=definition, dry_run=dry_run)
    body = {"benchmark": benchmark, "dry_run": dry_run, "definition": definition}
    screen = open_screen(as_json=as_json)
    try:
        with ServerClient(url, token, timeout=TIMEOUT) as server, _bar(as_json) as advance:
            _ask(server, body, report, advance)
    except (CliError, KeyboardInterrupt):
        if report.submissions:
            screen.answer(_document(report), _lines(report))
        raise
    screen.answer(_document(report), _lines(report))
    return int(ExitCode.REFUSED if report.failed else ExitCode.OK)


def _ask(server: ServerClient, body: View, report: Report, advance: Advance) -> None:
    """Batch after batch, until the server has no more."""
    while report.total is None or report.next_cursor is not None:
        report.take(server.post("/rescore", body | {"cursor": report.next_cursor}))
        advance(report.submissions, report.total or 0)


@contextmanager
def _bar(as_json: bool) -> Iterator[Advance]:
    """A bar on a terminal, nothing elsewhere."""
    if as_json or not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("Rescoring", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _document(report: Report) -> dict[str, Any]:
    table = dict(vars(report))
    return table | {"total": report.total or 0, "complete": table.pop("next_cursor") is None}


def _lines(report: Report) -> Iterator[RenderableType]:
    for changed in report.changed:
        yield Text(f"{changed['id']}:")
        for each in changed["changes"]:
            yield Text(f"  {each['field']}: {each['before']} -> {each['after']}")
    for failed in report.failed:
        yield Text.assemble(("failed", "red"), f" {failed['id']}: {failed['error']}")
    verb = "would change" if report.dry_run else "changed"
    all_of_them = count_text(report.total or 0, "submission")
    yield Text(
        f"{report.submissions} of {all_of_them} rescored under the "
        f"{report.definition} definitions: {len(report.changed)} {verb}, "
        f"{report.unchanged} unchanged, {len(report.failed)} failed."
    )
    if report.next_cursor is not None:
        yield Text("The rescoring ended early. Run it again for the rest.")
