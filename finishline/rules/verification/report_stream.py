"""Compare a report with the events its worker posted, by the server's clock."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, NoReturn

from finishline.rules.errors import RuleError
from finishline.rules.run import Clock, Phase
from finishline.rules.verification.messages import ReplayEvaluation, ReplayReport, ReplayRun
from finishline.rules.verification.report_check import ledger_of

RELATIVE_SLACK = 0.02
CLOCK_SLACK_SECONDS = 0.25
RESOLUTION_SECONDS = 0.005
CLOCK_DRIFT = 0.001  # Two sound clocks run apart by less than a thousandth.
PREPARATION = frozenset({Phase.INIT, Phase.COMPILE, Phase.WARMUP})
SHOWN_CHARACTERS = 100
# Every field of an evaluation.
COMPARED = tuple(field.name for field in fields(ReplayEvaluation))


@dataclass(frozen=True)
class StreamedEvent:
    """An event as a worker posted it; `at_seconds` is the server's clock since the claim."""

    at_seconds: float
    run: int
    kind: Literal["run_started", "phase", "evaluation"]
    phase: str | None = None
    epoch: float | None = None
    samples: int | None = None
    seconds: float | None = None
    quality: float | None = None
    ledger: dict[str, float] | None = None
    second_half: float | None = None
    predictions_sha256: str | None = None


def check_stream(
    report: ReplayReport,
    stream: Sequence[StreamedEvent],
    clock: Clock,
    *,
    slack_seconds: float = CLOCK_SLACK_SECONDS,
) -> None:
    """Raise RuleError, naming run and field, unless the report was posted as it was measured.

    Every evaluation was posted once, in order, as it is reported. Between the event that starts a
    run's clock and an evaluation the server saw as much time as the run's ledger tells, up to
    `slack_seconds`, and 2 % more at most; all runs together have the same slack once. Since the
    claim at least as much passed as all ledgers tell together. `stream` is in the order of its
    sequence numbers.
    """
    unknown = {event.run for event in stream} - {run.index for run in report.runs}
    if unknown:
        _refuse(min(unknown), "", "it was posted and is not reported", "every run that was posted")
    before_seconds = told_seconds = seen_seconds = 0.0
    for run in report.runs:
        events = [event for event in stream if event.run == run.index]
        _check_evaluations(run, [event for event in events if event.kind == "evaluation"])
        if run.evaluations:
            told, seen = _check_times(run, events, clock, slack_seconds, before_seconds)
            told_seconds, seen_seconds = told_seconds + told, seen_seconds + seen
            # Posts are late by chance: at the start of a clock as often as at its end.
            if seen_seconds > told_seconds * (1 + RELATIVE_SLACK) + slack_seconds:
                _refuse(
                    run.index,
                    "",
                    f"{told_seconds:.3f} s of all runs so far",
                    f"the {seen_seconds:.3f} s that passed in them on the server's clock, within "
                    f"2 % and {slack_seconds:g} s together",
                )
        before_seconds += _total(run, run.ledger)


def starts_clock(event: StreamedEvent, clock: Clock) -> bool:
    """Whether a run's clock starts with this event, unless it has started before.

    On the dawnbench clock all preparation counts; on the others the first phase after it.
    """
    if clock.name == "dawnbench":
        return event.kind == "run_started"
    return event.kind == "phase" and event.phase not in PREPARATION


def _check_evaluations(run: ReplayRun, posted: Sequence[StreamedEvent]) -> None:
    for index, (told, event) in enumerate(zip(run.evaluations, posted, strict=False)):
        for name in COMPARED:
            found, wanted = getattr(told, name), getattr(event, name)
            if found != wanted:
                field, shown = f"evaluations[{index}].{name}", str(found)[:SHOWN_CHARACTERS]
                _refuse(run.index, field, shown, f"{wanted}, as posted")
    if len(run.evaluations) != len(posted):
        _refuse(
            run.index,
            "evaluations",
            f"{len(run.evaluations)} reported",
            f"{len(posted)}, as posted while the run went on",
        )


def _check_times(
    run: ReplayRun,
    events: Sequence[StreamedEvent],
    clock: Clock,
    slack_seconds: float,
    before_seconds: float,
) -> tuple[float, float]:
    """The seconds to the last evaluation as reported, and as the server saw them."""
    zero = next((event for event in events if starts_clock(event, clock)), None)
    if zero is None or events[0].kind != "run_started":
        _refuse(run.index, "", "its start was not posted", "the events that start a run's clock")
    prepared_seconds = _total(run, zero.ledger or {})
    posted = (event for event in events if event.kind == "evaluation")
    for index, (told, event) in enumerate(zip(run.evaluations, posted, strict=True)):
        field = f"evaluations[{index}].ledger"
        total_seconds = _total(run, told.ledger)
        span_seconds = total_seconds - prepared_seconds
        seen_seconds = event.at_seconds - zero.at_seconds
        least = span_seconds * (1 - CLOCK_DRIFT) - slack_seconds
        most = span_seconds * (1 + RELATIVE_SLACK) + slack_seconds
        if zero.kind == "phase" and _preparation(told.ledger) > prepared_seconds + 1e-6:
            _refuse(
                run.index, field, "it prepares after its clock started", "preparation before it"
            )
        if not least <= seen_seconds <= most:
            _refuse(
                run.index,
                field,
                f"{span_seconds:.3f} s since its start",
                f"the {seen_seconds:.3f} s that passed on the server's clock, within 2 % and "
                f"{slack_seconds:g} s",
            )
        least = (before_seconds + total_seconds) * (1 - CLOCK_DRIFT) - RESOLUTION_SECONDS
        if event.at_seconds < least:
            _refuse(
                run.index,
                field,
                f"{before_seconds + total_seconds:.3f} s of training so far",
                f"at most the {event.at_seconds:.3f} s that passed since the claim",
            )
    return span_seconds, seen_seconds


def _preparation(ledger: dict[str, float]) -> float:
    return sum(ledger.get(phase.value, 0.0) for phase in PREPARATION)


def _total(run: ReplayRun, ledger: dict[str, float]) -> float:
    return ledger_of(ledger, f"runs[{run.index}]").total()


def _refuse(run: int, field: str, found: str, expected: str) -> NoReturn:
    place = f"runs[{run}]" + (f".{field}" if field else "")
    raise RuleError(f"run {run} of the report: {found}", field=place, expected=expected)


def streamed_event(event: dict[str, Any], *, at_seconds: float) -> StreamedEvent | None:
    """A stored event as it is checked; None if no check needs it."""
    if event["kind"] == "run_finished":
        return None
    names = ("run", "kind", "phase", *COMPARED)
    fields: dict[str, Any] = {name: event.get(name) for name in names}
    return StreamedEvent(at_seconds=at_seconds, **fields)
