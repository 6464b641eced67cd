"""A room's own state in this process: one object of each type, found through the database."""

from threading import Lock
from typing import Any, TypeVar, cast

from sqlalchemy.orm import Session

ROOM_STATE = "room_state"

Kind = TypeVar("Kind")


class RoomState:
    """One object of each type: put there at the start, or made without arguments at its first use.

    A room names its own classes, so the base knows none of them.
    """

    def __init__(self) -> None:
        self._by_kind: dict[type[Any], Any] = {}
        self._lock = Lock()

    def put(self, value: Kind) -> Kind:
        """Keep an object under its type; an earlier one of that type is replaced."""
        self._by_kind[type(value)] = value
        return value

    def of(self, kind: type[Kind]) -> Kind:
        """The object of a type. Raises TypeError if none was put there and it needs arguments."""
        found = self._by_kind.get(kind)
        if found is None:
            with self._lock:
                found = self._by_kind.get(kind)
                if found is None:
                    found = self.put(kind())
        return cast(Kind, found)


def state_of(session: Session, kind: type[Kind]) -> Kind:
    """The object of a type that belongs to a session's database, as `RoomState.of`."""
    state: RoomState = session.info[ROOM_STATE]
    return state.of(kind)
