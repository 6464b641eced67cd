"""Stamps against the truth, at random schedules, and the slices of the thread that takes them."""

import ctypes
import itertools
import os
import platform
import struct

import pytest

from perf.box import LATEST_SECONDS, draw_schedule, lateness
from worker.sandbox.processors import SHORTEST_SLICE_NS, waking_first

GET_ATTRIBUTES = {"x86_64": 315, "aarch64": 275}
KERNEL = tuple(int(part) for part in os.uname().release.split(".")[:2] if part.isdigit())


@pytest.mark.nightly
@pytest.mark.parametrize("lies", [False, True], ids=["honest clocks", "lying clocks"])
def test_stamps_are_never_early_and_as_late_as_the_transfer(lies):
    late = sorted(
        itertools.chain.from_iterable(
            lateness(schedule)
            for schedule in (draw_schedule(seed) for seed in range(20))
            if schedule.lies == lies
        )
    )

    assert len(late) == 40
    assert late[0] >= 0
    # A busy machine wakes the worker late at times; perf/box.py has the whole distribution.
    assert late[len(late) // 4] <= LATEST_SECONDS


def slice_ns():
    """Length of the slices of this thread, as the kernel tells it."""
    answer = ctypes.create_string_buffer(56)
    number = GET_ATTRIBUTES[platform.machine()]
    assert ctypes.CDLL(None).syscall(number, 0, answer, 56, 0) == 0
    return int(struct.unpack_from("Q", answer, 24)[0])


@pytest.mark.skipif(KERNEL < (6, 12), reason="slices of their own length need Linux 6.12")
def test_slices_are_short_while_it_lasts_and_the_kernels_own_after_it():
    before = slice_ns()
    with waking_first():
        assert slice_ns() == SHORTEST_SLICE_NS < before
    assert slice_ns() == before
