"""`finishline up` and `demo`: a whole server on this machine, and a first submission to it."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from finishline.cli.board_tables import leaderboard_table
from finishline.cli.client import ServerClient, View, segment
from finishline.cli.commands.run import train_shown
from finishline.cli.commands.submit import send_submission
from finishline.cli.commands.verify import request_verification
from finishline.cli.definitions import find_benchmark
from finishline.cli.errors import CliError, ExitCode
from finishline.cli.options import (
    DEFAULT_URL,
    DEFAULT_VAR,
    BehindProxy,
    BenchmarksDir,
    Json,
    Url,
    Var,
)
from finishline.cli.processes import python_module
from finishline.cli.replay_screen import ReplayProgress
from finishline.cli.screen import Screen, open_screen
from finishline.cli.submission_tables import find_submission_files, submission_lines, verdict_lines
from finishline.cli.training import Training, require_server, require_training_packages, target_of
from finishline.cli.up.paths import VarPaths
from finishline.cli.watching import watch_verification
from finishline.rules.text import count_text


def up(
    host: Annotated[
        str, typer.Option("--host", envvar="FINISHLINE_HOST", help="Address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            "--port", envvar="FINISHLINE_PORT", min=1, max=65535, help="Port to listen on."
        ),
    ] = 8000,
    var: Var = DEFAULT_VAR,
    devices: Annotated[
        str,
        typer.Option(
            "--devices",
            envvar=["FINISHLINE_DEVICES", "FINISHLINE_DEVICE"],
            help="Devices that train, one worker each: cpu, cuda:0,cuda:1 or all.",
        ),
    ] = "cpu",
    worker: Annotated[
        bool, typer.Option("--worker/--no-worker", help="Also start the workers.")
    ] = True,
    behind_proxy: BehindProxy = False,
    demo: Annotated[
        bool, typer.Option("--demo", help="Run the demo once everything is up.")
    ] = False,
    once: Annotated[
        bool, typer.Option("--once", help="With --demo: stop everything after the verdict.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Start broker, server and workers on this machine, and keep them running.

    Ctrl-C or SIGTERM stops everything. --json writes one document when everything is ready.
    """
    _refuse_contradictions(worker=worker, demo=demo, once=once, as_json=as_json)
    require_server("up")
    # A supervisor needs psutil, which comes with the server, and POSIX.
    from finishline.cli.up.services import url_of
    from finishline.cli.up.start import UpOptions, run_up

    options = UpOptions(
        host=host,
        port=port,
        var=var,
        devices=devices if worker else None,
        demo=_demo_command(url_of(host, port), var) if demo else None,
        once=once,
        behind_proxy=behind_proxy,
    )
    return run_up(options, open_screen(as_json=as_json))


def _refuse_contradictions(*, worker: bool, demo: bool, once: bool, as_json: bool) -> None:
    for wrong, sentence in (
        (once and not demo, "--once needs --demo: without it there is no verdict to wait for."),
        (demo and not worker, "--demo needs a worker. Remove --no-worker."),
        (demo and as_json, "--demo has no JSON output. Run `finishline demo --json` beside `up`."),
    ):
        if wrong:
            raise CliError(sentence, exit_code=ExitCode.USAGE)


def _demo_command(url: str, var: Path) -> list[str]:
    return python_module("finishline.cli.main", "demo", "--url", url, "--var", str(var.absolute()))


