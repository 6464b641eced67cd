"""Which version each board has, as far as this process knows, and how long ago it asked."""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast
from weakref import WeakKeyDictionary

from sqlalchemy import Engine
from sqlalchemy.orm import Session

# What another process writes is seen here after at most this long.
FRESH_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class _Known:
    """A committed version; the times are of time.monotonic()."""

    version: int
    asked_at: float
    noted_at: float


class KnownVersions:
    """The committed versions of one database's boards.

    They are told by whoever reads one and by each write of this process after its commit, so that
    whoever asks after a write was acknowledged finds its version or a later one.
    """

    def __init__(self, *, fresh_seconds: float = FRESH_SECONDS) -> None:
        self.fresh_seconds = fresh_seconds
        self._boards: dict[str, _Known] = {}
        self._lock = threading.Lock()

    def is_current(self, benchmark_id: str, version: int, now: float) -> bool:
        """Whether a board has this version, by knowledge fresh at this time.monotonic()."""
        known = self._boards.get(benchmark_id)
        return (
            known is not None
            and known.version == version
            and now - known.asked_at <= self.fresh_seconds
        )

    def is_latest(self, benchmark_id: str, version: int) -> bool:
        """Whether a board had this version when it was last asked for, however long ago."""
        known = self._boards.get(benchmark_id)
        return known is not None and known.version == version

    def note(self, benchmark_id: str, version: int, *, asked_at: float) -> None:
        """A version that a read found which began at `asked_at`."""
        with self._lock:
            self._note(benchmark_id, version, asked_at)

    def note_all(self, versions: Mapping[str, int], *, asked_at: float) -> None:
        """What one statement found of all boards; one that is left out has version 0."""
        with self._lock:
            for benchmark_id in self._boards.keys() | versions.keys():
                self._note(benchmark_id, versions.get(benchmark_id, 0), asked_at)

    def note_write(self, benchmark_id: str, version: int) -> None:
        """A version that this process has committed; what else is known grows no fresher by it."""
        with self._lock:
            known = self._boards.get(benchmark_id)
            self._note(benchmark_id, version, known.asked_at if known is not None else 0.0)

    def _note(self, benchmark_id: str, version: int, asked_at: float) -> None:
        """Keep the later version: a read that began before it was noted may have found an older
        one. A lower one found after that is the truth: the database was restored from a copy.
        """
        known = self._boards.get(benchmark_id)
        if known is None or version > known.version or asked_at > known.noted_at:
            self._boards[benchmark_id] = _Known(version, asked_at, time.monotonic())
        elif version == known.version and asked_at > known.asked_at:
            self._boards[benchmark_id] = _Known(version, asked_at, known.noted_at)


_known: WeakKeyDictionary[Engine, KnownVersions] = WeakKeyDictionary()
_making = threading.Lock()


def known_versions(engine: Engine) -> KnownVersions:
    """What this process knows of the boards of a database."""
    with _making:
        known = _known.get(engine)
        if known is None:
            known = _known[engine] = KnownVersions()
        return known


def known_versions_of(session: Session) -> KnownVersions:
    """What this process knows of the boards of a session's database."""
    return known_versions(cast(Engine, session.get_bind()))
