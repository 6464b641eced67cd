"""The demo of `finishline up --demo`: a first submission, its verification, and the leaderboard.

`up` starts it as a process of its own: `python -m server.commands.demo URL VAR`.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import typer
from rich.text import Text

from finishline.api.boards import flat
from finishline.cli.answers import submission_lines, verdict_lines
from finishline.cli.client import ServerClient, View, segment
from finishline.cli.commands.board import leaderboard_lines
from finishline.cli.commands.code import TEMPLATE
from finishline.cli.commands.run import train_shown
from finishline.cli.commands.verify import request_verification
from finishline.cli.definitions import find_benchmark
from finishline.cli.errors import CliError, ExitCode
from finishline.cli.main import main
from finishline.cli.own_benchmarks import write_template
from finishline.cli.processes import Training
from finishline.cli.screen import Screen, open_screen
from finishline.cli.watching import watch_verification
from finishline.client.errors import FinishlineError
from finishline.client.files import find_submission_files, send_code, send_logs
from finishline.rules.ranking import busy_words
from finishline.rules.text import count_text
from server.commands.paths import VarPaths

BENCHMARK, SETTINGS = "digits", ("batch_size=32",)
LOGS, CODE = "closed", "open"  # Their divisions.
PATIENCE_SECONDS = 30.0
app = typer.Typer(add_completion=False)


@app.command()
def demo(url: str, var: Path) -> int:
    """Send logs and code, have both measured against the reference, and show the leaderboard.

    Uses the tokens that `finishline up` keeps in its var folder. The exit code is 0 if the logs end
    with a rank, else 3.
    """
    screen = open_screen(as_json=False)
    demo, organisers = (VarPaths(var).token(name) for name in ("demo", "organiser"))
    with (
        ServerClient(url, demo.read_text().strip()) as submitter,
        ServerClient(url, organisers.read_text().strip()) as organiser,
    ):
        folder = var / f"demo-{time.strftime('%Y%m%d-%H%M%S')}"
        logs = _send_logs(submitter, screen, folder)
        _replay(organiser, logs, screen)
        _show_reference(organiser, screen)
        code = _send_code(submitter, screen, folder / "code")
        if code is not None:
            _show_head_to_head(organiser, code, screen)
        return _show_board(organiser, logs, screen)


def _send_logs(server: ServerClient, screen: Screen, folder: Path) -> str:
    """Train the reference at another batch size and submit its logs. Returns the new id."""
    file, definition = find_benchmark(BENCHMARK, None)
    training = Training(
        benchmark_file=file,
        out=folder,
        runs=definition.runs.count,
        settings=SETTINGS,
        division=LOGS,
    )
    target = definition.target
    screen.say(
        "",
        Text(f"1. Train {definition.title} {count_text(training.runs, 'time')}", style="bold"),
        f"  at batch size 32, to {target.metric} {target.value:g} {target.unit}",
    )
    train_shown(training, definition, screen)
    screen.say("", Text("2. Submit the logs", style="bold"))
    submission, _ = send_logs(server, find_submission_files(folder))
    screen.say(*submission_lines(submission))
    # A second demo sends what the first one did: its submission is a duplicate.
    original = str(submission.get("duplicate_of") or submission["id"])
    if original != submission["id"]:
        screen.say(f"  the settings of submission {original}: it is replayed again")
    return original


def _replay(server: ServerClient, submission_id: str, screen: Screen) -> None:
    screen.say("", Text("3. Replay them with secret seeds of the server", style="bold"))
    verification = request_verification(server, submission_id, reason="demo")
    screen.say(f"  sealed: {verification.get('seal')}")
    screen.say(*verdict_lines(watch_verification(server, verification, screen)))


def _show_reference(server: ServerClient, screen: Screen) -> None:
    """Wait until the reference is measured, which holds first place until somebody beats it."""
    screen.say("", Text("4. Measure the reference: it holds first place", style="bold"))
    found = _wait_for(lambda: _jobs(server, submitter="reference"))
    if found:
        screen.say(*verdict_lines(watch_verification(server, found[-1], screen)))


def _send_code(server: ServerClient, screen: Screen, folder: Path) -> str | None:
    """Submit the example of 30 lines, and watch its measurement. None where nobody trains it."""
    screen.say("", Text("5. Submit a program of 30 lines", style="bold"))
    written = write_template(TEMPLATE, folder, lambda text: text)
    files = {name: (folder / name).read_bytes() for name in written}
    try:
        entry, is_repeated = send_code(server, files)
    except (CliError, FinishlineError) as why:
        screen.say(Text(f"  Not trained here: {why}", "yellow"))
        return None
    submission_id = str(entry.get("duplicate_of") or entry["id"])
    if is_repeated or submission_id != entry["id"]:
        screen.say(f"  submission {submission_id} is this program: it was measured before")
        return submission_id
    job = server.get(f"/verifications/{segment(str(entry['verifications'][-1]['id']))}")
    screen.say(*verdict_lines(watch_verification(server, job, screen)))
    return submission_id


def _show_head_to_head(server: ServerClient, submission_id: str, screen: Screen) -> None:
    """Watch the program's head-to-head with the holder, if it has one."""
    entry = _entry(_board(server, CODE), submission_id)
    if entry.get("not_first") is None:
        return
    screen.say("", Text("6. Head-to-head with the holder", style="bold"))
    found = _wait_for(lambda: _jobs(server, kind="head_to_head", submission_id=submission_id))
    while found:
        ended = watch_verification(server, found[0], screen)
        screen.say(*verdict_lines(ended))
        following = (ended.get("head_to_head") or {}).get("continued_by")
        found = [server.get(f"/verifications/{segment(following)}")] if following else []