def demo(
    benchmark: Annotated[str, typer.Option("--benchmark", help="Id of a benchmark.")] = "digits",
    runs: Annotated[
        int | None,
        typer.Option("--runs", min=1, max=100, help="Trainings (default: the benchmark's number)."),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch/--no-watch", help="Wait for the verdict and show the replay.")
    ] = True,
    var: Var = DEFAULT_VAR,
    benchmarks_dir: BenchmarksDir = None,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> int:
    """Train, submit, request a verification, watch it, and show the leaderboard.

    Uses the tokens that `finishline up` keeps in its var folder. The exit code is 0 if the
    row ends measured, else 3.
    """
    screen = open_screen(as_json=as_json)
    require_training_packages("demo")
    tokens = {name: kept_token(var, name) for name in ("demo", "organiser")}
    with ServerClient(url) as server:
        server.health()
    folder = _train(benchmark, runs, var, benchmarks_dir, screen)
    with ServerClient(url, tokens["demo"]) as server:
        screen.say("", Text("2. Submit it", style="bold"))
        submission = send_submission(server, find_submission_files(folder))
        screen.say(*submission_lines(submission))
    with ServerClient(url, tokens["organiser"]) as server:
        return _verify(server, submission, screen, watch=watch)


def kept_token(var: Path, name: str) -> str:
    """The token that `finishline up` keeps for a user. Raises CliError without one."""
    from finishline.cli.up.services import read_token
    from finishline.cli.up.start import token_path

    path = token_path(VarPaths(var), name)
    token = read_token(path)
    if token is None:
        raise CliError(
            f"There is no token in {path}. Start `finishline up` there, or pass the folder of "
            "the running server with --var.",
            exit_code=ExitCode.NOT_ALLOWED,
        )
    return token


def _train(name: str, runs: int | None, var: Path, folder: Path | None, screen: Screen) -> Path:
    file, definition = find_benchmark(name, folder)
    out = var / f"demo-{time.strftime('%Y%m%d-%H%M%S')}"
    training = Training(benchmark_file=file, out=out, runs=runs or definition.runs.count)
    target = definition.target
    screen.say(
        "",
        Text(f"1. Train {definition.title} {count_text(training.runs, 'time')}", style="bold"),
        f"  to {target.metric} {target.value:g} {target.unit}; the files go to {out}",
    )
    train_shown(training, ReplayProgress(target=target_of(definition)), screen)
    return out


def _verify(server: ServerClient, submission: View, screen: Screen, *, watch: bool) -> int:
    screen.say("", Text("3. Replay it: one seed of yours, then seeds of the server", style="bold"))
    # A demo is short: one of the claim's own seeds is enough to show.
    verification = request_verification(server, str(submission["id"]), reason="demo", own_seeds=1)
    screen.say(f"  sealed: {verification.get('seal')}")
    if watch:
        verification = watch_verification(server, verification, screen)
        screen.say(*verdict_lines(verification))
    board = server.get(f"/leaderboards/{segment(str(submission['benchmark']))}", limit=100)
    entry = _entry(board, verification)
    screen.say("", Text("4. The leaderboard", style="bold"))
    urls = _pages(server.url, submission, verification)
    document: dict[str, Any] = {
        "submission": submission,
        "verification": verification,
        "leaderboard": board,
        "urls": urls,
    }
    lines = [leaderboard_table(board), "", *([outcome_line(entry, verification)] if watch else [])]
    screen.answer(document, [*lines, *_page_lines(urls)])
    is_measured = entry.get("evidence") == "measured"
    return int(ExitCode.OK if is_measured or not watch else ExitCode.NOT_VERIFIED)


def _entry(board: View, verification: View) -> View:
    """The row of the demo's configuration; an earlier demo may be named on it first."""
    entries = board.get("entries") or []
    own = [each for each in entries if each.get("verification_id") == verification["id"]]
    measured = [each for each in entries if each.get("evidence") == "measured"]
    found: View = next(iter([*own, *measured]), {})
    return found


def outcome_line(entry: View, verification: View) -> Text:
    """The measured time with its interval, beside the claimed one."""
    seconds = entry.get("measured_seconds")
    if entry.get("evidence") != "measured" or seconds is None:
        why = entry.get("unranked_reason") or "the row is not measured"
        if any(reason["code"] == "noisy_host" for reason in verification.get("reasons") or ()):
            why = "other work took part of the processor; run it again on a quiet machine"
        return Text(f"Not measured: {why}.", "yellow")
    low, high = entry.get("measured_low_seconds"), entry.get("measured_high_seconds")
    interval = "no interval yet" if low is None else f"{low:.3f} to {high:.3f} s, 95 %"
    runs = count_text(entry.get("measured_runs") or 0, "sealed run")
    return Text.assemble(
        ("Measured ", "bold green"),
        f"{seconds:.3f} s ({interval}) in {runs}; claimed {entry.get('claimed_seconds'):.3f} s.",
    )


def _pages(url: str, submission: View, verification: View) -> dict[str, str]:
    return {
        "leaderboard": f"{url}/benchmarks/{submission['benchmark']}",
        "submission": f"{url}/submissions/{submission['id']}",
        "verification": f"{url}/verifications/{verification['id']}",
    }


def _page_lines(urls: dict[str, str]) -> list[str]:
    return [f"{name:<12} {url}" for name, url in urls.items()]
