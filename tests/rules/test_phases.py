"""The phases of a benchmark by its dates."""

from datetime import UTC, datetime, timedelta

import pytest

from finishline.rules.benchmarks.phases import (
    NO_PHASES,
    Phases,
    changed,
    faults,
    is_embargoed,
    is_frozen,
    phase_at,
    sentence_at,
    why_not_taken,
)

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
SECOND, DAY = timedelta(seconds=1), timedelta(days=1)
ROUND = Phases(
    opens_at=NOON,
    freezes_at=NOON + DAY,
    closes_at=NOON + 2 * DAY,
    embargo_until=NOON + 3 * DAY,
)


@pytest.mark.parametrize(
    ("now", "phase", "frozen", "embargoed"),
    [
        (NOON - SECOND, "announced", False, True),
        (NOON, "open", False, True),
        (NOON + DAY - SECOND, "open", False, True),
        (NOON + DAY, "frozen", True, True),
        (NOON + 2 * DAY - SECOND, "frozen", True, True),
        (NOON + 2 * DAY, "closed", True, True),
        (NOON + 3 * DAY, "closed", True, False),
    ],
)
def test_each_phase_begins_at_its_moment(
    now: datetime, phase: str, frozen: bool, embargoed: bool
) -> None:
    assert phase_at(ROUND, now) == phase
    assert is_frozen(ROUND, now) is frozen
    assert is_embargoed(ROUND, now) is embargoed


def test_without_dates_it_is_open_for_ever() -> None:
    assert phase_at(NO_PHASES, NOON) == "open"
    assert why_not_taken(NO_PHASES, NOON, benchmark_id="digits") is None
    assert not is_frozen(NO_PHASES, NOON)
    assert not is_embargoed(NO_PHASES, NOON)
    assert sentence_at(NO_PHASES, NOON) == "Open: it has no dates."


def test_a_refusal_says_when() -> None:
    early = why_not_taken(ROUND, NOON - DAY, benchmark_id="digits")
    late = why_not_taken(ROUND, NOON + 2 * DAY, benchmark_id="digits")
    assert early == ("digits is not open yet: it takes submissions from 2026-12-01 12:00 UTC on.")
    assert late == "digits is closed: it took submissions until 2026-12-03 12:00 UTC."
    assert why_not_taken(ROUND, NOON, benchmark_id="digits") is None


def test_the_sentence_tells_the_phase_and_what_comes_next() -> None:
    assert sentence_at(ROUND, NOON) == (
        "Open until 2026-12-03 12:00 UTC. Its rules are frozen from 2026-12-02 12:00 UTC on. "
        "Results that come in are under embargo until 2026-12-04 12:00 UTC."
    )
    assert sentence_at(ROUND, NOON + 4 * DAY) == (
        "Closed since 2026-12-03 12:00 UTC. Its rules are frozen since 2026-12-02 12:00 UTC."
    )
    to_the_second = Phases(opens_at=NOON + SECOND)
    assert sentence_at(to_the_second, NOON) == (
        "Not open yet: it opens on 2026-12-01 12:00:01 UTC."
    )


def test_dates_out_of_order_are_named() -> None:
    assert faults(ROUND) == {}
    assert set(faults(Phases(opens_at=NOON, closes_at=NOON))) == {"closes_at"}
    assert set(faults(Phases(closes_at=NOON, freezes_at=NOON + SECOND))) == {"freezes_at"}
    # An embargo may end before the round does, and rules may be frozen before it opens.
    assert faults(Phases(NOON, NOON - DAY, NOON + DAY, NOON - DAY)) == {}


def test_what_differs_is_found() -> None:
    assert changed(ROUND, ROUND) == ()
    assert changed(ROUND, NO_PHASES) == ("opens_at", "freezes_at", "closes_at", "embargo_until")
    assert changed(Phases(opens_at=NOON), Phases(opens_at=NOON, closes_at=NOON + DAY)) == (
        "closes_at",
    )
