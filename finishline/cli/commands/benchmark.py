"""`finishline benchmark`: phases, definitions and files, and benchmarks of your own."""

import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

from rich.console import RenderableType
from rich.text import Text
from typer import Argument, Option

from finishline.cli.client import ServerClient, View, connect, segment
from finishline.cli.commands.calibration import BENCHMARK
from finishline.cli.commands.code import train_in_box
from finishline.cli.definitions import download_definition, download_files, find_benchmark
from finishline.cli.errors import CliError, ExitCode, UsageError, require_server
from finishline.cli.listings import table_of
from finishline.cli.options import ROOT, BenchmarksDir, Data, shows
from finishline.cli.own_benchmarks import (
    broken,
    definition_file,
    laid_out,
    open_own_benchmark,
    read_own_folder,
    write_template,
)
from finishline.cli.processes import (
    TRY_TASK,
    box_events,
    child_events,
    python_module,
    require_training_packages,
)
from finishline.cli.rows import asks_server
from finishline.cli.screen import Screen, as_it_is
from finishline.cli.tables import seconds_text
from finishline.definitions import FETCHED
from finishline.rules.errors import BenchmarkError
from finishline.rules.submissions.claim import reference_of
from finishline.rules.text import count_text, line_of
from finishline.rules.trainings.manifest import FILE as MANIFEST
from finishline.rules.trainings.own_benchmark import (
    FILE,
    OwnBenchmark,
    ReferenceRuns,
    advice,
    with_hashes,
)
from finishline.rules.verification.judge_convergence import goal_words

app = BENCHMARK
NAMES = ("opens_at", "freezes_at", "closes_at", "embargo_until")
NO_DATE = "none"
SECONDS_BETWEEN_LINES = 2.0  # Of a download.
Moment = str | None
Id = Annotated[str, Argument(help="Id of a benchmark.")]
TEMPLATE = "finishline.rules.trainings.benchmark_template"
TEMPLATE_ID = "mine"
BenchmarkPath = Annotated[Path, Argument(help="The benchmark's folder.", metavar="PATH")]


@app.command("phase")
@asks_server
def phases(
    server: ServerClient,
    screen: Screen,
    benchmark: Id,
    opens: Annotated[
        Moment, Option(metavar="MOMENT", help="Submissions open, such as 2026-12-01T09:00Z.")
    ] = None,
    freezes: Annotated[Moment, Option(metavar="MOMENT", help="The rules freeze.")] = None,
    closes: Annotated[Moment, Option(metavar="MOMENT", help="Submissions close.")] = None,
    embargo: Annotated[
        Moment, Option(metavar="MOMENT", help="The embargo on results ends.")
    ] = None,
    reason: Annotated[Moment, Option(help="Why. It goes into the audit log.")] = None,
    unfreeze: Annotated[
        bool, Option("--unfreeze", help="Allow --freezes after the freeze has begun.")
    ] = False,
) -> None:
    """Show the phases of a benchmark, or set some of its dates (organisers only).

    Omitted dates stay. `none` removes a date.
    """
    given = dict(zip(NAMES, (opens, freezes, closes, embargo), strict=True))
    changes = {name: value for name, value in given.items() if value is not None}
    path = f"/benchmarks/{segment(benchmark)}/phases"
    if changes and not reason:
        raise UsageError("Give a --reason with the dates.")
    found = server.get(path)
    if changes:
        body = {name: found["phases"][name] for name in NAMES} | {
            name: None if value == NO_DATE else value for name, value in changes.items()
        }
        server.post(path, body | {"reason": reason, "unfreeze": unfreeze})
        found = server.get(path)
    told = Text.assemble((f"{found['benchmark']}  ", "bold"), found["phases"]["sentence"])
    table = [table_of("phases", found["history"])] if found["history"] else []
    screen.answer(found, [told, *table])


@app.command("show")
@asks_server
def show_benchmark(server: ServerClient, screen: Screen, benchmark: Id) -> None:
    """Show a benchmark: its target, its phase, and the settings of its reference."""
    view = server.get(f"/benchmarks/{segment(benchmark)}")
    screen.answer(view, [] if screen.as_json else benchmark_lines(server, view))


