"""`finishline import`: send a published archive to a running server."""

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import httpx2
import orjson
from rich.console import Console, RenderableType
from rich.progress import track
from typer import Argument, Option

from finishline.cli.client import WHEN_TOLD, ServerClient, connect
from finishline.cli.definitions import read_benchmarks
from finishline.cli.errors import CliError, ExitCode, UsageError
from finishline.cli.options import BenchmarksDir, shows
from finishline.cli.records import open_archive, problem_text
from finishline.cli.screen import Screen, as_it_is
from finishline.client.errors import (
    FinishlineError,
    NoAnswer,
    NotAllowed,
    NotFound,
    NotSignedIn,
    Problem,
    TooManyRequests,
    Unavailable,
    problems_of,
)
from finishline.client.transport import FilePart
from finishline.places import commit_of
from finishline.rules.archive.files import COMMIT, Archive, find_source
from finishline.rules.archive.import_plan import (
    Kind,
    Parcel,
    Unsent,
    key_of,
    of_kind,
    of_severity,
    plan_import,
    plan_nanogpt,
)
from finishline.rules.archive.nanogpt import find_folders, read_readme
from finishline.rules.archive.score import find_scorable
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.logs.text import MAX_FILE_BYTES
from finishline.rules.scoring.scoring import Result
from finishline.rules.submissions.submission import score_submission
from finishline.rules.text import count_text

RETRIES = replace(WHEN_TOLD, count=4, only_told=False)
# A server scores an upload before it responds.
TIMEOUT = httpx2.Timeout(120.0, connect=5.0)
# The server refuses everything, so the others are skipped.
FINAL = (NotSignedIn, NotAllowed, NotFound, NoAnswer)
MOST_WARNINGS = 3  # Of one submission, on the screen.
STATES = ("imported", "already_there", "refused", "failed", "skipped")
EXAMPLES = {
    Kind.DAWNBENCH: "a DAWNBench tree (TASK/train/*.json)",
    Kind.MLPERF: "an MLPerf package (ORG/results/SYSTEM/BENCHMARK/result_0.txt)",
    Kind.NANOGPT: "the records of modded-nanogpt (records/track_1_short/*/*.txt)",
}


@shows
def import_archive(
    screen: Screen,
    kind: Annotated[Kind, Argument(metavar="|".join(Kind), help="Kind of archive.")],
    path: Annotated[Path, Argument(metavar="PATH", help="Path of the archive.")],
    dry_run: Annotated[bool, Option("--dry-run", help="Only list the uploads.")] = False,
    published: Annotated[
        datetime | None,
        Option(
            formats=["%Y-%m-%d"],
            help="Publication date of an MLPerf round unknown to the server.",
        ),
    ] = None,
    commit: Annotated[
        str | None,
        Option(
            help="Commit of the archive (default: from the git checkout at PATH). Only results of "
            "a known commit are numbered."
        ),
    ] = None,
    benchmarks_dir: BenchmarksDir = None,
) -> ExitCode:
    """Send the submissions in a published archive to the server (organisers only).

    Stored submissions are skipped, so an interrupted import continues when it is run again.
    Ctrl-C ends it with the outcome of each.
    """
    if published is not None and kind is not Kind.MLPERF:
        raise CliError("--published is for MLPerf rounds. Other entries have their own dates.")
    if commit is not None and not COMMIT.fullmatch(commit):
        raise UsageError(
            f"--commit {commit!r}: expected the 40 hex digits that `git rev-parse HEAD` prints."
        )
    commit = commit or commit_of(path)
    benchmarks = read_benchmarks(benchmarks_dir)
    day = None if published is None else published.date()
    archive = open_archive(path)
    planned: Iterable[Parcel | Unsent]
    if kind is Kind.NANOGPT:
        folders = find_folders(archive)
        paths = [folder.id for folder in folders]
        planned = plan_nanogpt(folders, archive, read_readme(archive, path.resolve().parts))
    else:
        found = of_kind(find_scorable(archive, asked_for_file=not path.is_dir()), kind)
        paths = [each.path for each in found.submissions]
        planned = plan_import(found, benchmarks, published=day)
    if not paths:
        raise CliError(f"Nothing to import at {path}. Expected {EXAMPLES[kind]}.")
    started = time.monotonic()
    outcomes: list[Outcome] = []
    fits = True
    if not screen.as_json and sys.stderr.isatty():
        bar = Console(stderr=True)
        planned = track(planned, "Importing", total=len(paths), console=bar, transient=True)
    try:
        with connect(timeout=TIMEOUT, retries=RETRIES) as server:
            for each in planned:
                if isinstance(each, Unsent):
                    state = "refused" if each.problems else "skipped"
                    problems = _as_problems(each.problems)
                    outcome = Outcome(each.path, state, reason=each.reason, problems=problems)
                elif dry_run:
                    outcome = describe(each, archive, benchmarks)
                else:
                    outcome = send(server, each, archive, commit)
                warnings = of_severity(each.problems, "warning")
                known = isinstance(each, Unsent) or find_source(commit, each.board) is not None
                fits = fits and known
                numbered = None if outcome.eligible is None else outcome.eligible and known
                outcomes.append(replace(outcome, warnings=warnings, numbered=numbered))
    finally:  # An interrupted or refused import reports its progress.
        left = paths[len(outcomes) :]
        seconds = time.monotonic() - started
        document = _document(outcomes, left, seconds, dry_run=dry_run) | {"commit": commit}
        lines = [*_lines(outcomes, left, seconds, dry_run=dry_run), _source_line(commit, fits=fits)]
        screen.answer(document, lines)
    states = {outcome.state for outcome in outcomes}
    if "failed" in states:
        return ExitCode.SERVER
    return ExitCode.REFUSED if "refused" in states else ExitCode.OK


