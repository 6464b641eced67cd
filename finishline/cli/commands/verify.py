"""`finishline verify`: ask for checks and head-to-heads, and follow them."""

from typing import Annotated

import typer
from typer import Argument, Option

from finishline.cli.answers import batch_lines, verdict_lines
from finishline.cli.client import ServerClient, View, segment
from finishline.cli.commands.entry import request_verification, run_ablations, run_again
from finishline.cli.errors import CliError, ExitCode, UsageError
from finishline.cli.listings import table_of
from finishline.cli.rows import asks_server
from finishline.cli.screen import Screen
from finishline.cli.watching import ENDED, verdict_code, watch_verification
from finishline.rules.verification.entry import FEWEST_REPEATS, MOST_REPEATS, USUAL_REPEATS
from finishline.rules.verification.purposes import ASKED_FOR, PURPOSES

KINDS = "; ".join(f"{name}: {PURPOSES[name].words.about}" for name in ASKED_FOR)


def _known_kind(name: str) -> str:
    if name not in ASKED_FOR:
        raise typer.BadParameter(f"{name!r} is not {' or '.join(ASKED_FOR)}.")
    return name


@asks_server
def verify(
    server: ServerClient,
    screen: Screen,
    submissions: Annotated[
        list[str] | None, Argument(metavar="[SUBMISSION]...", help="Ids of submissions.")
    ] = None,
    watch: Annotated[
        bool, Option("--watch", help="Follow the replay of one submission until its verdict.")
    ] = False,
    kind: Annotated[str, Option(callback=_known_kind, help=f"{KINDS}.")] = "replay",
    reason: Annotated[str | None, Option(help="Reason, shown with the verification.")] = None,
    benchmark: Annotated[str | None, Option(help="All submissions of this benchmark.")] = None,
    status: Annotated[
        str | None, Option(help="With --benchmark: only submissions of this status.")
    ] = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="List the replays and their cost without queueing them.")
    ] = False,
    head_to_head: Annotated[
        bool,
        Option(
            "--head-to-head", help="Train two submissions in turn: the challenger and the holder."
        ),
    ] = False,
    again: Annotated[
        bool, Option("--again", help="More runs of your code submission, by id or SHA-256.")
    ] = False,
    ablations: Annotated[
        bool, Option("--ablations", help="Train code without each of its ablations, in pairs.")
    ] = False,
    repeats: Annotated[
        int,
        Option(
            min=FEWEST_REPEATS, max=MOST_REPEATS, help="With --ablations: runs of each variant."
        ),
    ] = USUAL_REPEATS,
    listed: Annotated[bool, Option("--list", help="List the newest verifications.")] = False,
) -> ExitCode:
    """Request a replay: the first one as the submission's owner, others as an organiser.

    Several submissions (organisers only) need a --reason.

    --watch also follows a verification that runs or has ended, by its id or its submission's.

    The exit code is then 0 if it ends verified, else 3. It is 1 if several are named and all are
    skipped.

    --head-to-head A B trains your submission and the holder of its board, A B B A, on one worker.
    It ends after 5, 10, 20 or 30 pairs, as soon as the answer is clear. --watch follows all its
    verifications. The exit code is then 0 with an answer, and 3 if it is inconclusive.
    """
    named = submissions or []
    if listed:
        view = server.get("/verifications", limit=100)
        screen.answer(view, [table_of("verifications", view["verifications"])])
        return ExitCode.OK
    if again or ablations:
        if len(named) != 1 or (again and ablations):
            raise UsageError("Pass one submission with --again or --ablations.")
        if again:
            return run_again(server, screen, named[0], watch=watch)
        return run_ablations(server, screen, named[0], repeats=repeats, watch=watch)
    if head_to_head:
        if len(named) != 2 or benchmark or status or dry_run or kind != "replay":
            raise UsageError("--head-to-head takes two submission ids, --watch and --reason.")
        return _meet(server, screen, *named, watch=watch, reason=reason)
    if bool(named) == (benchmark is not None) or (status is not None and benchmark is None):
        raise UsageError("Pass submission ids, or --benchmark with an optional --status.")
    several = benchmark is not None or dry_run or len(named) > 1
    if several and kind != "replay":
        raise UsageError(f"--kind {kind} is for one submission.")
    if several and not reason:
        raise UsageError("Verifying several submissions needs a --reason.")
    if several and watch:
        raise UsageError("--watch is for one submission.")
    if several:
        wanted = {"benchmark": benchmark, "status": status} if benchmark else {}
        body = {**wanted, **({"submissions": named} if named else {})}
        batch = server.post("/verifications/batch", body | {"reason": reason, "dry_run": dry_run})
        screen.answer(batch, batch_lines(batch, server.url))
        return ExitCode.REFUSED if named and not batch["replays"] else ExitCode.OK
    view = _find_latest(server, named[0], kind=kind) if watch else None
    if view is None:
        view = _request_by_name(server, named[0], kind=kind, reason=reason, watch=watch)
    elif view.get("state") not in ENDED:
        screen.say("A verification is already under way; following it.")
    view = _follow(server, view, screen, watch=watch, what="Verification")
    return verdict_code(view) if watch else ExitCode.OK


