"""Which submission each version of a board changed, as far as this process wrote it itself."""

import threading
from collections import OrderedDict
from typing import cast
from weakref import WeakKeyDictionary

from sqlalchemy import Engine
from sqlalchemy.orm import Session

# A board that has changed this often since it was read may as well be read whole.
MOST_VERSIONS = 200


class BoardChanges:
    """The latest versions of each board of one database, with the submission each changed."""

    def __init__(self) -> None:
        self._boards: dict[str, OrderedDict[int, str]] = {}
        self._lock = threading.Lock()

    def note(self, benchmark_id: str, version: int, submission_id: str) -> None:
        """A committed version."""
        with self._lock:
            versions = self._boards.setdefault(benchmark_id, OrderedDict())
            versions[version] = submission_id
            while len(versions) > MOST_VERSIONS:
                versions.popitem(last=False)

    def between(self, benchmark_id: str, earlier: int, later: int) -> set[str] | None:
        """The submissions that changed after one version up to another.

        None where a version between them is not known here: another process wrote it.
        """
        if not 0 <= later - earlier <= MOST_VERSIONS:
            return None
        with self._lock:
            versions = self._boards.get(benchmark_id, OrderedDict())
            changed = [versions.get(version) for version in range(earlier + 1, later + 1)]
        found = {submission_id for submission_id in changed if submission_id is not None}
        return None if None in changed else found


_changes: WeakKeyDictionary[Engine, BoardChanges] = WeakKeyDictionary()
_making = threading.Lock()


def board_changes_of(session: Session) -> BoardChanges:
    """What this process has changed in a session's database."""
    engine = cast(Engine, session.get_bind())
    with _making:
        changes = _changes.get(engine)
        if changes is None:
            changes = _changes[engine] = BoardChanges()
        return changes
