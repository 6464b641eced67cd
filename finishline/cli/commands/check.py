"""`finishline check`: the server's own validator, offline, also for published archives."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

from rich.console import RenderableType
from rich.text import Text
from typer import Argument, Option

from finishline.cli.answers import inference_sentence, violation_lines
from finishline.cli.commands.code import check_code
from finishline.cli.definitions import (
    benchmark_named_in,
    read_benchmarks,
    read_definition,
    with_server_definitions,
)
from finishline.cli.errors import CliError, ExitCode, UsageError, cli_error
from finishline.cli.listings import table_of
from finishline.cli.options import ROOT, BenchmarksDir, shows
from finishline.cli.records import find_in, problem_text
from finishline.cli.screen import Screen, as_it_is
from finishline.cli.tables import time_text
from finishline.client.errors import FinishlineError, Problem, problems_of, refusal
from finishline.client.files import CLAIM_NAME, Upload, content_of, find_submission_files, is_code
from finishline.rules.archive.find import LOG_SUFFIXES, ResultSet, task_and_kind
from finishline.rules.archive.score import Found, score_found
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.submissions.claim_checks import find_cut_off, find_shared
from finishline.rules.submissions.submission import ScoredSubmission, score_submission
from finishline.rules.text import count_text

Path_ = Annotated[
    Path,
    Argument(
        metavar="PATH",
        help="A submission's JSON or folder, an archive or log, or a definition (*.toml).",
    ),
]
BenchmarkOption = Annotated[
    str | None,
    Option(
        "--benchmark",
        help="Benchmark of a DAWNBench entry: an id, for `check` also a file.",
    ),
]
DivisionOption = Annotated[
    str | None, Option("--division", help="Division of a DAWNBench entry (default: open).")
]
FETCH = (
    "Download a server's own benchmark with `finishline benchmark fetch ID`, "
    "or check against the server with `finishline check --url`."
)
NAME_IT = "Name it with --benchmark, such as --benchmark cifar10."
NEVER_RANKS = (
    "Trained with your own code: no worker can train it from its logs, so this submission never "
    "ranks. Send the code to have its time measured; `finishline init` writes an example."
)
OWN_IN_CLOSED = (
    " In the closed division a replay compares its epochs with the reference's, and a network or "
    'optimiser of your own is contradicted: log such runs with division="open".'
)
ALONE = (
    "finishline.log and `finishline run` write it when a run ends: if the training was cut off, "
    "train again. For logs of another program write it yourself (docs/submitting.md)."
)
STYLES = {"error": "bold red", "warning": "yellow"}


@shows
def check(
    screen: Screen,
    path: Path_,
    benchmark: BenchmarkOption = None,
    division: DivisionOption = None,
    benchmarks_dir: BenchmarksDir = None,
) -> ExitCode:
    """Check logs, code, an archive or a benchmark definition by the server's rules.

    The check works offline. With --url it also uses the server's definitions, and says whether the
    benchmark takes submissions now.
    """
    url, token = ROOT.url, ROOT.token
    if is_code(path):
        check_code(screen, path, benchmarks_dir)
        return ExitCode.OK
    if path.suffix == ".toml":
        stated = read_definition(path)
        told = f"definition of {stated.benchmark_id}, target {stated.target.in_words}."
        screen.answer(
            {"benchmark": stated.benchmark_id, "sha256": stated.sha256},
            [Text.assemble(("Accepted by the rules: ", "bold green"), told)],
        )
        return ExitCode.OK
    if benchmark is None and division is None and (found := _published(path)) is not None:
        benchmarks = with_server_definitions(read_benchmarks(benchmarks_dir), url, token)
        return _check_published(found, benchmarks, screen)
    if path.suffix in LOG_SUFFIXES:
        raise UsageError(
            f"{path} is a log, and --benchmark and --division are for a DAWNBench entry. Check the "
            f"folder with its {CLAIM_NAME}, or the log without them."
        )
    definition = None
    if benchmark is not None and benchmark.endswith(".toml"):
        definition = read_definition(Path(benchmark))
        benchmark = definition.benchmark_id
    scored = check_files(
        find_submission_files(path),
        benchmarks_dir,
        definition=definition,
        benchmark=benchmark,
        division=division,
        url=url,
        token=token,
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
        document["server"], phase_lines = _ask_phase(url, token, scored)
    lines = [*_lines(document), *remark_lines(remarks), *phase_lines]
    screen.answer(document, lines)
    return ExitCode.OK


def _ask_phase(
    url: str, token: str | None, scored: ScoredSubmission
) -> tuple[dict[str, Any], list[Text]]:
    """Tell a benchmark's phase on a server, as JSON and in sentences, or why it is unknown."""
    from finishline.cli.client import ServerClient, segment  # Loads the HTTP library.

    benchmark_id, own = scored.claim.benchmark_id, scored.result.benchmark_sha256
    try:
        with ServerClient(url, token) as server:
            found: dict[str, Any] = server.get(f"/benchmarks/{segment(benchmark_id)}")
            phases = dict(found.get("phases") or {})
    except FinishlineError as error:
        message = cli_error(error).message
        told = f"The phase of {benchmark_id} is not known: {message}"
        return {"error": message}, [Text(told, "yellow")]
    theirs = found.get("sha256")
    style = "" if phases.get("takes_submissions", True) else "bold red"
    lines = [Text(f"{benchmark_id} at {url}: {phases.get('sentence', 'no dates')}", style)]
    if theirs != own:
        told = f"The server scores by another definition, {str(theirs)[:12]}; "
        lines.append(Text(f"{told}this check used {own[:12]}.", "yellow"))
    return {"phases": phases, "benchmark_sha256": theirs}, lines


