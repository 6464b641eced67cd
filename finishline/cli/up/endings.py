"""How a service's process ended, in words."""

import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

TAIL_BYTES = 8192


def ending(code: int) -> str:
    """An exit code, or the name of the signal that a process died of."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def ending_in_words(code: int, said: str, farewells: Mapping[str, str]) -> str:
    """What became of a process that `said` this in its log.

    One that ends with exit code 0 did what it was told: `farewells` has the words for a phrase of
    its log, which says by whom.
    """
    if code != 0:
        return f"died ({ending(code)})"
    told = next((words for phrase, words in farewells.items() if phrase in said), None)
    return told or "ended as if it was told to (exit code 0)"


def size_of(log: Path) -> int:
    """How many bytes a log has; 0 where there is none yet."""
    with suppress(OSError):
        return log.stat().st_size
    return 0


def said_since(log: Path, offset: int) -> str:
    """The end of what was written to a log after its first `offset` bytes."""
    with suppress(OSError), log.open("rb") as written:
        written.seek(max(offset, size_of(log) - TAIL_BYTES))
        return written.read().decode(errors="replace")
    return ""


def last_line(log: Path) -> str:
    """The last line of a log that holds something."""
    lines = said_since(log, 0).splitlines()
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")
