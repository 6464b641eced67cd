"""The worker's side of a channel, against drawn conversations; fuzz/box_channel.py has more."""

import psutil
import pytest

from fuzz.box_channel import DEADLINE_SECONDS, LATE_SECONDS, FakeBox, converse
from worker.box import race


def test_any_bytes_end_in_time_with_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race, "Box", FakeBox)
    converse(0)
    descriptors = psutil.Process().num_fds()

    ends = [converse(number) for number in range(300)]

    assert {"reached", "protocol_broken", "silence_time_limit"} <= {end for end, _ in ends}
    assert max(seconds for _, seconds in ends) < DEADLINE_SECONDS + LATE_SECONDS
    assert psutil.Process().num_fds() == descriptors
