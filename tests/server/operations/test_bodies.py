"""Requests with bounds: their heads, their bodies, and how many are in flight."""

import asyncio
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager

import pytest
import uvicorn
from starlette.exceptions import HTTPException
from uvicorn.server import ServerState

from server.base.http import RequestMetrics
from server.base.settings import Settings
from server.operations import limits
from server.operations.limits import MOST_HEAD_BYTES, BoundedHttpProtocol, Limits, Requester
from tests.support.loops import in_loop, run_async

SUBMISSIONS = "/api/v1/submissions"
FORM = {"Content-Type": "multipart/form-data; boundary=x"}
DEEP = b"[" * 100_000 + b"]" * 100_000


async def read_all(scope, receive, send):
    """Read the body as an endpoint does; an error of a body becomes the response."""
    status = 200
    try:
        while (await receive()).get("more_body"):
            pass
    except HTTPException as error:
        status = error.status_code
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": b""})


class Server:
    def __init__(self):
        self.metrics = RequestMetrics()
        uploads = {"max_request_bytes": 1000, "max_upload_bytes_in_flight": 1000}
        settings = Settings(max_json_bytes=60, max_body_bytes_in_flight=100, **uploads)
        self.limit = Limits(read_all, settings=settings, metrics=self.metrics)

    async def send(self, *pieces, path="/x", stated=None, wait=None):
        statuses = []
        left = list(pieces)
        length = (b"content-length", str(stated).encode())
        scope = {
            "type": "http", "method": "POST", "path": path, "query_string": b"",
            "headers": [length if stated is not None else (b"transfer-encoding", b"chunked")],
        }  # fmt: skip

        async def receive():
            if wait is not None:
                await wait()
            piece = left.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(left)}

        async def send(message):
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        await self.limit(scope, receive, send)
        return statuses[0]


def shed(metrics, what):
    return metrics.registry.get_sample_value("finishline_requests_shed_total", {"what": what})


@in_loop
async def test_all_bodies_together_hold_so_many_bytes():
    server = Server()
    go_on = asyncio.Event()
    asked = []

    async def wait_for_the_second():
        asked.append(True)
        if len(asked) > 1:
            await go_on.wait()

    first = asyncio.create_task(server.send(b"x" * 50, b"x", wait=wait_for_the_second))
    await asyncio.sleep(0.01)
    assert server.limit.bodies.held == 50
    assert await server.send(stated=51) == 503
    assert await server.send(b"x" * 51) == 503
    assert await server.send(b"x" * 50) == 200
    assert await server.send(b"x" * 900, path=SUBMISSIONS) == 200
    assert shed(server.metrics, "bodies") == 2
    go_on.set()
    assert await first == 200
    assert (server.limit.bodies.held, server.limit.uploads.held) == (0, 0)


def test_a_sender_that_falls_silent_or_is_too_slow_is_408(monkeypatch):
    monkeypatch.setattr(limits, "SILENT_SECONDS", 0.05)

    async def silence():
        await asyncio.sleep(60)

    assert run_async(Server().send(b"x", wait=silence)) == 408
    monkeypatch.setattr(limits, "SILENT_SECONDS", 20.0)
    monkeypatch.setattr(limits, "GRACE_SECONDS", 0.02)

    async def drip():
        await asyncio.sleep(0.01)

    assert run_async(Server().send(*[b"x"] * 60, wait=drip)) == 408


def test_deep_json_and_large_forms_are_refused(client, alice, olivia, digits_submission):
    as_json = olivia.headers | {"Content-Type": "application/json"}
    assert client.post("/api/v1/tokens", content=DEEP, headers=as_json).status_code == 400
    parts = [("submission", ("submission.json", DEEP)), *digits_submission.files()[1:]]
    refused = client.post(SUBMISSIONS, files=parts, headers=alice.headers)
    assert refused.status_code == 422
    assert "depth" in refused.json()["detail"]
    form = {"Content-Type": "application/x-www-form-urlencoded", "Origin": "http://testserver"}
    body = b"&".join(b"a%d=1" % number for number in range(5000))
    assert client.post("/console/sign-in", content=body, headers=form).status_code == 400


@pytest.mark.parametrize(
    ("part", "status"),
    [
        (b'Content-Disposition: form-data; name="a"\r\n\r\nv\r\n', 413),
        (b'Content-Disposition: form-data; name="logs"; filename="f"\r\n\r\nv\r\n', 413),
        (b"X: %s\r\n\r\nv\r\n" % (b"a" * 100_000), 400),
        (b"%s\r\nv\r\n" % (b"X: y\r\n" * 1000), 400),
    ],
    ids=["fields", "files", "long header", "many headers"],
)
def test_a_form_of_too_many_or_too_large_parts_is_refused(part, status, client, alice):
    body = (b"--x\r\n" + part) * 200 + b"--x--\r\n"
    refused = client.post(SUBMISSIONS, content=body[:1_000_000], headers=alice.headers | FORM)
    assert refused.status_code == status


