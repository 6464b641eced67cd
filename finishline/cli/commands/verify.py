"""`finishline verify`: ask for one verification and watch its replay, or for many at once."""

from enum import StrEnum
from typing import Annotated, Any

import typer

from finishline.cli.client import ServerClient, View, segment
from finishline.cli.errors import CliError, ExitCode
from finishline.cli.options import DEFAULT_URL, Json, Token, Url
from finishline.cli.rerun_views import batch_lines
from finishline.cli.screen import Screen, open_screen
from finishline.cli.submission_tables import verdict_lines
from finishline.cli.watching import ENDED, verdict_code, watch_verification


class Kind(StrEnum):
    """What is verified."""

    REPLAY = "replay"
    LATENCY = "latency"


def verify(
    submissions: Annotated[
        list[str] | None, typer.Argument(metavar="[SUBMISSION]...", help="Ids of submissions.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show the replay of one and wait for the verdict.")
    ] = False,
    kind: Annotated[
        Kind, typer.Option("--kind", help="replay: train it again; latency: time its model.")
    ] = Kind.REPLAY,
    reason: Annotated[
        str | None, typer.Option("--reason", help="Why; shown with the verification.")
    ] = None,
    benchmark: Annotated[
        str | None, typer.Option("--benchmark", help="Every submission of this benchmark instead.")
    ] = None,
    status: Annotated[
        str | None, typer.Option("--status", help="Of the benchmark's, those of this status.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be queued and what it would cost.")
    ] = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Json = False,
) -> int:
    """Ask for a submission to be replayed: the first time by its owner, else by organisers.

    Several, for organisers only, need a --reason.

    With --watch one that is under way is joined, named by its submission or by its own id.

    The exit code is then 0 when it ends verified and 3 when it ends otherwise.
    """
    named = submissions or []
    _require_one_choice(named, benchmark=benchmark, status=status)
    screen = open_screen(as_json=as_json)
    with ServerClient(url, token) as server:
        if benchmark is not None or dry_run or len(named) > 1:
            _require_batch(reason, watch=watch, kind=kind)
            wanted = {"benchmark": benchmark, "status": status} if benchmark else {}
            listed = {"submissions": named} if named else {}
            body = {**wanted, **listed, "reason": reason, "dry_run": dry_run}
            batch = server.post("/verifications/batch", body)
            screen.answer(batch, batch_lines(batch))
            return int(ExitCode.OK)
        view = find_under_way(server, named[0], kind=kind.value) if watch else None
        if view is not None and view.get("state") not in ENDED:
            screen.say("It is under way already: nothing is asked for, this goes along with it.")
        if view is None:
            view = request_verification(server, named[0], kind=kind.value, reason=reason)
        return _follow_one(server, view, watch=watch, screen=screen)


def _require_one_choice(named: list[str], *, benchmark: str | None, status: str | None) -> None:
    if bool(named) == (benchmark is not None) or (status is not None and benchmark is None):
        raise CliError(
            "Name submissions, or a benchmark with --benchmark and perhaps --status.",
            exit_code=ExitCode.USAGE,
        )


def _require_batch(reason: str | None, *, watch: bool, kind: Kind) -> None:
    if kind is not Kind.REPLAY:
        raise CliError(f"--kind {kind.value} is for one submission.", exit_code=ExitCode.USAGE)
    if not reason:
        raise CliError("Several replays need a --reason.", exit_code=ExitCode.USAGE)
    if watch:
        raise CliError("--watch is for one submission.", exit_code=ExitCode.USAGE)


def _follow_one(server: ServerClient, view: View, *, watch: bool, screen: Screen) -> int:
    if not watch:
        page = f"{server.url}/verifications/{view['id']}"
        screen.answer(view, [f"Verification {view['id']} is {view['state']}: {page}"])
        return int(ExitCode.OK)
    ended = watch_verification(server, view, screen)
    screen.answer(ended, verdict_lines(ended))
    return int(verdict_code(ended))


def find_under_way(server: ServerClient, name: str, *, kind: str) -> View | None:
    """The verification of a submission that has not ended, or the one of that very id; or None.

    Reading needs no token, so anybody can follow what somebody else asked for. Raises CliError.
    """
    submission = _get_if_there(server, f"/submissions/{segment(name)}")
    if submission is None:
        return _get_if_there(server, f"/verifications/{segment(name)}")
    for each in submission.get("verifications") or []:
        if each.get("kind") == kind and each.get("state") not in ENDED:
            return _get_if_there(server, f"/verifications/{segment(str(each.get('id')))}")
    return None


def _get_if_there(server: ServerClient, path: str) -> View | None:
    try:
        view: View = server.get(path)
    except CliError as error:
        if error.exit_code is ExitCode.NOT_FOUND:
            return None
        raise
    return view


def request_verification(
    server: ServerClient,
    submission: str,
    *,
    kind: str = "replay",
    reason: str | None,
    own_seeds: int | None = None,
) -> View:
    """The view of a new verification of a submission. Raises CliError."""
    path = f"/submissions/{segment(submission)}/verifications"
    body: dict[str, Any] = {"kind": kind, "reason": reason}
    if own_seeds is not None:
        body["own_seeds"] = own_seeds
    view: View = server.post(path, body)
    return view
