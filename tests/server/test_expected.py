"""When what waits should start: worked by hand on a line of minutes."""

from datetime import UTC, datetime, timedelta

from server.workers.expected import (
    Taker,
    Work,
    busy_taker,
    expected_starts,
    typical_seconds,
)

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
REPLAY = Work("digits", "replay")
TEN_MINUTES = {(REPLAY, "cpu"): 600.0, (REPLAY, "gpu"): 60.0}


def minutes(count: float) -> datetime:
    return NOON + timedelta(minutes=count)


def test_an_attempt_takes_the_median_of_those_before_it() -> None:
    ended = [(REPLAY, "cpu", took) for took in (10.0, 100.0, 12.0)] + [(REPLAY, "gpu", 3.0)]
    assert typical_seconds(ended) == {(REPLAY, "cpu"): 12.0, (REPLAY, "gpu"): 3.0}


def test_each_starts_on_whichever_worker_of_its_class_is_free_first() -> None:
    busy = busy_taker("b", "cpu", REPLAY, since=minutes(-4), typical=TEN_MINUTES, now=NOON)
    takers = [Taker("a", "cpu", NOON), busy, Taker("g", "gpu", NOON)]
    starts = expected_starts([(REPLAY, "cpu")] * 4, takers, TEN_MINUTES, now=NOON)
    # a takes the first, b is free at minute 6, a again at 10, b again at 16.
    assert [each.start for each in starts] == [NOON, minutes(6), minutes(10), minutes(16)]


def test_what_no_worker_of_its_class_can_take_goes_to_any() -> None:
    takers = [Taker("g", "gpu", minutes(2))]
    (tpu, any_class) = expected_starts(
        [(REPLAY, "tpu"), (REPLAY, None)], takers, TEN_MINUTES, now=NOON
    )
    assert (tpu.start, any_class.start) == (minutes(2), minutes(3))


def test_one_that_takes_longer_than_usual_may_end_at_any_moment() -> None:
    late = busy_taker("b", "cpu", REPLAY, since=minutes(-30), typical=TEN_MINUTES, now=NOON)
    assert late.free_at == NOON


def test_what_nobody_can_know_is_unknown_and_says_why() -> None:
    duel = Work("digits", "duel")
    waiting = [(duel, "cpu"), (REPLAY, "cpu")]
    first, second = expected_starts(waiting, [Taker("a", "cpu", NOON)], TEN_MINUTES, now=NOON)
    assert first.start == NOON
    assert second.start is None
    assert "no duel of digits on cpu has ended yet" in (second.why_unknown or "")
    (alone,) = expected_starts([(REPLAY, "cpu")], [], TEN_MINUTES, now=NOON)
    assert (alone.start, alone.why_unknown) == (
        None,
        "no worker that could take it is connected",
    )
