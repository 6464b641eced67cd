"""Many readers of one verification: one poll, everything once, in order, whenever they came."""

import asyncio
import threading
from typing import Any

import pytest

from server.verifications import event_stream as feeds
from server.verifications.event_stream import Feeds, News, Position
from tests.support.loops import run_async


class Written:
    """A verification that grows while it is read; counts the reads."""

    def __init__(self) -> None:
        self.count = 0
        self.ended = False
        self.reads = 0
        self._lock = threading.Lock()

    def read(self, position: Position) -> News:
        """At most three events at once."""
        with self._lock:
            self.reads += 1
            state = {"state": "done" if self.ended else "running"}
            places = [Position(1, sequence) for sequence in range(self.count)]
            fresh = [(place, {}) for place in places if place > position][:3]
            return News(state, state if self.ended else None, fresh)


async def listen(followed: Feeds, written: Written, heard: list[int]) -> None:
    """As the endpoint does: to the end."""
    position = Position()
    with followed.follow("v", written.read) as follower:
        while True:
            news = await follower.next(position)
            fresh = [item for item in news.replay if item[0] > position]
            for place, _ in fresh:
                position = place
                heard.append(place.sequence)
            if news.full is not None and not fresh:
                return


def test_a_hundred_readers_hear_everything_once_and_cost_one_poll(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feeds, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(feeds, "KEPT", 4)
    followed, written = Feeds(), Written()
    heard: list[list[int]] = [[] for _ in range(100)]

    async def scenario() -> None:
        tasks = []
        for number in range(100):  # They come while it grows.
            tasks.append(asyncio.create_task(listen(followed, written, heard[number])))
            written.count += number % 5 == 0
            await asyncio.sleep(0)
        for _ in range(80):
            written.count += 1
            await asyncio.sleep(0.002)
        while min(map(len, heard)) < written.count:
            await asyncio.sleep(0.01)
        reads_before = written.reads
        await asyncio.sleep(0.2)
        assert (
            written.reads - reads_before <= 100
        )  # Twenty of one poll; a hundred polls would be 2,000.
        assert len(followed) == 1
        written.ended = True
        await asyncio.wait_for(asyncio.gather(*tasks), 20)

    run_async(scenario())
    assert heard == [list(range(100))] * 100
    assert len(followed) == 0


def test_a_poll_that_fails_ends_every_stream_and_the_next_one_begins_anew() -> None:
    followed, written = Feeds(), Written()

    def away(_: Position) -> News:
        if written.ended:
            raise OSError("the database is away")
        return written.read(Position())

    async def scenario() -> None:
        for _ in range(2):
            written.ended = False
            with followed.follow("v", away) as first, followed.follow("v", away) as second:
                assert (await first.next(Position())).full is None
                assert (await second.next(Position())).full is None
                written.ended = True
                for follower in (first, second):
                    with pytest.raises(OSError, match="away"):
                        await listen_twice(follower)

    async def listen_twice(follower: Any) -> None:
        await follower.next(Position())
        await follower.next(Position())

    run_async(scenario())
    assert len(followed) == 0
