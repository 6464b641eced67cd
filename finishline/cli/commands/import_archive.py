"""`finishline import`: a published archive, handed to a running server."""

import os
import sys
import time
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.progress import track
from rich.text import Text

from finishline.cli.checkout import commit_of
from finishline.cli.client import ServerClient
from finishline.cli.definitions import read_benchmarks
from finishline.cli.errors import INTERRUPTED, CliError, ExitCode
from finishline.cli.importing import TIMEOUT, Outcome, Sender, describe, send_all
from finishline.cli.options import DEFAULT_URL, BenchmarksDir, Json, Token, Url
from finishline.cli.processes import noted_interrupts
from finishline.cli.records import find_in, problem_text, without_collector
from finishline.cli.screen import as_it_is, open_screen
from finishline.rules.archive.files import COMMIT, source_name
from finishline.rules.archive.import_plan import Kind, of_kind, plan_import
from finishline.rules.archive.records import Found
from finishline.rules.text import count_text

MOST_WARNINGS = 3  # Of one submission, on the screen.
STATES = ("imported", "already_there", "refused", "failed", "skipped")
EXAMPLES = {
    Kind.DAWNBENCH: "a DAWNBench tree (TASK/train/*.json)",
    Kind.MLPERF: "an MLPerf package (ORG/results/SYSTEM/BENCHMARK/result_0.txt)",
}
What = Annotated[Kind, typer.Argument(metavar="dawnbench|mlperf", help="Kind of archive.")]
Where = Annotated[Path, typer.Argument(metavar="PATH", help="Path of the archive.")]
Published = Annotated[
    datetime | None,
    typer.Option(
        "--published",
        formats=["%Y-%m-%d"],
        help="Publication date of an MLPerf round that the server does not know.",
    ),
]
Commit = Annotated[
    str | None,
    typer.Option(
        "--commit",
        help="Commit of the archive, if PATH is not a git checkout. Only results of a known commit "
        "are numbered.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="List the uploads without sending them.")]


def import_archive(
    kind: What,
    path: Where,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
    dry_run: DryRun = False,
    published: Published = None,
    commit: Commit = None,
    benchmarks_dir: BenchmarksDir = None,
) -> int:
    """Send the submissions in a published archive to the server (organisers only).

    Stored submissions are skipped, so an interrupted import continues when it is run again.
    Ctrl-C waits for the uploads in progress, then lists the outcome of each.
    """
    if published is not None and kind is Kind.DAWNBENCH:
        raise CliError(
            "--published is for MLPerf rounds; each DAWNBench entry has its own date.",
            exit_code=ExitCode.REFUSED,
        )
    day = None if published is None else published.date()
    commit = _commit(commit) or commit_of(path)
    benchmarks = read_benchmarks(benchmarks_dir)
    found = of_kind(find_in(path), kind)
    if not found.submissions:
        raise CliError(
            f"Nothing to import at {path}. Expected {EXAMPLES[kind]}.",
            exit_code=ExitCode.REFUSED,
        )
    started = time.monotonic()
    outcomes: list[Outcome] = []
    ended: CliError | None = None
    with noted_interrupts() as interrupts, ServerClient(url, token, timeout=TIMEOUT) as server:
        sender = Sender(server, found.archive, interrupts.stopping, commit=commit)
        dry = partial(describe, archive=found.archive, benchmarks=benchmarks)
        send = dry if dry_run else sender.send
        planned = without_collector(plan_import(found, benchmarks, published=day))
        sending = send_all(planned, send, interrupts)
        try:
            outcomes.extend(_watched(sending, found, as_json))
        except CliError as error:
            ended = error
        interrupted = interrupts.stopping.is_set()
    left = _not_tried(found, outcomes)
    seconds = time.monotonic() - started
    document = _document(outcomes, left, seconds, dry_run=dry_run) | {"commit": commit}
    lines = [*_lines(outcomes, left, seconds, dry_run=dry_run), _source_line(commit)]
    open_screen(as_json=as_json).answer(document, lines)
    if interrupts.leaving:  # Else Python waits for the requests that were left.
        sys.stdout.flush()
        os._exit(INTERRUPTED)
    if ended is not None:
        raise ended
    return INTERRUPTED if interrupted else _exit_code(outcomes)


def _commit(commit: str | None) -> str | None:
    if commit is not None and not COMMIT.fullmatch(commit):
        raise CliError(
            f"--commit {commit!r}: expected the 40 hex digits that `git rev-parse HEAD` prints.",
            exit_code=ExitCode.USAGE,
        )
    return commit


def _source_line(commit: str | None) -> str:
    name = None if commit is None else source_name(commit)
    if name is not None:
        return f"Source: {name} at {commit}."
    found = "PATH is not a git checkout" if commit is None else f"unknown commit {commit}"
    return (
        f"Source not checked: {found}. The results are not numbered; to number them, import again "
        "from a checkout of the published repository, or with --commit."
    )


def _not_tried(found: Found, outcomes: Iterable[Outcome]) -> list[str]:
    """Submissions that an import which ended early did not try."""
    tried = {outcome.path for outcome in outcomes}
    return [each.path for each in found.submissions if each.path not in tried]


def _watched(outcomes: Iterable[Outcome], found: Found, as_json: bool) -> Iterable[Outcome]:
    """The outcomes, with a bar on a terminal."""
    if as_json or not sys.stderr.isatty():
        return outcomes
    console = Console(stderr=True)
    total = len(found.submissions)
    return track(outcomes, "Importing", total=total, console=console, transient=True)


def _exit_code(outcomes: Iterable[Outcome]) -> int:
    states = {outcome.state for outcome in outcomes}
    if "failed" in states:
        return int(ExitCode.SERVER)
    return int(ExitCode.REFUSED if "refused" in states else ExitCode.OK)


def _document(
    outcomes: list[Outcome], left: list[str], seconds: float, *, dry_run: bool
) -> dict[str, Any]:
    states = ("to_import", "refused", "skipped") if dry_run else STATES
    lists = {
        state: [outcome.document() for outcome in outcomes if outcome.state == state]
        for state in states
    }
    counted = {"runs_imported": _runs(outcomes, "imported"), "seconds": seconds}
    return counted | lists | {"not_tried": [{"path": path} for path in left]}


def _runs(outcomes: Iterable[Outcome], state: str) -> int:
    return sum(outcome.runs for outcome in outcomes if outcome.state == state)


def _lines(
    outcomes: list[Outcome], left: list[str], seconds: float, *, dry_run: bool
) -> Iterable[RenderableType]:
    for outcome in outcomes:
        if outcome.state == "to_import":
            runs = count_text(outcome.runs, "run") if outcome.runs else "inference, no run"
            yield as_it_is(f"would import {outcome.path} ({runs})")
    for state, style in (("refused", "red"), ("failed", "red"), ("skipped", "yellow")):
        for outcome in outcomes:
            if outcome.state == state:
                problems = len(outcome.problems)
                why = count_text(problems, "problem") if problems else outcome.reason
                yield as_it_is((state, style), f" {outcome.path}: {why}")
                yield from (as_it_is(f"  {problem}") for problem in outcome.problems)
    for outcome in outcomes:
        for problem in outcome.warnings[:MOST_WARNINGS]:
            yield as_it_is((problem_text(problem), "yellow"))
        if (more := len(outcome.warnings) - MOST_WARNINGS) > 0:
            yield as_it_is(f"{count_text(more, 'more warning')} of {outcome.path}: see --json")
    yield Text(_preview(outcomes) if dry_run else _summary(outcomes, seconds))
    if left:
        yield Text(
            f"{count_text(len(left), 'submission')} not sent: the import ended early. "
            "Run it again to continue; stored submissions are not sent twice."
        )


def _preview(outcomes: list[Outcome]) -> str:
    counts = Counter(outcome.state for outcome in outcomes)
    said = ", ".join(f"{counts[state]} {state}" for state in ("refused", "skipped"))
    return f"{counts['to_import']} to import, {said}; nothing was sent."


def _summary(outcomes: list[Outcome], seconds: float) -> str:
    counts = Counter(outcome.state for outcome in outcomes)
    runs = _runs(outcomes, "imported")
    said = ", ".join(f"{counts[state]} {state.replace('_', ' ')}" for state in STATES[1:])  # type: ignore[index]
    return (
        f"{count_text(counts['imported'], 'submission')} imported "
        f"with {count_text(runs, 'run')} in {seconds:.1f} s; {said}."
    )
