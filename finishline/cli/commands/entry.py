"""Have a code submission measured by `submit` or `verify`, and follow it."""

import re
from pathlib import Path

from rich.console import RenderableType

from finishline.cli.answers import submission_lines, time_lines, verdict_lines
from finishline.cli.client import ServerClient, View, connect, segment
from finishline.cli.commands.training import open_package
from finishline.cli.errors import CliError, ExitCode, UsageError
from finishline.cli.screen import Screen, as_it_is
from finishline.cli.watching import verdict_code, watch_verification
from finishline.client.files import send_package
from finishline.rules.trainings.package import Package
from finishline.rules.verification.purposes import ABLATION

HASH = re.compile(r"[0-9a-f]{6,64}")
SHORT = 12


def submit_code(
    screen: Screen, path: Path, *, hardware_class: str | None, watch: bool, dry_run: bool
) -> ExitCode:
    """Hand a code submission in: a worker trains it in a sandbox, and its time ranks."""
    package = open_package(path, benchmarks=None)
    with connect() as server:
        if not dry_run:
            return _hand_in(server, screen, package, hardware_class=hardware_class, watch=watch)
        view, _ = send_package(server, package.files, dry_run=True)
        told = "Nothing was sent. A worker would measure it."
        screen.answer(view, [*submission_lines(view), told])
    return ExitCode.OK


def _hand_in(
    server: ServerClient,
    screen: Screen,
    package: Package,
    *,
    hardware_class: str | None,
    watch: bool,
) -> ExitCode:
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
        screen.say(f"More runs: finishline verify {package.sha256[:SHORT]} --again")
    ids = [str(each["id"]) for each in entry["verifications"] if each["kind"] == "entry"]
    if not ids:
        raise CliError(
            f"Submission {entry['id']} waits for no measurement; ask for one with "
            f"`finishline verify {entry['id']} --again`.",
            exit_code=ExitCode.NOT_VERIFIED,
        )
    measurement = server.get(f"/verifications/{segment(ids[-1])}")
    return _follow(server, str(entry["id"]), measurement, screen, watch=watch)


def run_again(server: ServerClient, screen: Screen, name: str, *, watch: bool) -> ExitCode:
    """Ask for more runs of your code submission. They count together with the earlier ones."""
    entry_id = find_entry(server, name)
    measurement = request_verification(server, entry_id, kind="entry")
    return _follow(server, entry_id, measurement, screen, watch=watch)


def run_ablations(
    server: ServerClient, screen: Screen, name: str, *, repeats: int, watch: bool
) -> ExitCode:
    """Train a code submission without each of its ablations, paired by seed and data."""
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


def request_verification(
    server: ServerClient, submission: str, *, kind: str = "replay", **wishes: object
) -> View:
    path = f"/submissions/{segment(submission)}/verifications"
    view: View = server.post(path, {"kind": kind} | wishes)
    return view
