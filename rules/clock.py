"""Which seconds count: one ledger, three clocks."""

from dataclasses import dataclass
from typing import Literal, get_args

from rules.run import Ledger

ClockName = Literal["dawnbench", "mlperf", "speedrun"]
CLOCK_NAMES: tuple[str, ...] = get_args(ClockName)
INIT_ALLOWANCE_SECONDS = {"closed": 30 * 60.0, "open": 4 * 3600.0}


@dataclass(frozen=True)
class Clock:
    """A rule that says which phases of a ledger are on the clock."""

    name: str

    def seconds(self, ledger: Ledger, *, division: str) -> float:
        """Seconds of the ledger that are on this clock.

        dawnbench: everything but evaluation. mlperf: everything after initialisation, compilation
        and warm-up, whose first 30 minutes (closed) or 4 hours (open) are free and whose excess
        counts. speedrun: as mlperf without any preparation, and the clock pauses at evaluations.
        Source: dawn-bench-entries README; MLPerf training_rules.adoc, "Training"; modded-nanogpt.
        """
        prepare = ledger.init + ledger.compile + ledger.warmup
        work = ledger.data + ledger.train
        beside = ledger.checkpoint + ledger.idle
        if self.name == "dawnbench":
            return prepare + work + beside
        if self.name == "mlperf":
            excess = max(0.0, prepare - INIT_ALLOWANCE_SECONDS[division])
            return excess + work + ledger.eval + beside
        return work + beside
