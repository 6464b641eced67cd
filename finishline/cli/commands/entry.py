"""`finishline training submit`, `run-again` and `factors`: have code measured, and follow it."""

import re
from typing import Annotated

from rich.console import RenderableType
from typer import Argument, Option

from finishline.cli.answers import time_lines, verdict_lines
from finishline.cli.client import ServerClient, View, segment
from finishline.cli.commands.training import PackagePath, app, open_package
from finishline.cli.commands.verify import request_verification
from finishline.cli.errors import CliError, ExitCode, UsageError
from finishline.cli.rows import asks_server
from finishline.cli.screen import Screen, as_it_is
from finishline.cli.watching import verdict_code, watch_verification
from finishline.client.files import send_package
from finishline.rules.verification.entry import FEWEST_REPEATS, MOST_REPEATS, USUAL_REPEATS
from finishline.rules.verification.purposes import ABLATION

Watch = Annotated[
    bool, Option("--watch/--no-watch", help="Follow the measurement until its verdict.")
]
Named = Annotated[
    str,
    Argument(
        metavar="SHA256|SUBMISSION",
        help="The beginning of a code submission's SHA-256, or the id of its submission.",
    ),
]
HASH = re.compile(r"[0-9a-f]{6,64}")
SHORT = 12


@app.command("submit")
@asks_server
def submit(
    server: ServerClient,
    screen: Screen,
    path: PackagePath,
    hardware_class: Annotated[
        str | None,
        Option(
            "--class",
            "--hardware-class",
            help="Hardware class to be measured on (default: of a worker with the environment).",
        ),
    ] = None,
    watch: Watch = True,
) -> ExitCode:
    """Hand a code submission in: a worker trains it in a sandbox, and its time ranks.

    It is checked first as `check` does. The same files sent twice are one entry. Their source is
    published with the first verdict.
    """
    package = open_package(path, benchmarks=None)
    entry, repeated = send_package(server, package.files, hardware_class=hardware_class)
    told = "Handed in before" if repeated else "Handed in"
    screen.say(as_it_is(f"{told}: {package.manifest.title}, sha256 {package.sha256}"))
    original = entry.get("duplicate_of")
    if original is not None:
        words = (
            f"It is a duplicate of submission {original}: the same program, but for names and "
            "layout. Only the earlier one is trained and ranked. Change the program to have yours "
            "measured."
        )
        page = f"{server.url}/submissions/{entry['id']}"
        screen.answer(entry, [as_it_is(words), as_it_is(page)])
        return ExitCode.OK
    if repeated:
        screen.say(f"More runs: finishline training run-again {package.sha256[:SHORT]}")
    ids = [str(each["id"]) for each in entry["verifications"] if each["kind"] == "entry"]
    if not ids:
        raise CliError(
            f"Submission {entry['id']} waits for no measurement; ask for one with "
            f"`finishline training run-again {entry['id']}`.",
            exit_code=ExitCode.NOT_VERIFIED,
        )
    measurement = server.get(f"/verifications/{segment(ids[-1])}")
    return _follow(server, str(entry["id"]), measurement, screen, watch=watch)


@app.command("run-again")
@asks_server
def run_again(server: ServerClient, screen: Screen, name: Named, watch: Watch = True) -> ExitCode:
    """Ask for more runs of your code submission. They count together with the earlier ones."""
    entry_id = find_entry(server, name)
    measurement = request_verification(server, entry_id, kind="entry")
    return _follow(server, entry_id, measurement, screen, watch=watch)


@app.command("factors")
@asks_server
def factors(
    server: ServerClient,
    screen: Screen,
    name: Named,
    repeats: Annotated[
        int, Option(min=FEWEST_REPEATS, max=MOST_REPEATS, help="Runs of each variant.")
    ] = USUAL_REPEATS,
    watch: Watch = True,
) -> ExitCode:
    """Train a code submission without each of its factors, paired by seed and data.

    The runs count on your quota. They change neither its time nor its rank.
    """
    entry_id = find_entry(server, name)
    asked = request_verification(server, entry_id, kind=ABLATION.name, repeats=repeats)
    screen.say(f"{asked['runs_planned']} runs: {repeats} of each variant.")
    return _follow(server, entry_id, asked, screen, watch=watch, with_time=False)


def find_entry(server: ServerClient, name: str) -> str:
    """Id of a submission by itself, or by the beginning of its code's hash. Raises CliError."""
    begins_so = name.removeprefix("sha256:")
    found: list[View] = []
    if HASH.fullmatch(begins_so):
        found = server.get("/submissions", package=begins_so, limit=100)["submissions"]
    if not found:
        return str(server.get(f"/submissions/{segment(name)}")["id"])
    if len(found) > 1:
        user = server.get("/me")["user"]
        found = [each for each in found if each["submitter"] == user] or found
    if len(found) > 1:
        listed = ", ".join(f"{each['id']} ({each['system']['hardware_class']})" for each in found)
        raise UsageError(
            f"{len(found)} code submissions have a SHA-256 that begins with {begins_so}: {listed}. "
            "Name one by its id."
        )
    return str(found[0]["id"])


def _follow(
    server: ServerClient,
    entry_id: str,
    measurement: View,
    screen: Screen,
    *,
    watch: bool,
    with_time: bool = True,
) -> ExitCode:
    """Show a job until it ends, unless the caller does not wait; then the entry's time."""
    if watch:
        measurement = watch_verification(server, measurement, screen)
    entry = server.get(f"/submissions/{segment(entry_id)}")
    lines: list[RenderableType] = []
    if watch:
        lines += verdict_lines(measurement)
        for attempt in measurement.get("attempts") or []:
            if attempt.get("failure") and attempt.get("log_tail"):
                lines.append(as_it_is(str(attempt["log_tail"]).rstrip()))
        lines += time_lines(entry) if with_time else []
    else:
        lines.append(as_it_is(f"Follow it: finishline verify {measurement['id']} --watch"))
    page = as_it_is(f"{server.url}/submissions/{entry_id}")
    screen.answer(entry | {"verification": measurement}, [*lines, page])
    return entry_code(measurement) if watch else ExitCode.OK


def entry_code(measurement: View) -> ExitCode:
    """The exit code of a measurement that has ended: 4 if no worker could make it."""
    codes = {reason.get("code") for reason in measurement.get("reasons") or []}
    if measurement.get("state") == "failed" and codes == {"infrastructure"}:
        return ExitCode.SERVER
    return verdict_code(measurement)
