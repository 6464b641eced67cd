"""Bodies of requests: too large, too slow, too many at once, or small ones that would become large.

Each is refused with a sentence, before it costs much.
"""

import asyncio
import gzip
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient
from starlette.exceptions import HTTPException
from starlette.types import Message, Scope

from server.operations import bodies
from server.operations.bodies import BodyLimit, BodyRoom
from tests.support.loops import run_async

SUBMISSIONS = "/api/v1/submissions"
FORM = {"Content-Type": "multipart/form-data; boundary=x"}
DEEP = b"[" * 100_000 + b"]" * 100_000


async def read_all(scope: Scope, receive: Any, send: Any) -> None:
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
    """The middleware in front of an application that reads bodies."""

    def __init__(self) -> None:
        self.full: list[str] = []
        self.usual = BodyRoom("bodies", most_each=60, most_together=100)
        self.uploads = BodyRoom("upload_bytes", most_each=1000, most_together=1000)
        self.limit = BodyLimit(
            read_all, usual=self.usual, uploads=self.uploads, upload_path=SUBMISSIONS,
            note_full=self.full.append,
        )  # fmt: skip

    async def send(
        self, *pieces: bytes, path: str = "/x", stated: int | None = None,
        wait: Callable[[], Any] | None = None,
    ) -> int:  # fmt: skip
        """Status of the response to a body that comes in pieces."""
        statuses: list[int] = []
        left = list(pieces)
        length = (b"content-length", str(stated).encode())
        scope: Scope = {
            "type": "http", "method": "POST", "path": path, "query_string": b"",
            "headers": [length if stated is not None else (b"transfer-encoding", b"chunked")],
        }  # fmt: skip

        async def receive() -> Message:
            if wait is not None:
                await wait()
            piece = left.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(left)}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        await self.limit(scope, receive, send)
        return statuses[0]


def test_a_body_over_its_limit_is_413_by_its_stated_length_or_while_it_comes() -> None:
    server = Server()
    assert run_async(server.send(b"x" * 60)) == 200
    assert run_async(server.send(b"x" * 30, b"x" * 31)) == 413
    assert run_async(server.send(stated=61)) == 413
    assert run_async(server.send(b"x" * 61, path=SUBMISSIONS, stated=61)) == 200


def test_all_bodies_together_hold_so_many_bytes() -> None:
    async def scenario() -> None:
        server = Server()
        go_on = asyncio.Event()
        first = asyncio.create_task(server.send(b"x" * 50, b"x", wait=_second(go_on)))
        await asyncio.sleep(0.01)
        assert server.usual.held == 50
        assert await server.send(stated=51) == 503
        assert await server.send(b"x" * 51) == 503
        assert await server.send(b"x" * 50) == 200
        assert await server.send(b"x" * 900, path=SUBMISSIONS) == 200
        assert server.full == ["bodies", "bodies"]
        go_on.set()
        assert await first == 200
        assert (server.usual.held, server.uploads.held) == (0, 0)

    run_async(scenario())


def _second(go_on: asyncio.Event) -> Callable[[], Any]:
    """Let the first piece through, and the second once the event is set."""
    asked: list[bool] = []

    async def wait() -> None:
        asked.append(True)
        if len(asked) > 1:
            await go_on.wait()

    return wait


def test_a_sender_that_falls_silent_or_is_too_slow_is_408(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "SILENT_SECONDS", 0.05)

    async def silence() -> None:
        await asyncio.sleep(60)

    assert run_async(Server().send(b"x", wait=silence)) == 408
    monkeypatch.setattr(bodies, "SILENT_SECONDS", 20.0)
    monkeypatch.setattr(bodies, "GRACE_SECONDS", 0.02)

    async def drip() -> None:
        await asyncio.sleep(0.01)

    assert run_async(Server().send(*[b"x"] * 60, wait=drip)) == 408


def test_json_that_is_too_deep_is_refused_wherever_it_comes(
    client: TestClient, alice: Any, olivia: Any, digits_submission: Any
) -> None:
    as_json = olivia.headers | {"Content-Type": "application/json"}
    assert client.post("/api/v1/tokens", content=DEEP, headers=as_json).status_code == 400
    parts = [("submission", ("submission.json", DEEP)), *digits_submission.files()[1:]]
    refused = client.post(SUBMISSIONS, files=parts, headers=alice.headers)
    assert refused.status_code == 422
    assert "depth" in refused.json()["detail"]


def test_a_compressed_body_is_not_read(client: TestClient, olivia: Any) -> None:
    body = gzip.compress(b'{"user": "carol", "role": "submitter"}')
    headers = olivia.headers | {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    refused = client.post("/api/v1/tokens", content=body, headers=headers)
    assert (refused.status_code, refused.json()["title"]) == (415, "Unsupported media type")


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
def test_a_form_of_too_many_or_too_large_parts_is_refused(
    part: bytes, status: int, client: TestClient, alice: Any
) -> None:
    body = (b"--x\r\n" + part) * 200 + b"--x--\r\n"
    refused = client.post(SUBMISSIONS, content=body[:1_000_000], headers=alice.headers | FORM)
    assert refused.status_code == status


def test_a_form_of_too_many_fields_is_refused(client: TestClient) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded", "Origin": "http://testserver"}
    body = b"&".join(b"a%d=1" % number for number in range(5000))
    assert client.post("/console/sign-in", content=body, headers=form).status_code == 400