def benchmark_lines(server: ServerClient, view: View) -> Iterator[RenderableType]:
    yield table_of("benchmarks", [view])
    yield Text(f"{view['title']}. {(view.get('phases') or {}).get('sentence', '')}")
    _, definition = download_definition(server, view["id"])
    for name, one in definition.hyperparameters.items():
        yield f"{name}: {one.minimum:g} to {one.maximum:g}, reference {one.default:g}"


@app.command("fetch")
@shows
def fetch(
    screen: Screen,
    benchmark: Id,
    replace: Annotated[bool, Option("--replace", help="Overwrite changed files.")] = False,
    only_check: Annotated[
        bool, Option("--check", help="Only list which files of its data are here.")
    ] = False,
    data: Data = Path("var/data"),
    benchmarks_dir: BenchmarksDir = None,
) -> ExitCode:
    """Download the data of a benchmark's reference, or a definition from the server.

    The definition, its task and its files go into the folder of benchmarks here, for `run` and
    `check`. --url, --replace and --benchmarks-dir ask for a server's definition. The exit code is 1
    if the data is unusable.
    """
    wants_definition = replace or ROOT.url is not None or benchmarks_dir is not None
    if only_check or (not wants_definition and _has_reference(benchmark)):
        act = "check" if only_check else "fetch"
        return _fetch_data(screen, act, benchmark, data, benchmarks_dir)
    with connect() as server:
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
    lines = [f"Wrote {path}: {found.benchmark_id} from {server.url} ({found.sha256[:12]}).{task}"]
    if f"reference/{MANIFEST}" in files:
        lines.append(f"Next: finishline init {found.benchmark_id}, and change the program.")
    screen.answer(document, lines)
    return ExitCode.OK


def _fetch_data(screen: Screen, act: str, named: str, data: Path, folder: Path | None) -> ExitCode:
    """Fetch files where their licence allows it, or `check` them, by their published hashes."""
    require_training_packages("benchmark fetch")
    _, benchmark = find_benchmark(named, folder)
    arguments = [act, reference_of(benchmark).reference, "--data-dir", str(data.absolute())]
    files, answer, said_at = [], {}, 0.0
    for event in child_events(python_module("worker.data_sets", *arguments)):
        kind = event.get("kind")
        if kind == "file":
            files.append(event)
        elif kind == "answer":
            answer = event
        elif kind == "progress" and time.monotonic() > said_at:
            said_at = time.monotonic() + SECONDS_BETWEEN_LINES
            of = f" of {event['total'] / 1e6:,.0f}" if event["total"] else ""
            screen.say(f"  {event['name']}: {event['have'] / 1e6:,.0f}{of} MB")
        elif kind == "exit" and (event["code"] not in (0, 1) or not answer):
            why = event["said"] or f"exit code {event['code']}"
            raise CliError(why)
    document = {"benchmark": benchmark.benchmark_id, "folder": str(data.absolute())} | {
        "files": [{k: v for k, v in each.items() if k != "kind"} for each in files],
        "whole": answer["whole"],
        "how": answer["how"],
    }
    lines = [f"Data of {benchmark.benchmark_id} in {data.absolute()}:"]
    lines += [line for each in files for line in _data_lines(each)]
    screen.answer(document, [*lines, *([answer["how"]] if answer["how"] else [])])
    return ExitCode.OK if answer["whole"] else ExitCode.REFUSED


def _data_lines(found: dict[str, Any]) -> Iterator[str]:
    usable = found["state"] in {"as published", "here"}
    words = [
        f"{found['path']}: {found['state']}",
        f"{found['size_bytes']:,} bytes" if found["size_bytes"] else "",
        f"{found['pictures']:,} pictures" if found["pictures"] is not None else "",
        found["digest"] or "",
        "" if usable or not found["expected"] else f"expected {found['expected']}",
    ]
    yield "  " + ", ".join(filter(None, words))
    if not usable and found["command"]:
        yield f"    {found['command']}"


def _has_reference(name: str) -> bool:
    try:
        return find_benchmark(name, None)[1].replay is not None
    except CliError:
        return False


