"""The official clock of a run: the ledger from the parent's stamps, and the check of two clocks."""

from finishline.rules.scoring.run import Clock, Ledger, Phase

PREPARATION = frozenset({Phase.INIT, Phase.COMPILE, Phase.WARMUP})
RELATIVE_TOLERANCE = 0.02
ABSOLUTE_TOLERANCE_SECONDS = 0.05


class Stopwatch:
    """Seconds per phase of one run, from the start of its process on.

    `started_at` is the stamp at which the first phase after the preparation began, None before.
    """

    def __init__(self, at: float) -> None:
        self.phase = Phase.INIT
        self.ledger = Ledger()
        self.started_at: float | None = None
        self._last = at

    def stamp(self, at: float) -> None:
        """Count the time since the last stamp to the present phase."""
        self.ledger = self.ledger.plus(self.phase, at - self._last)
        self._last = at

    def enter(self, phase: Phase, at: float) -> None:
        """From this stamp on the time belongs to `phase`."""
        self.stamp(at)
        self.phase = phase
        if self.started_at is None and phase not in PREPARATION:
            self.started_at = at

    def seconds(self, clock: Clock, *, division: str) -> float:
        """Seconds of the ledger on a clock, up to the last stamp."""
        return clock.seconds(self.ledger, division=division)


def clocks_disagree(parent_seconds: float, child_seconds: float) -> bool:
    """Whether two measurements of one span differ by more than 2 % + 50 ms."""
    allowed = RELATIVE_TOLERANCE * parent_seconds + ABSOLUTE_TOLERANCE_SECONDS
    return abs(parent_seconds - child_seconds) > allowed