def check_files(
    files: Upload,
    benchmarks_dir: Path | None,
    *,
    benchmark: str | None,
    division: str | None,
    url: str | None,
    token: str | None = None,
    definition: Benchmark | None = None,
) -> ScoredSubmission:
    """Score a submission by `definition`, else the folders', else from `url`. Raises Refused."""
    try:
        claim = content_of(files.claim)
        wanted = benchmark or benchmark_named_in(claim)
        benchmarks = read_benchmarks(benchmarks_dir, wanted=wanted)
        if definition is not None:
            benchmarks[definition.benchmark_id] = definition
        if wanted is not None:
            benchmarks = with_server_definitions(benchmarks, url, token, only=wanted)
        logs = {name: content_of(log) for name, log in files.logs.items()}
        return score_submission(
            claim,
            logs,
            benchmarks,
            file=files.claim_name,
            benchmark_id=benchmark,
            division=division,
        )
    except RuleError as error:
        raise with_next_step(refusal(error)) from error


def remarks_on(scored: ScoredSubmission) -> tuple[Problem, ...]:
    remarks = [*find_cut_off(scored.scored_runs), *find_shared(scored.runs)]
    claim, own = scored.claim, list[Problem]()
    if (claim.trained_with, claim.dawnbench) == ("own", None) and scored.scored_runs:
        own = [Problem(NEVER_RANKS + (OWN_IN_CLOSED if claim.division == "closed" else ""))]
    return (*own, *problems_of(remarks))


def remark_lines(remarks: Sequence[Problem]) -> list[Text]:
    return [as_it_is((f"warning: {remark}", STYLES["warning"])) for remark in remarks]


def with_next_step(refused: FinishlineError) -> FinishlineError:
    """Add the command to type to a refusal, where the rules can't know it."""
    messages = [problem.message for problem in refused.problems]
    if any("unknown benchmark" in message for message in messages):
        refused.detail += f" {FETCH}"
    if any("names no benchmark" in message for message in messages):
        refused.detail += f" {NAME_IT}"
    return refused


def _published(path: Path) -> Found | None:
    """Find the archive at a path, or of a file. None for a submission to us.

    A JSON by itself is a submission to us, unless its place is a DAWNBench entry's.
    """
    if path.is_dir():
        if (path / CLAIM_NAME).is_file():
            return None
        found = find_in(path)
        return found if found.submissions else None
    in_dawnbench = task_and_kind(path.absolute().parts)[1] is not None
    if not path.is_file() or (path.suffix.lower() == ".json" and not in_dawnbench):
        return None
    if (path.parent / CLAIM_NAME).is_file():  # Which says how many runs count.
        raise UsageError(
            f"{path} is a log of the submission beside it; check the whole submission: "
            f"finishline check {quote(str(path.parent))}"
        )
    return find_in(path)


def _check_published(found: Found, benchmarks: dict[str, Benchmark], screen: Screen) -> ExitCode:
    records = list(score_found(found, benchmarks))
    listed = [problem for record in records for problem in record["problems"]]
    own = next((each for each in listed if each["code"] == "wrong_benchmark"), None)
    if own is not None and all(isinstance(e, ResultSet) and e.alone for e in found.submissions):
        raise CliError(
            f"{own['file']}: {own['message']}, without a {CLAIM_NAME} beside it. {ALONE}"
        )
    refused = [
        record["path"]
        for record in records
        if any(problem["severity"] == "error" for problem in record["problems"])
    ]
    document = {"submissions": len(records), "refused": refused, "problems": listed}
    lines = [as_it_is((problem_text(problem), STYLES[problem["severity"]])) for problem in listed]
    broken = f"{len(refused)} that break{'s' * (len(refused) == 1)} a rule"
    summary = f"{count_text(len(records), 'submission')}, {broken}."
    screen.answer(document, [*lines, Text(summary)])
    return ExitCode.REFUSED if refused else ExitCode.OK


def _lines(document: dict[str, Any]) -> list[RenderableType]:
    claim, result = document["claim"], document["result"]
    accepted = ("Accepted by the rules: ", "bold green")
    where = f"{claim['benchmark_id']} {claim['division']}"
    if claim["kind"] == "inference":
        return [Text.assemble(accepted, f"{where}, {inference_sentence(result)}")]
    seconds = result["tta_seconds"]
    exact = f" ({seconds:.3f} s)" if seconds and seconds >= 60 else ""
    time = f"TTA {time_text(seconds)}{exact}" if seconds else "no TTA"
    reached = f"{result['reached']} of {count_text(result['started'], 'run')}"
    return [
        Text.assemble(accepted, f"{where}, {time}, {reached} reached the target."),
        table_of("runs", result["runs"]),
        *violation_lines(result),
    ]
