"""What is kept in this process of each version of a board.

Whoever takes something from here has just read the version from the database; only what belongs to
that version is taken. Whole answers that are sent without asking are the fast path's.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sized
from dataclasses import dataclass, field
from sys import getsizeof
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

from sqlalchemy import Engine
from sqlalchemy.orm import Session

_Kept = TypeVar("_Kept")
STRIPES = 16
MIB = 1024 * 1024
# Measured: what a small answer holds in memory beside its bytes and its key.
KEPT_AROUND = 512


class VersionedCache:
    """The latest values by key, each valid for one version, together of a limited weight.

    Whoever asks chooses the key, so with `weigh_key` it counts beside the value. Of one key only
    one thread makes a value while the others wait for it. Making one may ask another cache, never
    this one.
    """

    def __init__(
        self,
        *,
        most: int,
        weigh: Callable[[Any], int] = lambda _value: 1,
        weigh_key: Callable[[Any], int] = lambda _key: 0,
    ) -> None:
        self._most = most
        self._weigh = weigh
        self._weigh_key = weigh_key
        self._values: OrderedDict[Hashable, tuple[int, Any]] = OrderedDict()
        self._weight = 0
        self._lock = threading.Lock()
        self._makers = [threading.Lock() for _ in range(STRIPES)]

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Hashable, version: int, make: Callable[[], _Kept]) -> _Kept:
        """The kept value if it is of this version, else a fresh one."""
        kept = self._find(key, version)
        if kept is not None:
            return cast(_Kept, kept[1])
        with self._makers[hash(key) % STRIPES]:
            kept = self._find(key, version)
            if kept is not None:
                return cast(_Kept, kept[1])
            value = make()
            self.keep(key, version, value)
            return value

    def latest(self, key: Hashable) -> tuple[int, Any] | None:
        """The kept value with its version, whichever that is."""
        with self._lock:
            return self._values.get(key)

    def _find(self, key: Hashable, version: int) -> tuple[int, Any] | None:
        with self._lock:
            kept = self._values.get(key)
            if kept is None or kept[0] != version:
                return None
            self._values.move_to_end(key)
            return kept

    def keep(self, key: Hashable, version: int, value: Any) -> None:
        """Keep a value of this version in place of whichever is there."""
        with self._lock:
            old = self._values.pop(key, None)
            if old is not None:
                self._weight -= self._weight_of(key, old[1])
            self._values[key] = (version, value)
            self._weight += self._weight_of(key, value)
            while self._weight > self._most and len(self._values) > 1:
                longest_unused, (_, dropped) = self._values.popitem(last=False)
                self._weight -= self._weight_of(longest_unused, dropped)

    def _weight_of(self, key: Hashable, value: Any) -> int:
        return self._weigh(value) + self._weigh_key(key)


def _rows(value: Any) -> int:
    return max(1, len(value.rows))


def _items(value: Any) -> int:
    """Some things that are derived list every submission of a board, some are a few numbers."""
    return 10 + (len(value) if isinstance(value, Sized) else 0)


def _size(value: Any) -> int:
    return int(value.weight)


def _size_of_key(key: tuple[str, ...]) -> int:
    """Bytes of a key of texts and of the objects around it and its answer."""
    return KEPT_AROUND + sum(getsizeof(part) for part in key)


@dataclass(frozen=True)
class BoardMemory:
    """The caches of one database, in the order in which making a value may ask the next.

    A row takes 4 KB of memory. Boards share the rows of `submissions`, and hold on to those that
    have gone from there. Targets and prices are endless: what is kept of boards at some of their
    own has a place of its own, and drives no official board out.
    """

    answers: VersionedCache = field(
        default_factory=lambda: VersionedCache(most=64 * MIB, weigh=_size, weigh_key=_size_of_key)
    )
    own_answers: VersionedCache = field(
        default_factory=lambda: VersionedCache(most=16 * MIB, weigh=_size, weigh_key=_size_of_key)
    )
    boards: VersionedCache = field(default_factory=lambda: VersionedCache(most=60_000, weigh=_rows))
    own_boards: VersionedCache = field(
        default_factory=lambda: VersionedCache(most=20_000, weigh=_rows)
    )
    submissions: VersionedCache = field(
        default_factory=lambda: VersionedCache(most=50_000, weigh=_rows)
    )
    derived: VersionedCache = field(
        default_factory=lambda: VersionedCache(most=100_000, weigh=_items)
    )


_memories: WeakKeyDictionary[Any, BoardMemory] = WeakKeyDictionary()
_making = threading.Lock()


def memory_of(session: Session) -> BoardMemory:
    """What is kept of the database a session reads.

    Never ask with a session that writes: what it sees may be rolled back, and its version given
    to something else.
    """
    engine = cast(Engine, session.get_bind())
    with _making:
        memory = _memories.get(engine)
        if memory is None:
            memory = _memories[engine] = BoardMemory()
        return memory