GET = b"GET / HTTP/1.1\r\nHost: x\r\n"


async def answer(scope, receive, send):
    await send({"type": "http.response.start", "status": 200,
                "headers": [(b"content-length", b"2")]})  # fmt: skip
    await send({"type": "http.response.body", "body": b"k\n"})


async def talk(*pieces):
    """The first line of each answer to pieces that are sent one after the other, "" at the end."""
    config = uvicorn.Config(answer, log_level="critical", lifespan="off")
    config.load()
    server = await asyncio.get_running_loop().create_server(
        lambda: BoundedHttpProtocol(config=config, server_state=ServerState(), app_state={}),
        "127.0.0.1",
        0,
    )
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    lines = []
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)
        async with asyncio.timeout(10):
            while line := await reader.readline():
                lines += [line] if line.startswith(b"HTTP/1.1 ") else []
                if line.startswith(b"HTTP/1.1 200") and len(lines) == 2:
                    break
    except ConnectionError:
        lines.append(b"reset")
    finally:
        writer.close()
        server.close()
    return lines


def test_usual_heads_are_read_one_after_the_other():
    large = b"X: " + b"a" * (MOST_HEAD_BYTES - 5000) + b"\r\n\r\n"
    assert run_async(talk(GET, large, GET + b"\r\n")) == [b"HTTP/1.1 200 OK\r\n"] * 2


@pytest.mark.parametrize(
    "head",
    [
        [GET, *[b"X-%d: %s\r\n" % (n, b"a" * 9000) for n in range(10)]],
        [GET, b"X: ", *[b"a" * 9000] * 10],
        [b"GET /", *[b"a" * 9000] * 10],
    ],
    ids=["many", "one header", "address"],
)
def test_a_head_without_end_is_refused(head):
    (line,) = run_async(talk(*head))[:1]
    assert line in (b"HTTP/1.1 400 Bad Request\r\n", b"reset")


@pytest.mark.parametrize("head", [[], [GET, b"X: "]], ids=["silent", "unfinished"])
def test_a_connection_that_does_not_ask_in_time_ends(head, monkeypatch):
    monkeypatch.setattr(limits, "HEAD_SECONDS", 0.1)
    assert run_async(talk(*head)) == []


EVENTS = [(b"content-type", b"text/event-stream; charset=utf-8")]
LIVE = "/api/v1/verifications/v/events"


class LimitedServer:
    def __init__(self, *, wait_seconds=0.05):
        self.go_on = asyncio.Event()
        self.working = 0
        self.metrics = RequestMetrics()
        self.app = self._respond
        streams = {"max_event_streams": 2, "max_event_streams_each": 1}
        settings = Settings(max_requests_in_work=2, max_wait_seconds=wait_seconds, **streams)
        self.limit = Limits(self._any, settings=settings, metrics=self.metrics)

    async def _any(self, scope, receive, send):
        await self.app(scope, receive, send)

    async def _respond(self, scope, receive, send):
        self.working += 1
        await self.go_on.wait()
        self.working -= 1
        length = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": length})
        await send({"type": "http.response.body", "body": b"ok"})

    async def ask(self, *, body=None, read=None, address="192.0.2.1", role=None, **of_scope):
        started = []
        scope = {
            "type": "http", "method": "GET", "path": "/x", "query_string": b"",
            "headers": [(b"content-length", b"10")] if body else [], "client": (address, 1),
        } | of_scope  # fmt: skip
        if role is not None:  # A token that has proved good.
            scope["headers"] = [*scope["headers"], (b"authorization", b"Bearer good")]
            self.limit.known[limits.secret_of(scope)] = Requester("token:good", role)

        async def silence():
            await asyncio.sleep(60)
            raise AssertionError

        async def send(message):
            if message["type"] == "http.response.start":
                started.append(message)
            if read is not None:
                await read(message)

        await self.limit(scope, body or silence, send)
        answered = {name.decode(): value.decode() for name, value in started[0]["headers"]}
        return started[0]["status"], answered

    async def has_room(self):
        async with AsyncExitStack() as held:
            for _ in range(2):
                await held.enter_async_context(a_slot(self.limit.slots))
            return True


@asynccontextmanager
async def a_slot(slots, seconds=0.01):
    with ExitStack() as held:
        await slots.take(held, seconds=seconds, most_waiting=1)
        yield


async def until(condition):
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


async def never_read(message):
    if message["type"] == "http.response.body":
        await asyncio.sleep(60)


@pytest.fixture(autouse=True)
def one_waits(monkeypatch):
    monkeypatch.setattr(limits, "MOST_WAITING", 1)