def _write(path: Path, content: bytes, *, replace: bool) -> None:
    try:
        if path.exists() and path.read_bytes() != content and not replace:
            raise CliError(
                f"{path} differs from the server's. Compare them, or overwrite the file "
                "with --replace."
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise CliError(
            f"{path} cannot be written ({error.strerror}); name another folder with "
            "--benchmarks-dir."
        ) from error


@app.command("init")
@shows
def init(screen: Screen, path: BenchmarkPath) -> None:
    """Write a running example of a benchmark: definition, task and reference."""
    name = re.sub(r"[^a-z0-9_-]", "-", path.resolve().name.lower()).lstrip("0123456789_-")
    name = name or TEMPLATE_ID
    named = (f'"{TEMPLATE_ID}"', f'"{name}"')
    written = write_template(TEMPLATE, path, lambda text: text.replace(*named))
    write_hashes(path)
    lines = [
        f"Wrote {', '.join(written)} to {path}.",
        f"Next: finishline benchmark check {quote(str(path))}",
    ]
    screen.answer({"id": name, "path": str(path), "files": written}, lines)


def write_hashes(folder: Path) -> bool:
    """Pin all files of a folder in its definition. Returns whether the definition changed."""
    files, problems = read_own_folder(folder)
    content = files.pop(FILE, None)
    if problems or content is None:
        missing = [] if content is not None else [BenchmarkError("missing", file=FILE)]
        raise broken(folder, [*problems, *missing])
    try:
        changed = with_hashes(content, files)
        if changed == content:
            return False
        (folder / FILE).write_bytes(changed)
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"Cannot write {FILE} ({error}).") from error
    return True


@app.command("check")
@shows
def check(
    screen: Screen,
    path: BenchmarkPath,
    write: Annotated[
        bool, Option("--write", help="Write the SHA-256 of all files into the definition.")
    ] = False,
    runs: Annotated[int, Option(min=1, max=100, help="Trainings of the reference.")] = 5,
) -> ExitCode:
    """Check a benchmark: its files, its task, and its reference, which is trained in a sandbox.

    Exit code 1 if it breaks a rule, 3 if a run of the reference failed or missed the target.
    """
    is_written = write and write_hashes(path)
    own, unpinned = open_own_benchmark(path)
    if is_written:
        screen.say(f"Pinned in {path / FILE}: {', '.join(sorted(own.files))}.")
    require_server("benchmark check")
    name = own.benchmark.benchmark_id
    target = own.benchmark.target
    screen.say(_fine(f"{name}, version {own.benchmark.version}, target {target.in_words}"))
    screen.say(_fine(f"{count_text(len(own.files), 'file')} as pinned"))
    if unpinned:
        screen.say(_warning(f"Not pinned, so no worker has it: {', '.join(unpinned)} (--write)."))
    with definition_file(name, laid_out(name, own.content, own.files)) as file:
        drawn, guessed = _try_task(path, file, screen)
        arguments = [str(file.with_suffix("") / "reference"), str(file), "--runs", str(runs)]
        finished, _, code = train_in_box(arguments, screen, unit=target.unit)
    reference = _reference_runs(finished)
    items = drawn["prediction"][1][0]
    warnings = list(advice(own.benchmark, reference, prediction_items=items)) if reference else []
    document = {
        "benchmark": name,
        "sha256": own.benchmark.sha256,
        "unpinned": unpinned,
        "task": drawn,
        "guess": guessed,
        "runs": finished,
        "reference": reference.figures() if reference else None,
        "warnings": warnings,
    }
    screen.answer(document, _last_lines(own, reference, warnings, finished, path))
    return code


def _try_task(path: Path, file: Path, screen: Screen) -> tuple[dict[str, Any], dict[str, Any]]:
    problems: list[BenchmarkError] = []
    found: dict[str, dict[str, Any]] = {}
    for event in box_events(TRY_TASK, [str(file)]):
        kind = event.pop("kind")
        if kind == "problem":
            message = event.pop("message")
            problems.append(BenchmarkError(message, **event))
        found[kind] = event
    if problems:
        raise broken(path, list(problems))
    drawn, guessed = found["drawn"], found["guessed"]
    screen.say(*_task_lines(drawn, guessed))
    return drawn, guessed


