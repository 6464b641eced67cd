"""One bound on requests in flight: a request over it waits shortly, or is answered 503."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse
from starlette.types import Message, Scope

from server.base.request_metrics import RequestMetrics
from server.operations import in_flight
from server.operations.in_flight import InFlight, OpenResponses, Slots
from server.operations.rates import REQUESTER, Requester
from tests.support.loops import run_async

EVENTS = [(b"content-type", b"text/event-stream; charset=utf-8")]


class Server:
    """The middleware around an application whose responses the test lets go."""

    def __init__(self, *, wait_seconds: float = 0.05) -> None:
        self.go_on = asyncio.Event()
        self.working = 0
        self.metrics = RequestMetrics()
        self.app: Callable[..., Awaitable[None]] = self._respond
        self.limit = InFlight(
            self._any,
            slots=Slots(2, wait_seconds=wait_seconds, most_waiting=1),
            streams=OpenResponses("event_streams", most=2, most_each=1),
            downloads=OpenResponses("downloads", most=9, most_each=1),
            metrics=self.metrics,
        )

    async def _any(self, scope: Scope, receive: Any, send: Any) -> None:
        await self.app(scope, receive, send)

    async def _respond(self, scope: Scope, receive: Any, send: Any) -> None:
        self.working += 1
        await self.go_on.wait()
        self.working -= 1
        length = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": length})
        await send({"type": "http.response.body", "body": b"ok"})

    async def ask(
        self,
        *,
        method: str = "GET",
        path: str = "/x",
        address: str = "192.0.2.1",
        role: str | None = None,
        body: Callable[[], Awaitable[Message]] | None = None,
        read: Callable[[Message], Awaitable[None]] | None = None,
    ) -> tuple[int, dict[str, str]]:
        """Status and headers of the response."""
        started: list[Message] = []
        scope: Scope = {
            "type": "http", "method": method, "path": path, "query_string": b"",
            "headers": [(b"content-length", b"10")] if body else [],
            REQUESTER: Requester(address, "f" * 64, role),
        }  # fmt: skip

        async def silence() -> Message:
            await asyncio.sleep(60)
            raise AssertionError

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                started.append(message)
            if read is not None:
                await read(message)

        await self.limit(scope, body or silence, send)
        headers = {name.decode(): value.decode() for name, value in started[0]["headers"]}
        return started[0]["status"], headers

    async def has_room(self) -> bool:
        """Whether both slots are free."""
        free = [await self.limit.slots.acquire() for _ in range(2)]
        for _ in filter(None, free):
            self.limit.slots.release()
        return free == [True, True]

    def shed(self, full: str) -> float | None:
        """The metric."""
        registry: CollectorRegistry = self.metrics.registry
        return registry.get_sample_value("finishline_requests_shed_total", {"what": full})


async def until(condition: Callable[[], object]) -> None:
    """Let the loop run until something is so."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


async def never_read(message: Message) -> None:
    """A reader that takes the start of a response and no more."""
    if message["type"] == "http.response.body":
        await asyncio.sleep(60)


def test_a_request_over_the_bound_waits_and_one_over_the_queue_is_503_at_once() -> None:
    async def scenario() -> None:
        server = Server(wait_seconds=30.0)
        asked = [asyncio.create_task(server.ask()) for _ in range(2)]
        await until(lambda: server.working == 2)
        waits = asyncio.create_task(server.ask())
        await until(lambda: server.limit.slots.waiting == 1)
        status, headers = await server.ask()
        assert (status, headers["retry-after"]) == (503, "2")
        assert headers["content-type"] == "application/problem+json"
        assert server.shed("requests") == 1

        probe = asyncio.create_task(server.ask(path="/healthz"))  # Whoever watches is not bound.
        await until(lambda: server.working == 3)
        server.go_on.set()
        assert {(await task)[0] for task in [*asked, waits, probe]} == {200}
        assert await server.has_room()

    run_async(scenario())


def test_a_flood_holds_up_no_worker_whose_token_is_good() -> None:
    """A report is compared with the server's clock: posts that wait would fail a verification."""
    post = {"method": "POST", "path": "/api/v1/attempts/a/events"}

    async def scenario() -> None:
        server = Server()
        asked = [asyncio.create_task(server.ask()) for _ in range(2)]
        await until(lambda: server.working == 2)
        assert (await server.ask(**post))[0] == 503  # A token that is made up, or not known yet.
        assert (await server.ask(role="worker"))[0] == 503  # It reads.
        asked.append(asyncio.create_task(server.ask(**post, role="worker")))
        await until(lambda: server.working == 3)
        server.go_on.set()
        assert {(await task)[0] for task in asked} == {200}
        assert await server.has_room()

    run_async(scenario())


