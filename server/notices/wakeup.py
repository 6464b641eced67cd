"""Wake the loop of this process when there is something to deliver."""

import threading
from typing import cast
from weakref import WeakKeyDictionary

from sqlalchemy import Engine
from sqlalchemy.orm import Session

_wakings: WeakKeyDictionary[Engine, threading.Event] = WeakKeyDictionary()
_making = threading.Lock()


def waking(engine: Engine) -> threading.Event:
    """Event object that wakes this process's delivery loop of a database."""
    with _making:
        found = _wakings.get(engine)
        if found is None:
            found = _wakings[engine] = threading.Event()
        return found


def waking_of(session: Session) -> threading.Event:
    """Event object of `waking` for the database of a session."""
    return waking(cast(Engine, session.get_bind()))
