"""Check a replay report: possible numbers, seconds that add up, and its posts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Literal, NoReturn

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.run import Clock, Ledger, Phase
from finishline.rules.text import count_text
from finishline.rules.verification.messages import ReplayEvaluation, ReplayReport, ReplayRun, StopAt


def check_report(
    report: ReplayReport,
    *,
    seeds: Sequence[int],
    stop_at: StopAt = "target",
    two_clocks: bool = True,
) -> None:
    """Raise RuleError, naming the run, unless the report fits its plan and is consistent.

    The runs are the planned ones, in order and each with its seed. Times are at least 0 and never
    decrease. A run that reached the target has the time of its last evaluation where runs stop at
    the target, or of any where they go on. Both clocks have a span, or with `two_clocks` False only
    the worker's, because a sandbox's clock is ignored.
    """
    found = [run.seed for run in report.runs]
    if found != list(seeds):
        # The draw stays secret: the message repeats the value sent instead of the right one.
        raise RuleError(
            f"the report has the seeds {found}",
            field="runs.seed",
            expected=f"the {count_text(len(seeds), 'seed')} of the plan, in order",
        )
    for position, run in enumerate(report.runs):
        if run.index != position:
            refuse(position, "index", f"run {run.index}", f"{position}, as planned")
        times = [0.0, *(evaluation.seconds for evaluation in run.evaluations)]
        if any(later < earlier for earlier, later in pairwise(times)):
            wanted = "times that do not decrease"
            refuse(position, "evaluations.seconds", "time runs backwards", wanted)
        if run.status == "reached":
            _check_time(position, run, stop_at, two_clocks=two_clocks)
        share = run.processor_share
        if share is not None and not 0 <= share <= 1:
            refuse(position, "processor_share", f"{share:g}", "a number from 0 to 1")


def _check_time(position: int, run: ReplayRun, stop_at: StopAt, *, two_clocks: bool) -> None:
    if run.tta_seconds is None or not run.evaluations:
        refuse(position, "tta_seconds", "missing", "a time for a run that reached")
    times = [evaluation.seconds for evaluation in run.evaluations]
    possible = times[-1:] if stop_at == "target" else times
    if min(abs(run.tta_seconds - seconds) for seconds in possible) > TOLERANCE_SECONDS:
        whose = "the last evaluation's" if stop_at == "target" else "or an earlier evaluation's"
        refuse(position, "tta_seconds", f"{run.tta_seconds:g}", f"{times[-1]:g}, {whose}")
    spans = [("parent_seconds", run.parent_seconds), ("child_seconds", run.child_seconds)]
    for name, span in spans if two_clocks else spans[:1]:
        if span is None or span <= 0:
            refuse(position, name, f"{span}", "a positive span on either clock")


def refuse(run: int, field: str, found: str, expected: str) -> NoReturn:
    place = f"runs[{run}]" + (f".{field}" if field else "")
    raise RuleError(f"run {run} of the report: {found}", field=place, expected=expected)


def check_second_halves(run: ReplayRun, benchmark: Benchmark) -> None:
    """Raise RuleError for an evaluation without a second half, where the benchmark draws two."""
    if benchmark.trainings is None or not benchmark.trainings.halves:
        return
    for index, item in enumerate(run.evaluations):
        if item.second_half is None:
            field = f"evaluations[{index}].second_half"
            refuse(run.index, field, "missing", "the quality on the second half")


PHASES = tuple(phase.value for phase in Phase)
TOLERANCE_SECONDS = 1e-6


def check_ledgers(run: ReplayRun, clock: Clock, *, division: str) -> None:
    """Raise RuleError, naming run and field, unless a run's ledgers make its seconds.

    On the clock a ledger gives an evaluation's seconds. Phases never lose seconds later.
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