def _follow(server: ServerClient, view: View, screen: Screen, *, watch: bool, what: str) -> View:
    """Show a verification, until its end if the caller waits, and return its last view.

    A head-to-head that needs more pairs goes on with the verification that has them.
    """
    if not watch:
        page = f"{server.url}/verifications/{view['id']}"
        screen.answer(view, [f"{what} {view['id']} is {view['state']}: {page}"])
        return view
    view = watch_verification(server, view, screen)
    while following := (view.get("duel") or {}).get("continued_by"):
        screen.say("More pairs are needed.")
        more = server.get(f"/verifications/{segment(following)}")
        view = watch_verification(server, more, screen)
    screen.answer(view, verdict_lines(view))
    return view


def _find_latest(server: ServerClient, name: str, *, kind: str, ended: bool = False) -> View | None:
    """The latest verification of a submission that runs or has ended, or the one with this id.

    Reading needs no token, so anybody can follow another user's verification. Raises CliError.
    """
    submission = _get_if_there(server, f"/submissions/{segment(name)}")
    if submission is None:
        return _get_if_there(server, f"/verifications/{segment(name)}")
    # An entry has no replays: its measurement is followed in their place.
    kinds = ("replay", "entry") if kind == "replay" else (kind,)
    for each in reversed(submission.get("verifications") or []):
        if each.get("kind") in kinds and (each.get("state") in ENDED) == ended:
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


def _request_by_name(
    server: ServerClient, name: str, *, kind: str, reason: str | None, watch: bool
) -> View:
    """Request a verification of a submission. Raises CliError, also for a verification's id.

    Who may not request one watches the latest that has ended.
    """
    try:
        return request_verification(server, name, kind=kind, reason=reason)
    except CliError as error:
        if watch and error.exit_code is ExitCode.NOT_ALLOWED:
            ended = _find_latest(server, name, kind=kind, ended=True)
            if ended is not None:
                return ended
        is_missing = error.exit_code is ExitCode.NOT_FOUND
        found = _get_if_there(server, f"/verifications/{segment(name)}") if is_missing else None
        if found is None:
            raise
        raise CliError(
            f"{name} is a verification, {found['state']}, and no submission; see it with "
            f"`finishline verify {name} --watch`.",
            exit_code=ExitCode.NOT_FOUND,
        ) from error


def _meet(
    server: ServerClient,
    screen: Screen,
    challenger: str,
    holder: str,
    *,
    watch: bool,
    reason: str | None,
) -> ExitCode:
    """Request a head-to-head, and follow its pairs to the last verification."""
    body = {"challenger": challenger, "holder": holder, "reason": reason}
    view = _follow(server, server.post("/duels", body), screen, watch=watch, what="Head-to-head")
    return verdict_code(view) if watch else ExitCode.OK
