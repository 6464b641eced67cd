"""Do the seconds of a report add up: its ledgers, its clock, and the phases off that clock?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise

from rules.clock import Clock
from rules.errors import RuleError
from rules.messages import ReplayReport, ReplayRun
from rules.run import Ledger

TOLERANCE_SECONDS = 1e-6
SPAN_TOLERANCE_SECONDS = 0.001
OFF_CLOCK_FACTOR = 2.0
OFF_CLOCK_SLACK_SECONDS = 0.25
# The runs that ended by themselves.
FINISHED = ("reached", "not_reached", "below_band")


@dataclass(frozen=True)
class OffClock:
    """Seconds of a run that its clock leaves out: of its preparation, and of each evaluation."""

    preparation: float = 0.0
    evaluation: float = 0.0


def check_ledgers(run: ReplayRun, clock: Clock, *, division: str) -> None:
    """Raise RuleError, naming run and field, unless a run's ledgers make its seconds.

    Each evaluation's seconds are its ledger's on the clock; no phase loses seconds from one
    evaluation to the next, nor to the end of the run.
    """
    place = f"runs[{run.index}]"
    ledgers = [ledger_of(item.ledger, place) for item in run.evaluations]
    for index, (item, ledger) in enumerate(zip(run.evaluations, ledgers, strict=True)):
        wanted = clock.seconds(ledger, division=division)
        if abs(item.seconds - wanted) > TOLERANCE_SECONDS:
            raise RuleError(
                f"{item.seconds} s",
                field=f"{place}.evaluations[{index}].seconds",
                expected=f"{wanted} s by its ledger on the {clock.name} clock",
            )
    for earlier, later in pairwise([*ledgers, ledger_of(run.ledger, place)]):
        lost = [
            phase.name
            for phase in fields(Ledger)
            if getattr(later, phase.name) < getattr(earlier, phase.name) - TOLERANCE_SECONDS
        ]
        if lost:
            raise RuleError(
                f"{lost[0]} loses seconds", field=f"{place}.ledger", expected="a ledger that grows"
            )


def check_spans(run: ReplayRun) -> None:
    """Raise RuleError unless both clocks of a run that ended by itself agree with its ledger.

    They count from the end of the preparation to the last thing that the training said.
    """
    if run.status not in FINISHED or run.parent_seconds is None:
        return
    place = f"runs[{run.index}]"
    ledger = ledger_of(run.ledger, place)
    wanted = seconds_after_preparation(ledger)
    if abs(run.parent_seconds - wanted) > SPAN_TOLERANCE_SECONDS:
        raise RuleError(
            f"{run.parent_seconds:.3f} s",
            field=f"{place}.parent_seconds",
            expected=f"{wanted:.3f} s, as its ledger adds up after the preparation",
        )


def seconds_after_preparation(ledger: Ledger) -> float:
    """The seconds of a ledger that a run's own clocks see."""
    return ledger.total() - ledger.init - ledger.compile - ledger.warmup


def ledger_of(table: Mapping[str, float], place: str) -> Ledger:
    """The ledger of a table. Raises RuleError for what is none."""
    try:
        ledger = Ledger(**table)
    except TypeError as error:
        raise RuleError(f"{error}", field=f"{place}.ledger", expected="seconds by phase") from error
    if any(seconds < 0 for seconds in table.values()):
        raise RuleError("negative seconds", field=f"{place}.ledger", expected="seconds by phase")
    return ledger


def off_clock(run: ReplayRun, clock: Clock) -> OffClock:
    """The seconds of a run that are not on its clock."""
    ledger = ledger_of(run.ledger, f"runs[{run.index}]")
    prepared = ledger.init + ledger.compile + ledger.warmup
    each = ledger.eval / len(run.evaluations) if run.evaluations else 0.0
    return OffClock(
        preparation=0.0 if clock.name == "dawnbench" else prepared,
        evaluation=0.0 if clock.name == "mlperf" else each,
    )


def check_off_clock(report: ReplayReport, clock: Clock, calibrated: Sequence[OffClock]) -> None:
    """Raise RuleError if a run spends over twice the longest calibrated time off its clock.

    `calibrated` is of the same hardware class; without any nothing is compared.
    """
    if not calibrated:
        return
    for run in report.runs:
        found = off_clock(run, clock)
        for name in ("preparation", "evaluation"):
            longest = max(getattr(one, name) for one in calibrated)
            most = OFF_CLOCK_FACTOR * longest + OFF_CLOCK_SLACK_SECONDS
            if getattr(found, name) > most:
                raise RuleError(
                    f"run {run.index} of the report: {getattr(found, name):.3f} s off the clock",
                    field=f"runs[{run.index}].ledger",
                    expected=f"at most {most:.3f} s of {name}, twice the calibrated",
                )
