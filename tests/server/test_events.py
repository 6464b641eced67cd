"""Events of a verification as they happen, for one reader and for many."""

import asyncio
import json
import threading
from datetime import timedelta

import pytest
from sqlalchemy.exc import OperationalError

from server.base.database import utc_now
from server.verifications import live
from server.verifications.live import Feeds, News, Position
from server.verifications.sweep import expire_leases
from tests.support.build import build_report
from tests.support.loops import run_async
from tests.support.streams import stream_report, streamed


def evaluation(sequence):
    return {"sequence": sequence, "run": 0, "kind": "evaluation", "quality": float(sequence)}


@pytest.fixture
def watch(client):
    def read(verification_id, *, last=None):
        address = f"/api/v1/verifications/{verification_id}/events"
        response = client.get(address, headers={"Last-Event-ID": last} if last else {})
        assert response.status_code == 200, response.text
        assert response.headers["content-type"].startswith("text/event-stream")
        assert "content-encoding" not in response.headers
        found = []
        for block in response.text.split("\n\n"):
            lines = [line for line in block.splitlines() if line and not line.startswith(":")]
            if lines:
                event = dict(line.split(": ", 1) for line in lines)
                found.append(event | {"data": json.loads(event["data"])})
        return found

    return read


@pytest.fixture
def ended(replay):
    """A verification with the events of its trainings and a verdict."""
    replay.train()
    return replay


@pytest.fixture
def posted(ended):
    return [event for _at, event in streamed(build_report(ended.seeds()))]


def test_a_reader_gets_state_then_replay_then_end(ended, posted, watch):
    seen = watch(ended.verification_id)

    assert [event["event"] for event in seen] == ["state", *["replay"] * len(posted), "end"]
    assert seen[0]["data"]["state"] == "done"
    assert "report" not in seen[0]["data"]
    assert [event["data"]["sequence"] for event in seen[1:-1]] == list(range(len(posted)))
    assert {event["data"]["attempt"] for event in seen[1:-1]} == {1}
    assert [event["data"]["kind"] for event in seen[1:-1]] == [event["kind"] for event in posted]
    assert seen[-1]["data"] == ended.view()


def test_a_reader_that_comes_back_goes_on_where_it_stopped(ended, posted, watch):
    everything = watch(ended.verification_id)
    for stop_after in (0, 1, 3, 6):
        first = everything[:stop_after]
        then = watch(ended.verification_id, last=first[-1]["id"] if first else None)

        replayed = [e["data"]["sequence"] for e in first + then if e["event"] == "replay"]
        assert replayed == list(range(len(posted))), stop_after
        assert then[-1]["event"] == "end"
    for strange in ("x", "1", "1.x", ".", "1." + "9" * 30, "9" * 5000 + ".1"):
        assert watch(ended.verification_id, last=strange) == everything, strange


def test_events_of_every_attempt_come_in_order(replay, database, watch, make_report, monkeypatch):
    # More events in the first attempt than are read at once.
    monkeypatch.setattr(live, "EVENTS_AT_ONCE", 3)
    grant = replay.claim().json()
    replay.post(grant, [evaluation(sequence) for sequence in range(7)])
    replay.change(grant["attempt_id"], lease_expires_at=utc_now() - timedelta(hours=1))
    expire_leases(database)
    report = make_report(replay.seeds())
    replay.report(replay.claim().json(), report)

    seen = [e["data"] for e in watch(replay.verification_id) if e["event"] == "replay"]
    assert [(e["attempt"], e["sequence"]) for e in seen] == [
        *[(1, sequence) for sequence in range(7)],
        *[(2, sequence) for sequence in range(len(streamed(report)))],
    ]


def test_a_cancelled_verification_ends_its_stream(replay, olivia, watch):
    replay.cancel(olivia)
    seen = watch(replay.verification_id)

    assert [event["event"] for event in seen] == ["state", "end"]
    assert seen[-1]["data"]["state"] == "cancelled"


def test_change_of_state_is_told_before_the_end(replay, database, watch, make_report, monkeypatch):
    """The worker's steps happen each time the stream has read everything there was."""
    grant = {}
    report = make_report(replay.seeds())
    count = len(streamed(report))
    steps = [
        lambda: grant.update(replay.claim().json()),
        lambda: stream_report(database, grant["attempt_id"], report),
        lambda: replay.post_report(grant, report),
    ]
    read_news = live.read_news

    def read_then_step(*arguments):
        found = read_news(*arguments)
        if steps and not found.replay:
            steps.pop(0)()
        return found

    monkeypatch.setattr(live, "read_news", read_then_step)
    seen = watch(replay.verification_id)

    told = [(e["event"], e["data"].get("state")) for e in seen]
    assert told == [
        ("state", "queued"),
        ("state", "running"),
        *[("replay", None)] * count,
        ("state", "done"),
        ("end", "done"),
    ]
    ids = [f"1.{sequence}" for sequence in range(count)]
    assert [e["id"] for e in seen] == ["0.-1", "0.-1", *ids, ids[-1], ids[-1]]


def test_a_stream_ends_when_the_database_goes_away(replay, watch, monkeypatch):
    read_news, reads = live.read_news, iter((True, False))

    def read_once(*arguments):
        if next(reads):
            return read_news(*arguments)
        raise OperationalError("SELECT 1", {}, Exception("the server closed the connection"))

    monkeypatch.setattr(live, "read_news", read_once)
    assert [event["event"] for event in watch(replay.verification_id)] == ["state"]


class Written:
    def __init__(self):
        self.count = 0
        self.ended = False
        self.reads = 0
        self._lock = threading.Lock()

    def read(self, position):
        with self._lock:
            self.reads += 1
            state = {"state": "done" if self.ended else "running"}
            places = [Position(1, sequence) for sequence in range(self.count)]
            fresh = [(place, {}) for place in places if place > position][:3]
            return News(state, state if self.ended else None, fresh)


async def listen(followed, written, heard):
    async for news in followed.follow("v", written.read, Position()):
        heard += [place.sequence for place, _ in news.replay]


def test_a_hundred_readers_hear_everything_once_and_cost_one_poll(monkeypatch):
    monkeypatch.setattr(live, "POLL_SECONDS", 0.01)
    followed, written = Feeds(), Written()
    heard = [[] for _ in range(100)]

    async def scenario():
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
        # Twenty of one poll; a hundred polls would be 2,000.
        assert written.reads - reads_before <= 100
        written.ended = True
        await asyncio.wait_for(asyncio.gather(*tasks), 20)

    run_async(scenario())
    assert heard == [list(range(100))] * 100


def test_a_read_that_fails_ends_every_stream_and_the_next_one_begins_anew(monkeypatch):
    monkeypatch.setattr(live, "POLL_SECONDS", 0.01)
    followed, written = Feeds(), Written()

    def read(position):
        if written.ended:
            raise OSError("the database is away")
        return written.read(position)

    async def listen_twice():
        news = [one async for one in followed.follow("v", read, Position())]
        raise AssertionError(news)

    async def scenario():
        for _ in range(2):
            written.ended = False
            readers = [asyncio.create_task(listen_twice()) for _ in range(2)]
            await asyncio.sleep(0.05)
            assert not any(reader.done() for reader in readers)
            written.ended = True
            for reader in readers:
                with pytest.raises(OSError, match="away"):
                    await reader

    run_async(scenario())
