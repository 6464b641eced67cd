"""When what waits should start: worked by hand on a line of minutes."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from finishline.rules.verification.fair_queue import Turns, Waiting
from server.verifications.forecast import (
    Expected,
    Taker,
    busy_taker,
    expected_starts,
    typical_seconds,
)
from server.verifications.work import Queued, Work

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
REPLAY = Work("digits", "replay")
TEN_MINUTES = {(REPLAY, "cpu"): 600.0, (REPLAY, "gpu"): 60.0}


def minutes(count: float) -> datetime:
    return NOON + timedelta(minutes=count)


def test_an_attempt_takes_the_median_of_those_before_it() -> None:
    ended = [(REPLAY, "cpu", took) for took in (10.0, 100.0, 12.0)] + [(REPLAY, "gpu", 3.0)]
    assert typical_seconds(ended) == {(REPLAY, "cpu"): 12.0, (REPLAY, "gpu"): 3.0}


def queued(*wants: tuple[Work, str | None], whose: int = 1) -> list[Queued]:
    """What waits for each class, the oldest first."""
    return [
        Queued(Waiting(f"{whose}-{number}", whose, False, minutes(number)), work, wanted)
        for number, (work, wanted) in enumerate(wants)
    ]


def foretell(
    waiting: list[Queued], takers: list[Taker], turns: dict[str, Turns] | None = None
) -> list[tuple[str, Expected]]:
    """The names of what waits, in the order it starts, and when."""
    present = {taker.hardware_class for taker in takers}

    def may_take(hardware_class: str, wanted: str | None) -> bool:
        return wanted in (None, hardware_class) or wanted not in present

    placed = expected_starts(
        waiting, takers, TEN_MINUTES, turns=turns or {}, may_take=may_take, now=NOON
    )
    return [(one.turn.attempt_id, expected) for one, expected in placed]


def test_each_starts_on_whichever_worker_of_its_class_is_free_first() -> None:
    busy = busy_taker(Taker("b", "cpu", NOON), REPLAY, since=minutes(-4), typical=TEN_MINUTES)
    takers = [Taker("a", "cpu", NOON), busy, Taker("g", "gpu", NOON)]
    starts = foretell(queued(*[(REPLAY, "cpu")] * 4), takers)
    # a takes the first, b is free at minute 6, a again at 10, b again at 16.
    assert [each.start for _, each in starts] == [NOON, minutes(6), minutes(10), minutes(16)]


def test_submitters_take_turns_and_who_had_one_waits() -> None:
    waiting = [*queued(*[(REPLAY, "cpu")] * 3), *queued((REPLAY, "cpu"), whose=2)]
    starts = foretell(waiting, [Taker("a", "cpu", NOON)])
    assert [name for name, _ in starts] == ["1-0", "2-0", "1-1", "1-2"]
    turns = {"cpu": Turns(last={(False, 1): 1}, count=1)}
    starts = foretell(waiting, [Taker("a", "cpu", NOON)], turns)
    assert [name for name, _ in starts] == ["2-0", "1-0", "1-1", "1-2"]
    assert [each.start for _, each in starts] == [minutes(10 * place) for place in range(4)]


def test_what_was_sent_has_had_its_turn_and_goes_first() -> None:
    waiting = queued(*[(REPLAY, "cpu")] * 3)
    waiting[2] = replace(waiting[2], sent_to="a")
    starts = foretell(waiting, [Taker("a", "cpu", NOON)])
    assert [name for name, _ in starts] == ["1-2", "1-0", "1-1"]


def test_what_no_worker_of_its_class_can_take_goes_to_any() -> None:
    takers = [Taker("g", "gpu", minutes(2))]
    starts = foretell(queued((REPLAY, "tpu"), (REPLAY, None)), takers)
    assert [each.start for _, each in starts] == [minutes(2), minutes(3)]


def test_one_that_takes_longer_than_usual_may_end_at_any_moment() -> None:
    late = busy_taker(Taker("b", "cpu", NOON), REPLAY, since=minutes(-30), typical=TEN_MINUTES)
    assert late.free_at == NOON


def test_what_nobody_can_know_is_unknown_and_says_why() -> None:
    duel = Work("digits", "duel")
    first, second = foretell(queued((duel, "cpu"), (REPLAY, "cpu")), [Taker("a", "cpu", NOON)])
    assert first[1].start == NOON
    assert second[1].start is None
    assert "no duel of digits on cpu has ended yet" in (second[1].why_unknown or "")
    ((_, alone),) = foretell(queued((REPLAY, "cpu")), [])
    assert (alone.start, alone.why_unknown) == (
        None,
        "no worker that could take it is connected",
    )
