"""What there is no room for is refused at once; workers and organisers keep places of their own."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from starlette.exceptions import HTTPException
from starlette.types import Message, Scope

from server.limits import bodies, shedding
from server.limits.kinds import Kind
from server.limits.metrics import LimitMetrics
from server.limits.pace import Pace, next_places
from server.limits.rate_limiting import KIND, REQUESTER
from server.limits.requesters import Requester
from server.limits.room import Held, Room
from server.limits.shedding import Shedding, make_capacity
from server.settings import Settings
from tests.support.loops import run_async

TIGHT = Settings(
    max_requests_in_work=2,
    max_requests_waiting=1,
    max_wait_seconds=0.05,
    max_upload_bytes_in_flight=100,
    max_event_streams=2,
    max_event_streams_each=1,
)


class Server:
    """The middleware around an application whose answers the test lets go."""

    def __init__(self, settings: Settings = TIGHT) -> None:
        self.go_on = asyncio.Event()
        self.working = 0
        self.registry = CollectorRegistry()
        self.capacity = make_capacity(settings)
        self.app: Callable[..., Awaitable[None]] = self._answer
        self.shedding = Shedding(
            self._any, capacity=self.capacity, metrics=LimitMetrics(self.registry)
        )

    async def _any(self, scope: Scope, receive: Any, send: Any) -> None:
        await self.app(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Any, send: Any) -> None:
        self.working += 1
        await self.go_on.wait()
        self.working -= 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})

    async def ask(
        self,
        kind: Kind = Kind.READ,
        *,
        address: str = "192.0.2.1",
        role: str | None = None,
        unproven: bool = False,
        body: list[bytes] | None = None,
        take: Callable[[Message], Awaitable[None]] | None = None,
    ) -> tuple[int, dict[str, str]]:
        """Status and headers of the answer."""
        started: list[Message] = []
        pieces = list(body or [])
        length = str(sum(map(len, pieces))).encode()
        scope: Scope = {
            "type": "http", "method": "GET", "path": "/x", "query_string": b"",
            "headers": [(b"content-length", length)] if body else [],
            KIND: kind, REQUESTER: Requester(address, "f" * 64 if role or unproven else None, role),
        }  # fmt: skip

        async def receive() -> Message:
            if not pieces:
                await asyncio.sleep(60)
            piece = pieces.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                started.append(message)
            if take is not None:
                await take(message)

        await self.shedding(scope, receive, send)
        headers = {name.decode(): value.decode() for name, value in started[0]["headers"]}
        return started[0]["status"], headers

    def shed(self, what: str) -> float | None:
        """The metric."""
        return self.registry.get_sample_value("finishline_requests_shed_total", {"what": what})


async def until(condition: Callable[[], object]) -> None:
    """Let the loop run until something is so."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


def test_beyond_places_and_queue_the_answer_is_503_at_once_and_others_have_their_own() -> None:
    async def scenario() -> None:
        server = Server(TIGHT.model_copy(update={"max_wait_seconds": 30.0}))
        asked = [asyncio.create_task(server.ask()) for _ in range(2)]
        await until(lambda: server.working == 2)
        waits = asyncio.create_task(server.ask())
        await until(lambda: server.capacity.public.waiting == 1)
        status, headers = await server.ask()
        assert (status, headers["retry-after"]) == (503, "2")
        assert headers["content-type"] == "application/problem+json"
        assert server.shed("requests") == 1

        # Known workers and organisers, and tokens that are not known yet, have their own places.
        asked += [
            asyncio.create_task(server.ask(Kind.WORKER, role="worker")),
            asyncio.create_task(server.ask(Kind.WORKER, unproven=True)),
            asyncio.create_task(server.ask(Kind.READ, role="organiser")),
            asyncio.create_task(server.ask(Kind.FREE)),
        ]
        await until(lambda: server.working == 6)
        server.go_on.set()
        assert {(await task)[0] for task in [*asked, waits]} == {200}
        assert (server.capacity.public.in_work, server.capacity.reserved.in_work) == (0, 0)

    run_async(scenario())


def test_nobody_waits_longer_than_allowed_and_who_gives_up_leaves_no_trace() -> None:
    async def scenario() -> None:
        server = Server()
        asked = [asyncio.create_task(server.ask()) for _ in range(2)]
        await until(lambda: server.working == 2)
        assert (await server.ask())[0] == 503
        gone = asyncio.create_task(server.ask())
        await until(lambda: server.capacity.public.waiting == 1)
        gone.cancel()
        await until(gone.done)
        assert server.capacity.public.waiting == 0
        server.go_on.set()
        await asyncio.gather(*asked)
        assert (await server.ask())[0] == 200

    run_async(scenario())


def test_an_application_that_fails_gives_its_place_back() -> None:
    async def fail(*_: Any) -> None:
        raise ValueError("a mistake")

    async def scenario() -> None:
        server = Server()
        server.app = fail
        for _ in range(5):
            with pytest.raises(ValueError, match="a mistake"):
                await server.ask()
        assert server.capacity.public.in_work == 0

    run_async(scenario())


