"""Waking first: the length of the worker's slices while a box is listened to."""

import ctypes
import os
import platform
import struct

import pytest

from worker.box.wake_up import SHORTEST_SLICE_NS, waking_first

GET_ATTRIBUTES = {"x86_64": 315, "aarch64": 275}
KERNEL = tuple(int(part) for part in os.uname().release.split(".")[:2] if part.isdigit())


def slice_ns() -> int:
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