def ledger_of(table: Mapping[str, float], place: str) -> Ledger:
    """Read the ledger in a table. Raises RuleError."""
    unknown = next((name for name in table if name not in PHASES), None)
    if unknown is not None:
        expected = f"seconds by phase, of {', '.join(PHASES)}"
        raise RuleError(f"no phase {unknown[:80]!r}", field=f"{place}.ledger", expected=expected)
    ledger = Ledger(**table)
    if any(seconds < 0 for seconds in table.values()):
        raise RuleError("negative seconds", field=f"{place}.ledger", expected="seconds by phase")
    return ledger


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
    """An event as a worker posted it. `at_seconds` is the server's clock since the claim."""

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

    Every evaluation was posted once, in order, as it is reported. From the start of a run's clock
    to an evaluation the server saw as much time as the ledger has, within `slack_seconds`, and 2 %
    more at most. All runs together have the same slack once. Since the claim at least as much
    passed as all ledgers have together. `stream` is in the order of its sequence numbers.
    """
    unknown = {event.run for event in stream} - {run.index for run in report.runs}
    if unknown:
        refuse(min(unknown), "", "it was posted and is not reported", "every run that was posted")
    before_seconds = told_seconds = seen_seconds = 0.0
    for run in report.runs:
        events = [event for event in stream if event.run == run.index]
        posted = [event for event in events if event.kind == "evaluation"]
        for index, (told, event) in enumerate(zip(run.evaluations, posted, strict=False)):
            for name in COMPARED:
                found, wanted = getattr(told, name), getattr(event, name)
                if found != wanted:
                    field, shown = f"evaluations[{index}].{name}", str(found)[:SHOWN_CHARACTERS]
                    refuse(run.index, field, shown, f"{wanted}, as posted")
        if len(run.evaluations) != len(posted):
            seen, wanted = f"{len(run.evaluations)} reported", f"{len(posted)}, as posted"
            refuse(run.index, "evaluations", seen, f"{wanted} while the run went on")
        if run.evaluations:
            run_told, run_seen = _check_posted_times(
                run, events, clock, slack_seconds, before_seconds
            )
            told_seconds, seen_seconds = told_seconds + run_told, seen_seconds + run_seen
            # Posts are late by chance: at the start of a clock as often as at its end.
            if seen_seconds > told_seconds * (1 + RELATIVE_SLACK) + slack_seconds:
                refuse(
                    run.index,
                    "",
                    f"{told_seconds:.3f} s of all runs so far",
                    f"the {seen_seconds:.3f} s that passed in them on the server's clock, within "
                    f"2 % and {slack_seconds:g} s together",
                )
        before_seconds += _total(run, run.ledger)


def starts_clock(event: StreamedEvent, clock: Clock) -> bool:
    """Whether the clock starts here: on dawnbench with the run, else after the preparation."""
    if clock.name == "dawnbench":
        return event.kind == "run_started"
    return event.kind == "phase" and event.phase not in PREPARATION


def _check_posted_times(
    run: ReplayRun,
    events: Sequence[StreamedEvent],
    clock: Clock,
    slack_seconds: float,
    before_seconds: float,
) -> tuple[float, float]:
    """Return the seconds to the last evaluation as reported, and as the server saw them."""
    zero = next((event for event in events if starts_clock(event, clock)), None)
    if zero is None or events[0].kind != "run_started":
        refuse(run.index, "", "its start was not posted", "the events that start a run's clock")
    prepared_seconds = _total(run, zero.ledger or {})
    posted = (event for event in events if event.kind == "evaluation")
    for index, (told, event) in enumerate(zip(run.evaluations, posted, strict=True)):
        field = f"evaluations[{index}].ledger"
        total_seconds = _total(run, told.ledger)
        span_seconds = total_seconds - prepared_seconds
        seen_seconds = event.at_seconds - zero.at_seconds
        least = span_seconds * (1 - CLOCK_DRIFT) - slack_seconds
        most = span_seconds * (1 + RELATIVE_SLACK) + slack_seconds
        prepared = sum(told.ledger.get(phase.value, 0.0) for phase in PREPARATION)
        if zero.kind == "phase" and prepared > prepared_seconds + TOLERANCE_SECONDS:
            late = "it prepares after its clock started"
            refuse(run.index, field, late, "preparation before it")
        if not least <= seen_seconds <= most:
            refuse(
                run.index,
                field,
                f"{span_seconds:.3f} s since its start",
                f"the {seen_seconds:.3f} s that passed on the server's clock, within 2 % and "
                f"{slack_seconds:g} s",
            )
        least = (before_seconds + total_seconds) * (1 - CLOCK_DRIFT) - RESOLUTION_SECONDS
        if event.at_seconds < least:
            refuse(
                run.index,
                field,
                f"{before_seconds + total_seconds:.3f} s of training so far",
                f"at most the {event.at_seconds:.3f} s that passed since the claim",
            )
    return span_seconds, seen_seconds


def _total(run: ReplayRun, ledger: dict[str, float]) -> float:
    return ledger_of(ledger, f"runs[{run.index}]").total()
