"""Waking this process's dispatch loop once something is committed that it may act on.

Other processes hear nothing of it: theirs look by themselves every interval.
"""

import threading
from typing import cast
from weakref import WeakKeyDictionary

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from server.base.database import after_commit

_bells: WeakKeyDictionary[Engine, threading.Event] = WeakKeyDictionary()
_lock = threading.Lock()


def bell_of(engine: Engine) -> threading.Event:
    """The bell that the dispatch loop of this database waits for."""
    with _lock:
        return _bells.setdefault(engine, threading.Event())


def ring(session: Session) -> None:
    """Wake the dispatch loop once this transaction is committed; never if it is rolled back."""
    after_commit(session, bell_of(cast(Engine, session.get_bind())).set)
