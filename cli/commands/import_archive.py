"""`finishline import`: a published archive, handed to a running server."""

import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.progress import track
from rich.text import Text

from cli.client import ServerClient
from cli.errors import CliError, ExitCode
from cli.import_plan import Kind, of_kind, plan_import
from cli.importing import TIMEOUT, Outcome, Sender, describe, send_all
from cli.options import DEFAULT_BENCHMARKS, DEFAULT_URL, BenchmarksDir, Json, Token, Url
from cli.records import Found, find_in
from cli.screen import open_screen
from cli.training import read_benchmarks

STATES = ("imported", "already_there", "refused", "failed", "skipped")
EXAMPLES = {
    Kind.DAWNBENCH: "a DAWNBench tree (TASK/train/*.json)",
    Kind.MLPERF: "an MLPerf package (ORG/results/SYSTEM/BENCHMARK/result_0.txt)",
}
What = Annotated[Kind, typer.Argument(metavar="dawnbench|mlperf", help="What the archive is.")]
Where = Annotated[Path, typer.Argument(metavar="PATH", help="Where the archive is.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be sent; send nothing.")]


def import_archive(
    kind: What,
    path: Where,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
    dry_run: DryRun = False,
    benchmarks_dir: BenchmarksDir = DEFAULT_BENCHMARKS,
) -> int:
    """Send the submissions in a published archive to the server (organisers).

    What is there already is not sent twice, so an import that was interrupted goes on when it is
    run again.
    """
    benchmarks = read_benchmarks(benchmarks_dir)
    found = of_kind(find_in(path), kind)
    if not found.submissions:
        raise CliError(
            f"There is nothing to import at {path}; name {EXAMPLES[kind]}.",
            exit_code=ExitCode.REFUSED,
        )
    started = time.monotonic()
    planned = plan_import(found, benchmarks)
    if dry_run:
        outcomes = [
            *_watched(send_all(planned, lambda each: describe(each, found.archive)), found, as_json)
        ]
    else:
        with ServerClient(url, token, timeout=TIMEOUT) as server:
            sender = Sender(server, found.archive)
            outcomes = [*_watched(send_all(planned, sender.send), found, as_json)]
    seconds = time.monotonic() - started
    document = _document(outcomes, seconds, dry_run=dry_run)
    open_screen(as_json=as_json).answer(document, _lines(outcomes, seconds))
    return _exit_code(outcomes)


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


def _document(outcomes: list[Outcome], seconds: float, *, dry_run: bool) -> dict[str, Any]:
    states = ("to_import", "refused", "skipped") if dry_run else STATES
    lists = {
        state: [outcome.document() for outcome in outcomes if outcome.state == state]
        for state in states
    }
    return {"runs_imported": _runs(outcomes, "imported"), "seconds": seconds} | lists


def _runs(outcomes: Iterable[Outcome], state: str) -> int:
    return sum(outcome.runs for outcome in outcomes if outcome.state == state)


def _lines(outcomes: list[Outcome], seconds: float) -> Iterable[RenderableType]:
    for outcome in outcomes:
        if outcome.state == "to_import":
            runs = _count(outcome.runs, "run") if outcome.runs else "inference, no run"
            yield Text(f"would import {outcome.path} ({runs})")
    for state, style in (("refused", "red"), ("failed", "red"), ("skipped", "yellow")):
        for outcome in outcomes:
            if outcome.state == state:
                problems = len(outcome.problems)
                why = _count(problems, "problem") if problems else outcome.reason
                yield Text.assemble((state, style), f" {outcome.path}: {why}")
                yield from (Text(f"  {problem}") for problem in outcome.problems)
    yield Text(_summary(outcomes, seconds))


def _summary(outcomes: list[Outcome], seconds: float) -> str:
    counts = Counter(outcome.state for outcome in outcomes)
    if counts["to_import"]:
        return f"{counts['to_import']} to import, {counts['skipped']} skipped; nothing was sent."
    runs = _runs(outcomes, "imported")
    said = ", ".join(f"{counts[state]} {state.replace('_', ' ')}" for state in STATES[1:])  # type: ignore[index]
    return (
        f"{_count(counts['imported'], 'submission')} imported with {_count(runs, 'run')} in "
        f"{seconds:.1f} s; {said}."
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"
