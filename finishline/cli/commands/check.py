"""`finishline check`: the server's own validator, offline; and the same for published archives."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from finishline.cli.errors import CliError, ExitCode, Problem, refusal
from finishline.cli.options import DEFAULT_BENCHMARKS, BenchmarksDir, Json
from finishline.cli.phase_question import ServerToAsk, ask_phase
from finishline.cli.records import Found, find_in, problem_text, score_found
from finishline.cli.screen import as_it_is, open_screen
from finishline.cli.submission_tables import (
    CLAIM_NAME,
    SubmissionFiles,
    find_submission_files,
    inference_sentence,
    run_table,
    violation_lines,
)
from finishline.cli.training import read_benchmarks
from finishline.client.files import problems_of
from finishline.rules.archive.submissions import task_and_kind
from finishline.rules.errors import RuleError
from finishline.rules.scoring.energy import find_shared
from finishline.rules.submissions.claim_checks_log import find_cut_off
from finishline.rules.submissions.submission import ScoredSubmission, score_submission
from finishline.rules.text import count_text

Path_ = Annotated[
    Path,
    typer.Argument(
        metavar="PATH", help="A submission's JSON or folder, or a published archive or log."
    ),
]
BenchmarkOption = Annotated[
    str | None,
    typer.Option("--benchmark", help="Benchmark of a DAWNBench entry, which names none."),
]
DivisionOption = Annotated[
    str | None, typer.Option("--division", help="Division of a DAWNBench entry (default: open).")
]
FETCH = "A server's own benchmark is fetched with `finishline benchmark fetch`, and its id."
NAME_IT = "Name it with --benchmark, such as --benchmark cifar10."
STYLES = {"error": "bold red", "warning": "yellow"}


def check(
    path: Path_,
    benchmark: BenchmarkOption = None,
    division: DivisionOption = None,
    benchmarks_dir: BenchmarksDir = DEFAULT_BENCHMARKS,
    url: ServerToAsk = None,
    as_json: Json = False,
) -> int:
    """Check a submission, or every submission of an archive, by the rules the server uses.

    Nothing is sent. With --url the server is asked whether it would take it at this moment.
    """
    if benchmark is None and division is None and (found := _published(path)) is not None:
        return _check_published(found, benchmarks_dir=benchmarks_dir, as_json=as_json)
    scored = check_files(
        find_submission_files(path),
        benchmarks_dir=benchmarks_dir,
        benchmark=benchmark,
        division=division,
    )
    result = asdict(scored.result) | {"eligible": scored.result.eligible}
    remarks = remarks_on(scored)
    document: dict[str, Any] = {
        "claim": asdict(scored.claim),
        "result": result,
        "remarks": [asdict(remark) for remark in remarks],
    }
    phase_lines: list[Text] = []
    if url is not None:
        document["server"], phase_lines = ask_phase(url, scored)
    lines = [*_lines(document), *remark_lines(remarks), *phase_lines]
    open_screen(as_json=as_json).answer(document, lines)
    return int(ExitCode.OK)


def check_files(
    files: SubmissionFiles, *, benchmarks_dir: Path, benchmark: str | None, division: str | None
) -> ScoredSubmission:
    """The scored submission. Raises CliError with every rule it breaks."""
    benchmarks = read_benchmarks(benchmarks_dir)
    try:
        claim = files.claim.read_bytes()
        logs = {name: path.read_bytes() for name, path in files.logs.items()}
        return score_submission(
            claim,
            logs,
            benchmarks,
            file=files.claim.name,
            benchmark_id=benchmark,
            division=division,
        )
    except RuleError as error:
        raise with_next_step(refusal(error)) from error
    except OSError as error:
        raise CliError(
            f"Cannot read {error.filename} ({error.strerror}).", exit_code=ExitCode.REFUSED
        ) from error


def remarks_on(scored: ScoredSubmission) -> tuple[Problem, ...]:
    """What is odd about a submission that breaks no rule."""
    remarks = [*find_cut_off(scored.scored_runs), *find_shared(scored.runs)]
    return tuple(problems_of(remarks))


def remark_lines(remarks: Sequence[Problem]) -> list[Text]:
    """A line for people for each remark."""
    return [as_it_is((f"warning: {remark}", STYLES["warning"])) for remark in remarks]


def with_next_step(refused: CliError) -> CliError:
    """The refusal of a submission, with what to type where the rules cannot know it."""
    messages = [problem.message for problem in refused.problems]
    if any("unknown benchmark" in message for message in messages):
        refused.message += f" {FETCH}"
    if any("names no benchmark" in message for message in messages):
        refused.message += f" {NAME_IT}"
    return refused


def _published(path: Path) -> Found | None:
    """What a path holds if it is an archive or a file of one, None if it is a submission to us.

    A JSON by itself is a submission to us, unless it lies where DAWNBench entries lie.
    """
    if path.is_dir():
        if (path / CLAIM_NAME).is_file():
            return None
        found = find_in(path)
        return found if found.submissions else None
    in_dawnbench = task_and_kind(path.absolute().parts)[1] is not None
    if not path.is_file() or (path.suffix.lower() == ".json" and not in_dawnbench):
        return None
    _refuse_log_of_submission(path)
    return find_in(path)


def _refuse_log_of_submission(path: Path) -> None:
    """A log of one's own says nothing by itself: how many runs count, the submission says."""
    if (path.parent / CLAIM_NAME).is_file():
        raise CliError(
            f"{path} is a log of the submission beside it; check that as a whole: "
            f"finishline check {quote(str(path.parent))}",
            exit_code=ExitCode.USAGE,
        )


def _check_published(found: Found, *, benchmarks_dir: Path, as_json: bool) -> int:
    """Print every problem; the exit code says whether one is an error."""
    benchmarks = read_benchmarks(benchmarks_dir)
    records = list(score_found(found, benchmarks, pruned=True, every_line=True))
    listed = [problem for record in records for problem in record["problems"]]
    refused = [record["path"] for record in records if _has_error(record)]
    document = {"submissions": len(records), "refused": refused, "problems": listed}
    lines = [as_it_is((problem_text(problem), STYLES[problem["severity"]])) for problem in listed]
    broken = f"{len(refused)} that break{'s' * (len(refused) == 1)} a rule"
    summary = f"{count_text(len(records), 'submission')}, {broken}."
    open_screen(as_json=as_json).answer(document, [*lines, Text(summary)])
    return int(ExitCode.REFUSED if refused else ExitCode.OK)


def _has_error(record: dict[str, Any]) -> bool:
    return any(problem["severity"] == "error" for problem in record["problems"])


def _lines(document: dict[str, Any]) -> list[RenderableType]:
    claim, result = document["claim"], document["result"]
    accepted = ("Accepted by the rules: ", "bold green")
    where = f"{claim['benchmark_id']} {claim['division']}"
    if claim["kind"] == "inference":
        return [Text.assemble(accepted, f"{where}, {inference_sentence(result)}")]
    seconds = result["tta_seconds"]
    time = f"TTA {result['tta_display']} ({seconds:.3f} s)" if seconds else "no TTA"
    reached = f"{result['reached']} of {count_text(result['started'], 'run')}"
    return [
        Text.assemble(
            accepted,
            f"{where}, {time}, {reached} reached the target.",
        ),
        run_table(result["runs"]),
        *violation_lines(result),
    ]
