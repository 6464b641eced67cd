"""Energy of a run, and the share of its processor that it had."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields

from finishline.rules.errors import LogFormatError
from finishline.rules.scoring.run import Clock, Ledger, Run

# The preparation that a clock's rule leaves free costs no energy on it either; an excess over the
# allowance is a matter of seconds and is not carried over to joules.
NO_EXCESS = "open"


def counted_since(earlier: float, later: float, *, wraps_at: float | None) -> float:
    """Difference of two counter readings; the counter starts at 0 again at `wraps_at`.

    More than one turn between the two cannot be seen: read it often enough. Raises ValueError
    on a counter that went back without a limit to wrap at.
    """
    if later >= earlier:
        return later - earlier
    if wraps_at is None or earlier > wraps_at:
        raise ValueError(f"an energy counter went back from {earlier:g} to {later:g}")
    return wraps_at - earlier + later


def timed_joules(joules_by_phase: Mapping[str, float], clock: Clock) -> float:
    """The joules of the phases that are on a benchmark's clock.

    Preparation is on the clock of DAWNBench alone, evaluation on that of MLPerf alone.
    """
    known = {item.name for item in fields(Ledger)}
    joules = {phase: value for phase, value in joules_by_phase.items() if phase in known}
    if clock.name != "dawnbench":
        joules |= {"init": 0.0, "compile": 0.0, "warmup": 0.0}
    return clock.seconds(Ledger(**joules), division=NO_EXCESS)


def samples_per_joule(samples: int, joules: float | None) -> float | None:
    """Samples trained on for each joule; None where no energy was measured."""
    if joules is None or joules <= 0:
        return None
    return samples / joules


def energy_to_target_joules(joules_of_runs: Sequence[float | None]) -> float | None:
    """The mean joules of the runs that reached the target; None unless all of them were measured.

    A mean over only the runs with a readable counter would be of other runs than the time.
    """
    measured = [joules for joules in joules_of_runs if joules is not None]
    if not measured or len(measured) < len(joules_of_runs):
        return None
    return sum(measured) / len(measured)


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
