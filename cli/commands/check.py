"""`finishline check`: the server's own validator, offline."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from cli.errors import CliError, ExitCode, refusal
from cli.options import DEFAULT_BENCHMARKS, BenchmarksDir, Json
from cli.screen import open_screen
from cli.submission_files import SubmissionFiles, find_submission_files
from cli.tables import run_table, violation_lines
from cli.training import read_benchmarks
from rules.errors import RuleError
from rules.submission import ScoredSubmission, score_submission

Path_ = Annotated[
    Path, typer.Argument(metavar="PATH", help="A submission's JSON, or the folder it is in.")
]
BenchmarkOption = Annotated[
    str | None,
    typer.Option("--benchmark", help="Benchmark of a DAWNBench entry, which names none."),
]
DivisionOption = Annotated[
    str | None, typer.Option("--division", help="Division of a DAWNBench entry (default: open).")
]


def check(
    path: Path_,
    benchmark: BenchmarkOption = None,
    division: DivisionOption = None,
    benchmarks_dir: BenchmarksDir = DEFAULT_BENCHMARKS,
    as_json: Json = False,
) -> int:
    """Check and score a submission without a server, by the rules the server uses."""
    scored = check_files(
        find_submission_files(path),
        benchmarks_dir=benchmarks_dir,
        benchmark=benchmark,
        division=division,
    )
    document = {"claim": asdict(scored.claim), "result": asdict(scored.result)}
    open_screen(as_json=as_json).answer(document, _lines(document))
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
        raise refusal(error) from error
    except OSError as error:
        raise CliError(
            f"Cannot read {error.filename} ({error.strerror}).", exit_code=ExitCode.REFUSED
        ) from error


def _lines(document: dict[str, Any]) -> list[RenderableType]:
    claim, result = document["claim"], document["result"]
    seconds = result["tta_seconds"]
    time = f"TTA {result['tta_display']} ({seconds:.3f} s)" if seconds else "no TTA"
    return [
        Text.assemble(
            ("Accepted by the rules: ", "bold green"),
            f"{claim['benchmark_id']} {claim['division']}, {time}, "
            f"{result['reached']} of {result['started']} runs reached the target.",
        ),
        run_table(result["runs"]),
        *violation_lines(result),
    ]
