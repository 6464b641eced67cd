"""What happened to a verification since a position, read from the database alone."""

from dataclasses import dataclass
from typing import Any

from server.dependencies import Parts
from server.verifications import queries
from server.verifications.own_seeds import hidden_runs, without_quality
from server.verifications.schemas import ENDED
from server.viewer import Viewer

EVENTS_AT_ONCE = 1000
LARGEST_NUMBER = 2**31 - 1  # What the database can hold.


@dataclass(frozen=True, order=True)
class Position:
    """The last replay event that was sent: its attempt's number and its sequence."""

    attempt: int = 0
    sequence: int = -1

    def __str__(self) -> str:
        return f"{self.attempt}.{self.sequence}"


def parse_position(last_event_id: str | None) -> Position:
    """Where a Last-Event-ID says the reader stopped; the beginning if it is absent or strange."""
    attempt, _, sequence = (last_event_id or "").partition(".")
    try:
        position = Position(int(attempt), int(sequence))
    except ValueError:
        return Position()
    in_range = max(abs(position.attempt), abs(position.sequence)) <= LARGEST_NUMBER
    return position if in_range else Position()


@dataclass(frozen=True)
class News:
    """What happened since a position."""

    state: dict[str, Any]
    full: dict[str, Any] | None
    replay: list[tuple[Position, dict[str, Any]]]


def read_news(parts: Parts, viewer: Viewer, verification_id: str, position: Position) -> News:
    """The state as it is, and up to so many events after a position. Raises NotFoundError."""
    alive = parts.settings.worker_alive_seconds
    with parts.database.read(viewer) as session:
        verification = queries.find_verification(session, verification_id)
        ended = verification.state in ENDED
        view = queries.view(session, verification, alive_seconds=alive, with_report=ended)
        hidden = hidden_runs(verification, viewer)
        replay = []
        for attempt in verification.attempts:
            if attempt.number < position.attempt:
                continue
            after = position.sequence if attempt.number == position.attempt else -1
            rows = queries.events_after(session, attempt, after, limit=EVENTS_AT_ONCE)
            replay += [
                (
                    Position(attempt.number, row.sequence),
                    {"attempt": attempt.number, **without_quality(row.event, hidden)},
                )
                for row in rows
            ]
            if len(rows) == EVENTS_AT_ONCE:
                break  # The rest of this attempt comes before the next one.
    full = view.model_dump(mode="json")
    state = {name: value for name, value in full.items() if name != "report"}
    return News(state=state, full=full if ended else None, replay=replay)