def _task_lines(drawn: Mapping[str, Any], guessed: Mapping[str, Any]) -> Iterator[Text]:
    arrays = {f"train {name}": each for name, each in drawn["train"].items()}
    arrays |= {f"inputs {name}": each for name, each in drawn["inputs"].items()}
    listed = ", ".join(f"{name} {dtype} {shape}" for name, (dtype, shape, _) in arrays.items())
    size = sum(each[2] for each in arrays.values()) / 1e6
    yield _fine(f"task: {listed}; {size:.1f} MB drawn in {drawn['seconds']:.2f} s")
    if drawn["is_drawn"]:
        yield _fine("drawn: equal nonces give equal bytes, others give others")
    else:
        yield _fine("fixed: every nonce gives the same data")
    first, second = guessed["qualities"]
    yield _fine(f"without training at best {first:.2f} and {second:.2f} ({guessed['by']})")


def _reference_runs(finished: list[dict[str, Any]]) -> ReferenceRuns | None:
    if not finished or any(each["status"] != "reached" for each in finished):
        return None
    return ReferenceRuns(
        seconds=[each["seconds"] for each in finished],
        evaluation_seconds=[each["ledger"]["eval"] for each in finished],
        asks=[each["evaluations"] for each in finished],
        halves=[(each["quality"], each["second_half"]) for each in finished],
    )


def _last_lines(
    own: OwnBenchmark,
    runs: ReferenceRuns | None,
    warnings: list[str],
    finished: list[dict[str, Any]],
    path: Path,
) -> Iterator[RenderableType]:
    if runs is None:
        reached = sum(each["status"] == "reached" for each in finished)
        runs_text = count_text(len(finished), "run")
        place, expected = "target.value", "a target that every run reaches"
        if not own.benchmark.reach.is_at_quality:
            place, expected = "ranking.budget_seconds", "time for an evaluation of every run"
        yield _warning(
            f"{reached} of {runs_text} of the reference {goal_words(own.benchmark)} "
            f"({FILE} line {line_of(own.content, place)}, field {place}; expected {expected})."
        )
        return
    cv, asks = runs.cv_percent, count_text(max(runs.asks), "ask")
    spread = f", CV {cv:.1f} %" if cv is not None else ""
    yield _fine(
        f"reference: mean {seconds_text(runs.mean_seconds)} of "
        f"{count_text(len(runs.seconds), 'run')} ({seconds_text(min(runs.seconds))} to "
        f"{seconds_text(max(runs.seconds))}){spread}, evaluations "
        f"{100 * runs.evaluation_share:.1f} % of it, at most {asks}"
    )
    first, second = runs.mean_halves
    yield _fine(f"halves: mean {first:.2f} and {second:.2f}")
    yield from (_warning(each) for each in warnings)
    yield as_it_is(f"Next: finishline benchmark add {quote(str(path))}")


def _fine(text: str) -> Text:
    return Text.assemble(("ok ", "bold green"), text)


def _warning(text: str) -> Text:
    return Text.assemble(("warning: ", "yellow"), text)


@app.command("add")
@asks_server
def add(
    server: ServerClient,
    screen: Screen,
    path: BenchmarkPath,
    reason: Annotated[str | None, Option(help="Why. It goes into the audit log.")] = None,
) -> None:
    """Put a benchmark on a server, or a later version of it (organisers only).

    It is offered at once. Its files become public.
    """
    own, unpinned = open_own_benchmark(path)
    files = {FILE: own.content, **own.files}
    parts = [
        ("files", (name, content, "application/octet-stream")) for name, content in files.items()
    ]
    fields = {"reason": reason} if reason else {}
    found, same = server.post_form("/benchmarks", files=parts, fields=fields, key=None)
    name = own.benchmark.benchmark_id
    done = "is there already; nothing changed" if same else "is offered"
    reference = quote(f"{path}/reference")
    lines: list[RenderableType] = [
        as_it_is(f"{name} {done} ({own.benchmark.sha256[:12]}): {server.url}/benchmarks/{name}"),
        as_it_is(f"Next, to measure its reference: finishline submit {reference}"),
    ]
    if unpinned:
        lines.append(_warning(f"Not sent, as not pinned: {', '.join(unpinned)}."))
    screen.answer(found | {"changed": not same}, lines)
