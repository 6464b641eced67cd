"""Tickets: seeds that the server drew for a claim before its training.

Each issued seed appears once in the claim: in a log, or in its list of unfinished seeds, where it
counts as a run that never reached the target. So runs that went badly cannot be left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import orjson

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.definition_checks import MAX_RUNS
from finishline.rules.errors import ClaimError, LogFormatError, RuleError
from finishline.rules.fields import Fields
from finishline.rules.scoring.run import Run
from finishline.rules.submissions.claim import Claim
from finishline.rules.text import count_text, shown

LIFETIME = timedelta(days=30)
MOST_OPEN = 3
SEED_LIMIT = 2**31
# Two clocks may differ by so much, the server's and that of the machine that trained.
CLOCK_DIFFERENCE = timedelta(minutes=5)
NEXT_STEP = "submit without a ticket, or train again with `finishline run`"


@dataclass(frozen=True)
class Ticket:
    """Training announced when the seeds were drawn; `settings` are the reference's in full."""

    ticket_id: str
    benchmark_id: str
    division: str
    settings: Mapping[str, float]
    hardware_class: str
    seeds: tuple[int, ...]
    created_at: datetime


def full_settings(benchmark: Benchmark, settings: Mapping[str, float]) -> dict[str, float]:
    """Return the settings, with the reference's defaults for omitted ones."""
    return benchmark.defaults() | dict(settings)


def most_runs(benchmark: Benchmark) -> int:
    """Return how many seeds a ticket may have: twice the runs that the benchmark asks for."""
    return min(2 * benchmark.runs.wanted, MAX_RUNS)


def check_runs(benchmark: Benchmark, runs: int | None) -> int:
    """Return how many seeds are asked for. Raises RuleError below N and above 2 N runs."""
    least, most = benchmark.runs.wanted, most_runs(benchmark)
    asked = least if runs is None else runs
    if not least <= asked <= most:
        message = f"{count_text(asked, 'run')} of {benchmark.benchmark_id}"
        raise RuleError(message, field="runs", expected=f"{least} to {most}")
    return asked


def check_ticket(
    ticket: Ticket, claim: Claim, runs: Sequence[Run], benchmark: Benchmark, *, file: str
) -> list[RuleError]:
    """Find where a claim and its logs differ from its ticket, each with field and next step."""
    return [
        *_check_claim(ticket, claim, benchmark, file=file),
        *_check_seeds(ticket, claim, runs, file=file),
        *_check_starts(ticket, runs),
    ]


def _check_claim(
    ticket: Ticket, claim: Claim, benchmark: Benchmark, *, file: str
) -> Iterator[RuleError]:
    claimed = full_settings(benchmark, claim.hyperparameters)
    said: list[tuple[str, Any, Any]] = [
        ("benchmark", claim.benchmark_id, ticket.benchmark_id),
        ("division", claim.division, ticket.division),
        ("system.hardware_class", claim.system.hardware_class, ticket.hardware_class),
    ]
    said += [
        (f"hyperparameters.{name}", claimed.get(name), ticket.settings.get(name))
        for name in sorted({*claimed, *ticket.settings})
    ]
    for field, value, issued in said:
        if value != issued:
            yield ClaimError(
                f"{_shown(value)}, but ticket {ticket.ticket_id} is for {_shown(issued)}",
                file=file,
                field=field,
                expected=f"{_shown(issued)}; or {NEXT_STEP}",
                code="ticket_differs",
            )


def _shown(value: str | float | None) -> str:
    if value is None:
        return "nothing"
    return shown(value) if isinstance(value, str) else f"{value:g}"


def _check_seeds(
    ticket: Ticket, claim: Claim, runs: Sequence[Run], *, file: str
) -> Iterator[RuleError]:
    issued, logged = set(ticket.seeds), {run.seed for run in runs}
    expected = f"a seed of the ticket; or {NEXT_STEP}"
    for run in runs:
        if run.seed not in issued:
            said = "no seed" if run.seed is None else f"seed {run.seed}"
            yield LogFormatError(
                f"{said}, which ticket {ticket.ticket_id} did not issue",
                file=run.name,
                field="seed",
                expected=expected,
                code="seed_not_issued",
            )
    for seed in claim.unfinished:
        if seed not in issued:
            yield ClaimError(
                f"seed {seed}, which ticket {ticket.ticket_id} did not issue",
                file=file,
                field="unfinished",
                expected=expected,
                code="seed_not_issued",
            )
    for seed in ticket.seeds:
        if seed not in logged and seed not in claim.unfinished:
            yield ClaimError(
                f"seed {seed} of ticket {ticket.ticket_id} is in no log and not in the list",
                file=file,
                field="unfinished",
                expected=f"the log of seed {seed}, or {seed} in the list `unfinished`",
                code="seed_missing",
            )


def _check_starts(ticket: Ticket, runs: Sequence[Run]) -> Iterator[RuleError]:
    earliest = (ticket.created_at - CLOCK_DIFFERENCE).timestamp() * 1000
    for run in runs:
        if run.started_ms is None:
            continue
        began = run.started_ms - 1000 * (run.preparation_seconds or 0.0)
        if began < earliest:
            minutes = (ticket.created_at.timestamp() * 1000 - began) / 60_000
            yield LogFormatError(
                f"the log begins {minutes:.0f} minutes before ticket {ticket.ticket_id}",
                file=run.name,
                field="time_ms",
                expected=f"a start after {ticket.created_at.isoformat(timespec='seconds')}, when "
                f"its seeds were drawn; set the machine's clock, or {NEXT_STEP}",
                code="log_before_ticket",
            )


def read_ticket(content: bytes, *, file: str) -> Ticket:
    """Read a ticket file as the server wrote it. Raises ClaimError naming file and field."""
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise ClaimError(
            f"not JSON: {error.msg}",
            file=file,
            line=error.lineno,
            expected="a ticket as `finishline ticket` writes it",
        ) from error
    root = Fields(document, file=file, error=ClaimError)
    settings = root.table("settings")
    seeds = root.raw("seeds")
    if not isinstance(seeds, list) or not seeds or not all(_is_seed(seed) for seed in seeds):
        raise root.fail("seeds", "not a list of seeds", expected="the seeds that the server drew")
    try:
        created_at = datetime.fromisoformat(root.text("created_at"))
    except ValueError as error:
        raise root.fail("created_at", "invalid", expected="a date and a time") from error
    return Ticket(
        ticket_id=root.text("id"),
        benchmark_id=root.text("benchmark"),
        division=root.text("division"),
        settings={name: settings.number(name) for name, _ in settings.items()},
        hardware_class=root.text("hardware_class"),
        seeds=tuple(seeds),
        created_at=created_at,
    )


def check_benchmark(ticket: Ticket, benchmark: Benchmark, *, file: str) -> None:
    """Raise ClaimError where a ticket is for another benchmark."""
    if ticket.benchmark_id != benchmark.benchmark_id:
        raise ClaimError(
            f"a ticket for {shown(ticket.benchmark_id)}",
            file=file,
            field="benchmark",
            expected=f"a ticket for {benchmark.benchmark_id!r}",
        )


def _is_seed(value: object) -> bool:
    return type(value) is int and 0 <= value < SEED_LIMIT
