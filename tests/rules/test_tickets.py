"""Each seed of a ticket appears once in a claim, and the claim is what the ticket is for."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import ClaimError, RuleError
from finishline.rules.scoring.run import Run
from finishline.rules.submissions.claim import Claim, System
from finishline.rules.submissions.tickets import (
    Ticket,
    check_runs,
    check_ticket,
    full_settings,
    read_ticket,
)

ISSUED = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
SYSTEM = System("laptop", "cpu-test", "any")


@pytest.fixture
def ticket(digits: Benchmark) -> Ticket:
    settings = full_settings(digits, {"batch_size": 64})
    return Ticket("abc", "digits", "closed", settings, "cpu-test", (11, 12, 13), ISSUED)


CLAIM = Claim("digits", "closed", "reference", "torch", SYSTEM, ("a.log", "b.log", "c.log"))


def run(seed: int | None, *, minutes: float = 1.0) -> Run:
    """A run that began so many minutes after the ticket was issued, after a minute of warm-up."""
    started = (ISSUED + timedelta(minutes=minutes + 1)).timestamp() * 1000
    name = f"{seed}.log"
    return Run(name, "mlperf", (), seed=seed, preparation_seconds=60.0, started_ms=started)


RUNS = (run(11), run(12), run(13))


def problems(
    ticket: Ticket, digits: Benchmark, claim: Claim = CLAIM, runs: tuple[Run, ...] = RUNS
) -> list[str]:
    return [str(each) for each in check_ticket(ticket, claim, runs, digits, file="s.json")]


def test_a_claim_with_every_seed_of_its_ticket_has_no_problem(
    ticket: Ticket, digits: Benchmark
) -> None:
    assert problems(ticket, digits) == []
    assert problems(ticket, digits, replace(CLAIM, hyperparameters={"batch_size": 64.0})) == []


def test_a_seed_may_be_unfinished_instead(ticket: Ticket, digits: Benchmark) -> None:
    assert problems(ticket, digits, replace(CLAIM, unfinished=(13,)), RUNS[:2]) == []


def test_a_seed_in_neither_is_named(ticket: Ticket, digits: Benchmark) -> None:
    [problem] = problems(ticket, digits, CLAIM, RUNS[:2])
    assert "seed 13 of ticket abc" in problem
    assert "13 in the list `unfinished`" in problem


def test_a_seed_that_was_not_issued_is_named(ticket: Ticket, digits: Benchmark) -> None:
    found = problems(ticket, digits, replace(CLAIM, unfinished=(14,)), (*RUNS, run(99), run(None)))
    assert ["99.log" in found[0], "seed 99" in found[0]] == [True, True]
    assert "no seed, which ticket abc did not issue" in found[1]
    assert "seed 14, which ticket abc did not issue" in found[2]
    assert len(found) == 3


@pytest.mark.parametrize(
    ("change", "field", "expected"),
    [
        ({"benchmark_id": "cifar10"}, "benchmark", "'digits'"),
        ({"division": "open"}, "division", "'closed'"),
        ({"system": replace(SYSTEM, hardware_class="gpu")}, "system.hardware_class", "'cpu-test'"),
        ({"hyperparameters": {"batch_size": 32.0}}, "hyperparameters.batch_size", "64"),
        ({"hyperparameters": {"layers": 2.0}}, "hyperparameters.layers", "nothing"),
    ],
)
def test_a_claim_of_something_else_names_field_and_what_was_issued(
    ticket: Ticket, digits: Benchmark, change: dict[str, object], field: str, expected: str
) -> None:
    [error] = check_ticket(ticket, replace(CLAIM, **change), RUNS, digits, file="s.json")  # type: ignore[arg-type]
    assert error.field == field
    assert (error.expected or "").startswith(f"{expected}; or hand the claim in without a ticket")


@pytest.mark.parametrize(("minutes", "refused"), [(-4.9, False), (-5.1, True), (-600.0, True)])
def test_no_log_begins_before_its_ticket_but_for_five_minutes_of_two_clocks(
    ticket: Ticket, digits: Benchmark, minutes: float, refused: bool
) -> None:
    found = problems(ticket, digits, CLAIM, (run(11, minutes=minutes), *RUNS[1:]))
    assert len(found) == refused
    if refused:
        assert "minutes before ticket abc" in found[0]
        assert "2026-11-23T12:00:00" in found[0]


def test_a_ticket_has_as_many_seeds_as_the_benchmark_asks_for_and_up_to_twice(
    digits: Benchmark,
) -> None:
    assert [check_runs(digits, runs) for runs in (None, 3, 6)] == [3, 3, 6]
    for runs in (2, 7):
        with pytest.raises(RuleError, match="3 to 6"):
            check_runs(digits, runs)


FILE = (
    b'{"id": "abc", "benchmark": "digits", "division": "closed", "settings": {"batch_size": 64},'
    b' "hardware_class": "cpu-test", "seeds": [11, 12], "created_at": "2026-11-23T12:00:00Z",'
    b' "expires_at": "2026-12-23T12:00:00Z", "submission": null, "benchmark_sha256": "0"}'
)


def test_a_ticket_file_is_read_as_the_server_answers_it() -> None:
    ticket = read_ticket(FILE, file="ticket.json")
    assert (ticket.ticket_id, ticket.seeds, ticket.created_at) == ("abc", (11, 12), ISSUED)


@pytest.mark.parametrize(
    ("before", "after", "field"),
    [
        (b"[11, 12]", b"[]", "seeds"),
        (b"[11, 12]", b'["11"]', "seeds"),
        (b"[11, 12]", b"[-1]", "seeds"),
        (b"2026-11-23T12:00:00Z", b"today", "created_at"),
        (b'"abc"', b"7", "id"),
        (b'{"batch_size": 64}', b"64", "settings"),
    ],
)
def test_a_ticket_file_that_was_altered_names_file_and_field(
    before: bytes, after: bytes, field: str
) -> None:
    with pytest.raises(ClaimError) as caught:
        read_ticket(FILE.replace(before, after, 1), file="ticket.json")
    assert (caught.value.file, caught.value.field) == ("ticket.json", field)


def test_what_is_no_json_is_no_ticket() -> None:
    with pytest.raises(ClaimError, match="not JSON"):
        read_ticket(b"seeds: 11", file="ticket.json")