def _show_board(server: ServerClient, logs: str, screen: Screen) -> int:
    screen.say("", Text("7. The leaderboards, of code and of logs", style="bold"))
    for division in (CODE, LOGS):
        address = f"{server.url}/benchmarks/{BENCHMARK}?division={division}"
        screen.say(*leaderboard_lines(_board(server, division)), address, "")
    entry = _entry(_board(server, LOGS), logs)
    screen.say(outcome_line(entry), f"submission   {server.url}/submissions/{logs}")
    return int(ExitCode.OK if entry.get("rank") is not None else ExitCode.NOT_VERIFIED)


def _board(server: ServerClient, division: str) -> View:
    board: View = server.get(f"/leaderboards/{BENCHMARK}", division=division, limit=100)
    return board


def _entry(board: View, submission_id: str) -> View:
    entries = [flat(row) for row in board.get("entries") or []]
    return next((each for each in entries if each["submission_id"] == submission_id), {})


def _jobs(server: ServerClient, *, submitter: str = "", **wanted: str) -> list[View]:
    """Verifications that fit, the newest first."""
    listed = server.get("/verifications", limit=100)["verifications"]
    found = [
        each for each in listed if all(each.get(name) == value for name, value in wanted.items())
    ]
    if submitter:
        sent = server.get("/submissions", benchmark=BENCHMARK, limit=100)["submissions"]
        ids = {each["id"] for each in sent if each["submitter"] == submitter}
        found = [each for each in found if each["submission_id"] in ids]
    return found


def _wait_for(find: Callable[[], list[View]]) -> list[View]:
    """What there is after some seconds at most."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not (found := find()) and time.monotonic() < until:
        time.sleep(0.5)
    return found


def outcome_line(entry: View) -> Text:
    """The rank and the measured time with its interval, beside the claimed one."""
    seconds = entry.get("measured_seconds")
    if entry.get("rank") is None or seconds is None:
        return Text(
            f"Not ranked: {entry.get('unranked_reason') or 'it is not measured'}.", "yellow"
        )
    low, high = entry.get("tta_low_seconds"), entry.get("tta_high_seconds")
    interval = "no interval yet" if low is None else f"{low:.3f} to {high:.3f} s, 95 %"
    runs = count_text(entry.get("measured_runs") or 0, "run")
    return Text.assemble(
        (f"Rank {entry['rank']}. Measured ", "bold green"),
        f"{seconds:.3f} s ({interval}) in {runs}; claimed {entry.get('claimed_seconds'):.3f} s"
        f"{f' ({busy})' if (busy := busy_words(entry)) else ''}.",
    )


if __name__ == "__main__":
    sys.exit(main(command=app))