def test_a_slow_reader_holds_no_place_and_streams_are_bounded_for_each_and_in_all() -> None:
    async def scenario() -> None:
        server = Server()
        server.go_on.set()
        taken = asyncio.Event()

        async def slow(message: Message) -> None:
            if message["type"] == "http.response.body":
                await taken.wait()

        slow_ones = [asyncio.create_task(server.ask(take=slow)) for _ in range(5)]
        await asyncio.sleep(0.01)
        assert server.capacity.public.in_work == 0
        streams = [
            asyncio.create_task(server.ask(Kind.STREAM, address=address, take=slow))
            for address in ("192.0.2.1", "192.0.2.2")
        ]
        await until(lambda: server.capacity.streams.count == 2)
        assert (await server.ask(Kind.STREAM, address="192.0.2.3"))[0] == 503
        assert server.shed("event_streams") == 1
        taken.set()
        await asyncio.gather(*slow_ones, *streams)
        assert (await server.ask(Kind.STREAM))[0] == 200

    run_async(scenario())
    held = Held("event_streams", most=9, most_each=1)
    assert [held.take(key) for key in ("a", "a", "b")] == [True, False, True]
    held.give_back("a")
    assert (held.take("a"), held.count) == (True, 2)


async def read_all(scope: Scope, receive: Any, send: Any) -> None:
    """Reads the body, as an endpoint does; the error of a body becomes its answer."""
    status = 200
    try:
        while (await receive()).get("more_body"):
            pass
    except HTTPException as error:
        status = error.status_code
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def test_uploads_hold_so_many_bytes_in_all() -> None:
    async def scenario() -> None:
        server = Server()
        server.app = read_all
        assert (await server.ask(Kind.UPLOAD, body=[b"x" * 60, b"x" * 40]))[0] == 200
        assert (await server.ask(Kind.UPLOAD, body=[b"x" * 60, b"x" * 41]))[0] == 503
        assert server.shed("upload_bytes") == 1
        assert server.capacity.upload_bytes.held == 0

    run_async(scenario())


def test_a_sender_that_falls_silent_is_given_up_and_held_no_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bodies, "SILENT_SECONDS", 0.3)

    async def scenario() -> None:
        server = Server()
        server.app = read_all

        async def silent_receive() -> Message:
            await asyncio.sleep(60)
            raise AssertionError

        answers: list[int] = []

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                answers.append(message["status"])

        scope: Scope = {
            "type": "http", "method": "POST", "path": "/x", "query_string": b"",
            "headers": [(b"content-length", b"10")],
            KIND: Kind.WRITE, REQUESTER: Requester("192.0.2.1", None, None),
        }  # fmt: skip
        tasks = [
            asyncio.create_task(server.shedding(scope, silent_receive, send)) for _ in range(10)
        ]
        await asyncio.sleep(0.01)
        assert server.capacity.public.in_work == 0
        server.go_on.set()
        server.app = server._answer
        assert (await server.ask())[0] == 200
        await asyncio.gather(*tasks)
        assert answers == [408] * 10

    run_async(scenario())


def test_a_download_that_nobody_takes_ends_and_too_many_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shedding, "SEND_SECONDS", 0.05)
    monkeypatch.setattr(shedding, "MOST_DOWNLOADS_EACH", 1)

    async def in_parts(scope: Scope, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for number in range(3):
            await send({"type": "http.response.body", "body": b"x", "more_body": number < 2})

    async def scenario() -> None:
        server = Server()
        server.app = in_parts
        never = asyncio.Event()

        async def slow(message: Message) -> None:
            if message["type"] == "http.response.body":
                await never.wait()

        stuck = asyncio.create_task(server.ask(take=slow))
        await until(lambda: server.capacity.downloads.count == 1)
        assert (await server.ask())[0] == 503
        assert server.shed("downloads") == 1
        assert (await server.ask(address="192.0.2.9"))[0] == 200
        await stuck
        assert server.capacity.downloads.count == 0
        assert (await server.ask())[0] == 200

    run_async(scenario())


def test_fewer_are_worked_at_while_the_event_loop_is_late_and_more_again_once_it_is_not() -> None:
    places = [10]
    for late_seconds in (0.2, 0.2, 0.2, 5.0, 5.0, 5.0, 0.03, 0.0, 0.0):
        places.append(next_places(places[-1], late_seconds=late_seconds, most=10))
    assert places == [10, 7, 4, 2, 1, 1, 1, 1, 2, 3]
    assert next_places(10, late_seconds=0.0, most=10) == 10

    async def scenario() -> None:
        room = Room("requests", places=2, waiting=5, patience_seconds=30.0)
        assert await room.enter()
        assert await room.enter()
        room.set_places(1)
        turns = [asyncio.create_task(room.enter()) for _ in range(3)]
        await until(lambda: room.waiting == 3)
        room.leave()
        assert (room.in_work, room.waiting) == (1, 3)  # One more had a place than there are.
        room.leave()
        assert (room.in_work, room.waiting) == (1, 2)
        room.set_places(3)
        assert (room.in_work, room.waiting) == (3, 0)
        assert await asyncio.gather(*turns) == [True] * 3
        pace = Pace(room, most=3)
        room.set_places(1)
        pace.start()
        await until(lambda: room.places > 1)  # It looks at the loop that it runs in.
        await pace.stop()

    run_async(scenario())


def test_a_place_handed_over_at_the_last_moment_is_not_lost() -> None:
    async def scenario() -> None:
        room = Room("requests", places=1, waiting=5, patience_seconds=30.0)
        assert await room.enter()
        turn = asyncio.create_task(room.enter())
        await until(lambda: room.waiting == 1)
        room.leave()  # It is handed over, and the one that waited is gone before it runs.
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert room.in_work == 0
        assert await room.enter()

    run_async(scenario())