def test_no_request_waits_longer_than_allowed_and_one_that_leaves_holds_nothing() -> None:
    async def scenario() -> None:
        server = Server()
        asked = [asyncio.create_task(server.ask()) for _ in range(2)]
        await until(lambda: server.working == 2)
        assert (await server.ask())[0] == 503
        gone = asyncio.create_task(server.ask())
        await until(lambda: server.limit.slots.waiting == 1)
        gone.cancel()
        await until(gone.done)
        assert server.limit.slots.waiting == 0
        server.go_on.set()
        await asyncio.gather(*asked)
        assert await server.has_room()

    run_async(scenario())


def test_a_slot_handed_over_at_the_last_moment_is_not_lost() -> None:
    async def scenario() -> None:
        slots = Slots(1, wait_seconds=30.0)
        assert await slots.acquire()
        turn = asyncio.create_task(slots.acquire())
        await until(lambda: slots.waiting == 1)
        slots.release()  # It is handed over, and the request is gone before it runs.
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert await slots.acquire()

    run_async(scenario())


def test_an_application_that_fails_gives_its_slot_back() -> None:
    async def fail(*_: Any) -> None:
        raise ValueError("a mistake")

    async def scenario() -> None:
        server = Server()
        server.app = fail
        for _ in range(5):
            with pytest.raises(ValueError, match="a mistake"):
                await server.ask()
        assert await server.has_room()

    run_async(scenario())


def test_a_slow_sender_and_a_slow_reader_hold_no_slot() -> None:
    async def read_body(scope: Scope, receive: Any, send: Any) -> None:
        await receive()

    async def scenario() -> None:
        server = Server()
        server.go_on.set()
        slow = [asyncio.create_task(server.ask(read=never_read)) for _ in range(5)]
        await asyncio.sleep(0.01)
        server.app = read_body
        silent = asyncio.Event()

        async def silence() -> Message:
            await silent.wait()
            return {"type": "http.disconnect"}

        slow += [asyncio.create_task(server.ask(body=silence)) for _ in range(5)]
        await asyncio.sleep(0.01)
        assert await server.has_room()
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
        assert await server.has_room()

    run_async(scenario())


def test_a_request_whose_body_is_whole_needs_a_slot_again() -> None:
    async def read_body(scope: Scope, receive: Any, send: Any) -> None:
        status = 200
        try:
            while (await receive()).get("more_body"):
                pass
        except HTTPException as error:
            status = error.status_code
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def scenario() -> None:
        server = Server()
        server.app = read_body
        whole = asyncio.Event()

        async def body() -> Message:
            await whole.wait()
            return {"type": "http.request", "body": b"x" * 10, "more_body": False}

        sent = asyncio.create_task(server.ask(body=body))
        await asyncio.sleep(0.01)
        for _ in range(2):
            assert await server.limit.slots.acquire()
        whole.set()
        assert (await sent)[0] == 503
        assert server.shed("requests") == 1
        server.limit.slots.release()
        assert (await server.ask(body=body))[0] == 200

    run_async(scenario())


def test_live_streams_are_bounded_for_each_requester_and_in_all() -> None:
    async def stream(scope: Scope, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": EVENTS})
        await send({"type": "http.response.body", "body": b"data: 1", "more_body": False})

    async def scenario() -> None:
        server = Server()
        server.app = stream
        open_ones = [
            asyncio.create_task(server.ask(address=f"192.0.2.{number}", read=never_read))
            for number in (1, 2)
        ]
        await until(lambda: server.limit.streams.count == 2)
        status, headers = await server.ask(address="192.0.2.3")
        assert (status, headers["retry-after"]) == (503, "2")
        assert server.shed("event_streams") == 1
        open_ones[0].cancel()
        await until(open_ones[0].done)
        assert (await server.ask(address="192.0.2.2"))[0] == 503  # It has one open.
        assert (await server.ask(address="192.0.2.3"))[0] == 200
        open_ones[1].cancel()

    run_async(scenario())


def test_a_download_without_a_reader_ends_and_too_many_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(in_flight, "SEND_SECONDS", 0.05)

    async def download(scope: Scope, receive: Any, send: Any) -> None:
        await StreamingResponse(iter([b"x", b"y", b"z"]))(scope, receive, send)

    async def scenario() -> None:
        server = Server()
        server.app = download
        stuck = asyncio.create_task(server.ask(read=never_read))
        await until(lambda: server.limit.downloads.count == 1)
        assert (await server.ask())[0] == 503
        assert server.shed("downloads") == 1
        assert (await server.ask(address="192.0.2.9"))[0] == 200
        await stuck
        assert server.limit.downloads.count == 0
        assert (await server.ask())[0] == 200

    run_async(scenario())