@dataclass(frozen=True)
class Outcome:
    """Outcome of one submission. `reason` says why the server lacks it.

    `warnings` are harmless. `numbered` is whether it ranks, by its rules and its known source.
    """

    path: str
    state: str
    runs: int = 0
    submission_id: str | None = None
    eligible: bool | None = None
    numbered: bool | None = None
    reason: str | None = None
    problems: Sequence[Problem] = ()
    claim: Mapping[str, Any] | None = None
    warnings: Sequence[Mapping[str, Any]] = ()


def describe(parcel: Parcel, archive: Archive, benchmarks: Mapping[str, Benchmark]) -> Outcome:
    """Return the outcome of a dry run: the upload, or why a server would refuse it."""
    try:
        claim = parcel.claim_json(archive)
        logs = {file.name: archive.small(file, limit=MAX_FILE_BYTES) for file in parcel.logs}
        scored = score_submission(
            claim,
            logs,
            benchmarks,
            file=parcel.claim_name,
            benchmark_id=parcel.benchmark_id,
            archive=True,
        )
    except RuleError as error:
        return _refused(parcel, error.problems[0].message, problems_of(error.problems))
    shown = parcel.fields | {"submission": orjson.loads(claim.removeprefix(b"\xef\xbb\xbf"))}
    broken = scored.result.violations if isinstance(scored.result, Result) else ()
    why = "; ".join(f"{each.message}; expected {each.expected}" for each in broken[:1]) or None
    runs, eligible = len(parcel.logs), scored.result.eligible
    return Outcome(parcel.path, "to_import", runs, eligible=eligible, reason=why, claim=shown)


def send(server: ServerClient, parcel: Parcel, archive: Archive, commit: str | None) -> Outcome:
    """Send a submission. Raises FinishlineError if the server would refuse all others too."""
    runs = len(parcel.logs)
    try:
        claim = parcel.claim_json(archive)
        key = key_of(parcel, claim, archive)
        files: list[FilePart] = [("submission", (parcel.claim_name, claim, "application/json"))]
        for file in parcel.logs:
            content = archive.small(file, limit=MAX_FILE_BYTES)
            files.append(("logs", (file.name, content, "text/plain")))
        # Outside the key: a later import may name the commit of stored submissions.
        source = {} if commit is None else {"source_commit": commit}
        fields = parcel.fields | source
        view, repeated = server.post_form("/submissions", files=files, fields=fields, key=key)
    except FINAL:
        raise
    except (TooManyRequests, Unavailable) as error:
        return Outcome(parcel.path, "failed", runs, reason=error.detail)
    except FinishlineError as error:
        return _refused(parcel, error.detail, error.problems)
    except RuleError as error:
        return _refused(parcel, "It cannot be read.", problems_of([error]))
    state = "already_there" if repeated else "imported"
    eligible = (view.get("result") or {}).get("eligible")
    return Outcome(parcel.path, state, runs, view.get("id"), eligible)


