"""The demo of `finishline up --demo`: a first submission, its verification, and the leaderboard.

`up` starts it as a process of its own: `python -m server.commands.demo URL VAR`.
"""

import sys
import time
from pathlib import Path

import typer
from rich.text import Text

from finishline.cli.answers import submission_lines, verdict_lines
from finishline.cli.client import ServerClient, View, segment
from finishline.cli.commands.leaderboard import leaderboard_lines
from finishline.cli.commands.run import train_shown
from finishline.cli.commands.submit import send_submission
from finishline.cli.commands.verify import request_verification
from finishline.cli.definitions import find_benchmark
from finishline.cli.errors import CliError, ExitCode
from finishline.cli.main import main
from finishline.cli.processes import Training
from finishline.cli.screen import Screen, open_screen
from finishline.cli.watching import watch_verification
from finishline.rules.text import count_text
from server.commands.paths import VarPaths
from server.commands.services import read_token
from server.commands.up import token_path

BENCHMARK = "digits"
app = typer.Typer(add_completion=False)


@app.command()
def demo(url: str, var: Path) -> int:
    """Train, submit, request a verification, watch it, and show the leaderboard.

    Uses the tokens that `finishline up` keeps in its var folder. The exit code is 0 if the
    row ends measured, else 3.
    """
    screen = open_screen(as_json=False)
    file, definition = find_benchmark(BENCHMARK, None)
    folder = var / f"demo-{time.strftime('%Y%m%d-%H%M%S')}"
    training = Training(benchmark_file=file, out=folder, runs=definition.runs.count)
    target = definition.target
    screen.say(
        "",
        Text(f"1. Train {definition.title} {count_text(training.runs, 'time')}", style="bold"),
        f"  to {target.metric} {target.value:g} {target.unit}; the files go to {folder}",
    )
    train_shown(training, definition, screen)
    with ServerClient(url, kept_token(var, "demo")) as server:
        screen.say("", Text("2. Submit it", style="bold"))
        submission = send_submission(server, folder)
        screen.say(*submission_lines(submission))
    with ServerClient(url, kept_token(var, "organiser")) as server:
        return _verify(server, submission, screen)


def kept_token(var: Path, name: str) -> str:
    """The token that `finishline up` keeps for a user. Raises CliError without one."""
    path = token_path(VarPaths(var), name)
    token = read_token(path)
    if token is None:
        raise CliError(
            f"There is no token in {path}: `finishline up` keeps one there.",
            exit_code=ExitCode.NOT_ALLOWED,
        )
    return token


def _verify(server: ServerClient, submission: View, screen: Screen) -> int:
    screen.say("", Text("3. Replay it with secret seeds of the server", style="bold"))
    # A second demo sends what the first one did: its submission is a duplicate.
    original = str(submission.get("duplicate_of") or submission["id"])
    if original != submission["id"]:
        screen.say(f"  the settings of submission {original}: it is replayed again")
    verification = request_verification(server, original, reason="demo")
    screen.say(f"  sealed: {verification.get('seal')}")
    verification = watch_verification(server, verification, screen)
    screen.say(*verdict_lines(verification))
    board = server.get(f"/leaderboards/{segment(str(submission['benchmark']))}", limit=100)
    entries: list[View] = board.get("entries") or []
    entry = next((each for each in entries if each["submission_id"] == original), {})
    screen.say("", Text("4. The leaderboard", style="bold"))
    screen.say(*leaderboard_lines(board), "", outcome_line(entry, verification))
    screen.say(
        f"leaderboard  {server.url}/benchmarks/{submission['benchmark']}",
        f"submission   {server.url}/submissions/{original}",
        f"verification {server.url}/verifications/{verification['id']}",
    )
    is_measured = entry.get("evidence") == "measured"
    return int(ExitCode.OK if is_measured else ExitCode.NOT_VERIFIED)


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


if __name__ == "__main__":
    sys.exit(main(command=app))