@in_loop
async def test_a_request_over_the_bound_waits_and_one_over_the_queue_is_503_at_once():
    server = LimitedServer(wait_seconds=30.0)
    asked = [asyncio.create_task(server.ask()) for _ in range(2)]
    await until(lambda: server.working == 2)
    waits = asyncio.create_task(server.ask())
    await until(lambda: server.limit.slots.waiting == 1)
    status, headers = await server.ask()
    assert (status, headers["retry-after"]) == (503, "2")
    assert headers["content-type"] == "application/problem+json"
    assert shed(server.metrics, "requests") == 1

    probe = asyncio.create_task(server.ask(path="/healthz"))  # Whoever watches is not bound.
    await until(lambda: server.working == 3)
    server.go_on.set()
    assert {(await task)[0] for task in [*asked, waits, probe]} == {200}
    assert await server.has_room()


@in_loop
async def test_a_flood_holds_up_no_worker_whose_token_is_good():
    """A report is compared with the server's clock: posts that wait would fail a verification."""
    post = {"method": "POST", "path": "/api/v1/attempts/a/events"}

    server = LimitedServer()
    asked = [asyncio.create_task(server.ask()) for _ in range(2)]
    await until(lambda: server.working == 2)
    assert (await server.ask(**post))[0] == 503  # A token that is made up, or not known yet.
    assert (await server.ask(role="worker"))[0] == 503  # It reads.
    asked.append(asyncio.create_task(server.ask(**post, role="worker")))
    await until(lambda: server.working == 3)
    server.go_on.set()
    assert {(await task)[0] for task in asked} == {200}
    assert await server.has_room()


@in_loop
async def test_no_request_waits_longer_than_allowed_and_one_that_leaves_holds_nothing():
    server = LimitedServer()
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


@in_loop
async def test_a_class_that_joins_waits_and_a_full_page_loads_itself_again():
    server = LimitedServer(wait_seconds=5.0)
    joins = [
        asyncio.create_task(server.ask(method=method, path="/join/1-x", address=f"192.0.2.{n}"))
        for n in range(9)
        for method in ("GET", "POST")
    ]
    await until(lambda: server.limit.slots.waiting == 16)
    as_browser = [(b"accept", b"text/html")]
    status, headers = await server.ask(path="/account", headers=as_browser)
    assert status == 503
    assert 2 <= int(headers["refresh"]) < 10
    assert "refresh" not in (await server.ask(path="/account"))[1]
    server.go_on.set()
    assert {status for status, _ in await asyncio.gather(*joins)} == {200}


@in_loop
async def test_an_application_that_fails_gives_its_slot_back():
    async def fail(*_):
        raise ValueError("a mistake")

    server = LimitedServer()
    server.app = fail
    for _ in range(5):
        with pytest.raises(ValueError, match="a mistake"):
            await server.ask()
    assert await server.has_room()


@in_loop
async def test_a_slow_sender_and_a_slow_reader_hold_no_slot():
    async def read_once(scope, receive, send):
        await receive()

    server = LimitedServer()
    server.go_on.set()
    slow = [asyncio.create_task(server.ask(read=never_read)) for _ in range(5)]
    await asyncio.sleep(0.01)
    server.app = read_once
    slow += [
        asyncio.create_task(server.ask(body=asyncio.Event().wait, method="POST")) for _ in range(5)
    ]
    await asyncio.sleep(0.01)
    assert await server.has_room()
    for task in slow:
        task.cancel()
    await asyncio.gather(*slow, return_exceptions=True)
    assert await server.has_room()


@in_loop
async def test_a_request_whose_body_is_whole_needs_a_slot_again():
    server = LimitedServer()
    server.app = read_all
    whole = asyncio.Event()

    async def body():
        await whole.wait()
        return {"type": "http.request", "body": b"x" * 10, "more_body": False}

    sent = asyncio.create_task(server.ask(body=body, method="POST"))
    await asyncio.sleep(0.01)
    async with a_slot(server.limit.slots), a_slot(server.limit.slots):
        whole.set()
        assert (await sent)[0] == 503
        assert shed(server.metrics, "requests") == 1
    assert (await server.ask(body=body, method="POST"))[0] == 200


@in_loop
async def test_live_streams_are_bounded_for_each_requester_and_in_all():
    async def stream(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": EVENTS})
        await send({"type": "http.response.body", "body": b"data: 1", "more_body": False})

    server = LimitedServer()
    server.app = stream
    open_ones = [
        asyncio.create_task(server.ask(address=f"192.0.2.{number}", read=never_read, path=LIVE))
        for number in (1, 2)
    ]
    await until(lambda: server.limit.streams.total() == 2)
    status, headers = await server.ask(address="192.0.2.3", path=LIVE)
    assert (status, headers["retry-after"]) == (503, "2")
    assert shed(server.metrics, "event_streams") == 1
    open_ones[0].cancel()
    await until(open_ones[0].done)
    assert (await server.ask(address="192.0.2.2", path=LIVE))[0] == 503  # It has one open.
    assert (await server.ask(address="192.0.2.3", path=LIVE))[0] == 200
    open_ones[1].cancel()
