"""How much of its processor a training had: with less, its times are longer than they need be."""

from collections.abc import Iterable

from rules.errors import LogFormatError
from rules.run import Run

LEAST_SHARE = 0.9


def processor_share(
    cpu_seconds: float | None, seconds: float | None, *, threads: int
) -> float | None:
    """Return processor seconds over seconds of the clock, for each thread; at most 1.

    None where either was not measured.
    """
    if cpu_seconds is None or not seconds:
        return None
    return min(1.0, cpu_seconds / seconds / threads)


def find_shared(runs: Iterable[Run]) -> list[LogFormatError]:
    """Remark on each run that had less than nine tenths of its processor. No rule is broken."""
    return [
        LogFormatError(
            f"the training had {run.processor_share:.0%} of its processor, as other programs were "
            "running, so its time is longer than on a quiet machine",
            file=run.name,
            field="processor_share",
            expected=f"at least {LEAST_SHARE:.0%}: end other programs and train again",
            code="processor_shared",
        )
        for run in runs
        if run.processor_share is not None and run.processor_share < LEAST_SHARE
    ]