def _refused(parcel: Parcel, reason: str, problems: Iterable[Problem]) -> Outcome:
    """Return the server's problems, with paths for names, then other faults from our reading."""
    paths = parcel.paths
    given = [*problems] or [Problem(message=reason, file=parcel.path)]
    listed = [replace(each, file=paths.get(each.file or "", each.file)) for each in given]
    said = {(each.file, each.line, each.field) for each in listed}
    ours = _as_problems(of_severity(parcel.problems, "error"))
    listed += [each for each in ours if (each.file, each.line, each.field) not in said]
    return Outcome(parcel.path, "refused", len(parcel.logs), reason=reason, problems=listed)


def _as_problems(problems: Iterable[Mapping[str, Any]]) -> list[Problem]:
    names = ("message", "file", "line", "field", "expected")
    return [Problem(**{name: problem[name] for name in names}) for problem in problems]


def _source_line(commit: str | None, *, fits: bool) -> str:
    source = find_source(commit)
    if source is not None and fits:
        return f"Source: {source.name} at {commit}."
    found = "PATH is not a git checkout" if commit is None else f"unknown commit {commit}"
    found = f"commit {commit} is of {source.name}" if source is not None else found
    return (
        f"Source not checked: {found}. The results are not numbered; to number them, import again "
        "from a checkout of the published repository, or with --commit."
    )


def _document(
    outcomes: list[Outcome], left: list[str], seconds: float, *, dry_run: bool
) -> dict[str, Any]:
    states = ("to_import", "refused", "skipped") if dry_run else STATES
    lists: dict[str, list[dict[str, Any]]] = {state: [] for state in states}
    for table in map(asdict, outcomes):
        applying = {name: value for name, value in table.items() if value not in (None, [], ())}
        if (state := applying.pop("state")) in lists:
            lists[state].append(applying)
    counted = {"runs_imported": _runs_imported(outcomes), "seconds": seconds}
    return counted | lists | {"not_tried": [{"path": path} for path in left]}


def _runs_imported(outcomes: Iterable[Outcome]) -> int:
    return sum(outcome.runs for outcome in outcomes if outcome.state == "imported")


def _lines(
    outcomes: list[Outcome], left: list[str], seconds: float, *, dry_run: bool
) -> Iterator[RenderableType]:
    for outcome in outcomes:
        if outcome.state == "to_import":
            runs = count_text(outcome.runs, "run") if outcome.runs else "inference, no run"
            rank = "numbered" if outcome.numbered else "numbered once its source is known"
            if not outcome.eligible:
                rank = f"not numbered: {outcome.reason or 'below the target'}"
            yield as_it_is(f"would import {outcome.path} ({runs}, {rank})")
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
    counts = Counter(outcome.state for outcome in outcomes)
    listed = ("refused", "skipped") if dry_run else STATES[1:]
    said = ", ".join(f"{counts[state]} {state.replace('_', ' ')}" for state in listed)
    if dry_run:
        numbered = sum(outcome.eligible is True for outcome in outcomes)
        yield f"{counts['to_import']} to import ({numbered} may rank), {said}; nothing was sent."
    else:
        yield (
            f"{count_text(counts['imported'], 'submission')} imported with "
            f"{count_text(_runs_imported(outcomes), 'run')} in {seconds:.1f} s; {said}."
        )
    if left:
        told = f"The import ended early. {count_text(len(left), 'submission')} not sent"
        if isinstance(sys.exception(), FINAL):
            yield f"{told}."
        else:
            again = "Run it again: no submission is stored twice."
            yield f"{told}, and the first of them may be stored. {again}"
