"""Stamps against the truth, at random schedules."""

import itertools

import pytest

from perf.box_clock import LATEST_SECONDS, draw_schedule, lateness


@pytest.mark.parametrize("lies", [False, True], ids=["honest clocks", "lying clocks"])
def test_stamps_are_never_early_and_as_late_as_the_transfer(lies: bool) -> None:
    late = sorted(
        itertools.chain.from_iterable(
            lateness(schedule)
            for schedule in (draw_schedule(seed) for seed in range(20))
            if schedule.lies == lies
        )
    )

    assert len(late) == 40
    assert late[0] >= 0
    # A busy machine wakes the worker late at times; perf/box_clock.py has the whole distribution.
    assert late[len(late) // 4] <= LATEST_SECONDS
