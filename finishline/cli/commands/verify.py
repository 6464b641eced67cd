"""`finishline verify`: request checks and head-to-heads, and follow them."""

from typing import Annotated

import typer
from typer import Argument, Option

from finishline.cli.answers import batch_lines, time_lines, verdict_lines
from finishline.cli.client import ServerClient, View, segment
from finishline.cli.errors import ExitCode, UsageError
from finishline.cli.listings import table_of
from finishline.cli.rows import asks_server
from finishline.cli.screen import Screen
from finishline.cli.watching import ENDED, verdict_code, watch_verification
from finishline.client.errors import NotFound
from finishline.rules.verification.entry import FEWEST_REPEATS, MOST_REPEATS, USUAL_REPEATS
from finishline.rules.verification.purposes import ABLATION, ASKED_FOR, ENTRY, PURPOSES

KINDS = ". ".join(f"{name}: {PURPOSES[name].words.about}" for name in ASKED_FOR)


def _known_kind(name: str | None) -> str | None:
    if name is not None and name not in ASKED_FOR:
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
        bool, Option("--watch", help="Follow one verification until its verdict.")
    ] = False,
    kind: Annotated[
        str | None,
        Option(callback=_known_kind, help=f"By default chosen by the submission. {KINDS}."),
    ] = None,
    reason: Annotated[str | None, Option(help="Reason, shown with the verification.")] = None,
    benchmark: Annotated[str | None, Option(help="All submissions of this benchmark.")] = None,
    status: Annotated[
        str | None, Option(help="With --benchmark: only submissions of this status.")
    ] = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Only list the replays and their cost.")
    ] = False,
    head_to_head: Annotated[
        bool,
        Option(
            "--head-to-head", help="Train two submissions in turn: the challenger and the holder."
        ),
    ] = False,
    again: Annotated[bool, Option("--again", help="More runs of your code submission.")] = False,
    ablations: Annotated[
        bool, Option("--ablations", help="Train code with each of its ablations off, in pairs.")
    ] = False,
    repeats: Annotated[
        int,
        Option(
            min=FEWEST_REPEATS, max=MOST_REPEATS, help="With --ablations: runs of each variant."
        ),
    ] = USUAL_REPEATS,
    listed: Annotated[bool, Option("--list", help="List the newest verifications.")] = False,
) -> ExitCode:
    """Verify a submission: its owner may request the first time, an organiser any time.

    Logs are replayed with secret seeds. Code is trained in a sandbox, and its time measured.

    Several submissions (organisers only) need a --reason.

    --watch also follows a running or ended verification, by its id or its submission's.

    The exit code is then 0 if it ends verified, else 3. It is 1 if several are named and all are
    skipped.

    --head-to-head A B trains your submission and the holder of its board, A B B A, on one worker.
    It ends after 5, 10, 20 or 30 pairs, as soon as the answer is clear. --watch follows all its
    verifications. The exit code is then 0 with an answer, and 3 if it is inconclusive.
    """
    named = submissions or []
    acts = {"--list": listed, "--head-to-head": head_to_head, "--again": again,
            "--ablations": ablations, "--benchmark": benchmark is not None}  # fmt: skip
    chosen = [act for act, is_chosen in acts.items() if is_chosen]
    several = benchmark is not None or dry_run or (len(named) > 1 and not head_to_head)
    if len(chosen) > 1 or (chosen and kind):
        raise UsageError(f"Pass one of {', '.join(acts)}. --kind is for a single submission.")
    if listed:
        view = server.get("/verifications", limit=100)
        screen.answer(view, [table_of("verifications", view["verifications"])])
        return ExitCode.OK
    if several:
        if watch or again or ablations or kind:
            raise UsageError("--watch, --kind, --again and --ablations are for one submission.")
        if bool(named) == (benchmark is not None):
            raise UsageError("Pass submission ids, or --benchmark with an optional --status.")
        if not reason:
            raise UsageError("Verifying several submissions needs a --reason.")
        wanted = {"submissions": named} if named else {"benchmark": benchmark, "status": status}
        batch = server.post("/verifications/batch", wanted | {"reason": reason, "dry_run": dry_run})
        screen.answer(batch, batch_lines(batch, server.url))
        return ExitCode.REFUSED if named and not batch["replays"] else ExitCode.OK
    if len(named) != 1 + head_to_head or status is not None:
        raise UsageError(
            "Pass the id of a submission, two with --head-to-head. --status goes with --benchmark."
        )
    view = None
    if head_to_head:
        sides = {"challenger": named[0], "holder": named[1], "reason": reason}
        view = server.post("/head-to-heads", sides)
    elif again or ablations:
        wishes = {"repeats": repeats} if ablations else {}
        kind = ABLATION.name if ablations else ENTRY.name
        view = request_verification(server, named[0], kind=kind, reason=reason, **wishes)
        screen.say(f"{view['runs_planned']} runs.")
    elif watch:
        view = _find_asked(server, named[0], kind=kind, also_ended=reason is None)
        if view is not None and view["state"] in ENDED:
            screen.say("The verification has ended. An organiser's --reason asks for another.")
        elif view is not None:
            screen.say("A verification is already under way; following it.")
    if view is None:
        view = request_verification(server, named[0], kind=kind, reason=reason)
    what = "Head-to-head" if head_to_head else "Verification"
    view = _follow(server, view, screen, watch=watch, what=what)
    return verdict_code(view) if watch else ExitCode.OK


def _follow(server: ServerClient, view: View, screen: Screen, *, watch: bool, what: str) -> View:
    """Show a verification, with `watch` to the end of its last pairs, and return its last view."""
    if not watch:
        page = f"{server.url}/verifications/{view['id']}"
        screen.answer(view, [f"{what} {view['id']} is {view['state']}: {page}"])
        return view
    view = watch_verification(server, view, screen)
    while following := (view.get("head_to_head") or {}).get("continued_by"):
        screen.say("More pairs are needed.")
        more = server.get(f"/verifications/{segment(following)}")
        view = watch_verification(server, more, screen)
    lines = [*verdict_lines(view)]
    if view.get("kind") == ENTRY.name and (submission := view.get("submission_id")):
        lines += time_lines(server.get(f"/submissions/{segment(submission)}"))
    screen.answer(view, lines)
    return view


def _find_asked(
    server: ServerClient, name: str, *, kind: str | None, also_ended: bool
) -> View | None:
    """Find a verification by id, or a submission's running or latest one. Raises CliError."""
    submission = _get_if_there(server, f"/submissions/{segment(name)}")
    if submission is None:
        return _get_if_there(server, f"/verifications/{segment(name)}")
    kinds = (kind,) if kind else ("replay", ENTRY.name)
    asked = [each for each in submission["verifications"] if each["kind"] in kinds]
    found = [each for each in asked if each["state"] not in ENDED]
    if also_ended:
        found = found or [each for each in asked if each["state"] == "done"]
    if not found:
        return None
    view: View = server.get(f"/verifications/{segment(found[-1]['id'])}")
    return view


def _get_if_there(server: ServerClient, path: str) -> View | None:
    try:
        view: View = server.get(path)
    except NotFound:
        return None
    return view


def request_verification(
    server: ServerClient, submission: str, *, kind: str | None = None, **wishes: object
) -> View:
    path = f"/submissions/{segment(submission)}/verifications"
    view: View = server.post(path, ({"kind": kind} if kind else {}) | wishes)
    return view
