"""Follow a verification to its end and show its replay."""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

from finishline.cli.client import ServerClient, View, segment
from finishline.cli.errors import CliError, ExitCode, cli_errors
from finishline.cli.replay_screen import (
    ReplayProgress,
    Show,
    read_bands,
    read_target,
    replay_screen,
)
from finishline.cli.screen import Screen, open_console
from finishline.client.sse import ServerEvent, follow_events
from finishline.rules.verification.purposes import is_in_box

ENDED = ("done", "failed", "cancelled")


def follow_verification(server: ServerClient, verification_id: str) -> Iterator[ServerEvent]:
    """The events of a verification, up to and with the one that ends it."""
    path = f"/verifications/{segment(verification_id)}/events"
    with cli_errors():
        yield from follow_events(partial(server.stream, path), end="end")


def watch_verification(server: ServerClient, view: View, screen: Screen) -> View:
    """Show a verification's replay until it ends; its last view. Raises CliError."""
    # A person who stops watching reads here where it goes on.
    screen.say(f"Verification {view['id']}: {server.url}/verifications/{view['id']}")
    step = "ask" if is_in_box(str(view.get("kind"))) else "epoch"
    progress = ReplayProgress(target=read_target(view["target"]), step=step)
    try:
        return _watch(server, view, screen, progress)
    except (KeyboardInterrupt, SystemExit):
        if not screen.as_json:
            again = f"finishline verify {view['id']} --watch"
            open_console(stderr=True).print(f"It goes on. Follow it again: {again}", soft_wrap=True)
        raise


def _watch(server: ServerClient, view: View, screen: Screen, progress: ReplayProgress) -> View:
    said: set[str] = set()
    with ExitStack() as shown:
        show: Show | None = None
        for event in follow_verification(server, str(view["id"])):
            if event.name == "end":
                return _table_of(event)
            if event.name == "state":
                state = _table_of(event)
                progress.bands = read_bands(state.get("control_points") or [])
                progress.runs_planned = state.get("runs_planned")
                progress.names = _names_of_runs(state)
                if (sentence := state.get("waiting_for")) and sentence not in said:
                    said.add(sentence)
                    screen.say(f"  {sentence}")
            elif event.name == "replay":
                show = show or shown.enter_context(replay_screen(screen, progress))
                show(_table_of(event))
    raise CliError(
        "The server ended the stream of events without a verdict; "
        f"see it at {server.url}/verifications/{view.get('id')}.",
        exit_code=ExitCode.SERVER,
    )


def _names_of_runs(view: View) -> dict[int, str]:
    """The sides of a duel, and the runs that measure no time, by the index of the run."""
    sides = enumerate((view.get("duel") or {}).get("order") or ())
    controls = dict.fromkeys(view.get("control_runs") or (), "control")
    return dict(sides) | controls | dict.fromkeys(view.get("repeat_runs") or (), "repeat")


def _table_of(event: ServerEvent) -> dict[str, Any]:
    with cli_errors():
        table = event.json()
    if not isinstance(table, dict):
        raise CliError(
            f"The server sent an event {event.name!r} that is not a JSON object.",
            exit_code=ExitCode.SERVER,
        )
    return table


def verdict_code(view: View) -> ExitCode:
    """The exit code of a verification that has ended."""
    return ExitCode.OK if view.get("outcome") == "verified" else ExitCode.NOT_VERIFIED
