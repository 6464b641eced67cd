"""Heads of requests: bounded in size and time, over real sockets."""

import asyncio
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from server.operations import heads
from server.operations.heads import MOST_HEAD_BYTES, BoundedHttpProtocol
from tests.support.loops import run_async

GET = b"GET / HTTP/1.1\r\nHost: x\r\n"


async def answer(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200,
                "headers": [(b"content-length", b"2")]})  # fmt: skip
    await send({"type": "http.response.body", "body": b"k\n"})


async def talk(*pieces: bytes) -> list[bytes]:
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


def test_usual_heads_are_read_one_after_the_other() -> None:
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
def test_a_head_without_end_is_refused(head: list[bytes]) -> None:
    (line,) = run_async(talk(*head))[:1]
    assert line in (b"HTTP/1.1 431 Request Header Fields Too Large\r\n", b"reset")


@pytest.mark.parametrize("head", [[], [GET, b"X: "]], ids=["silent", "unfinished"])
def test_a_connection_that_does_not_ask_in_time_ends(
    head: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads, "HEAD_SECONDS", 0.1)
    assert run_async(talk(*head)) == []


def test_every_request_of_a_connection_learns_that_its_client_left() -> None:
    """uvicorn tells the last one alone, and the others write to a transport that is closed."""
    told: list[str] = []

    async def linger(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        told.append((await receive())["type"])
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def leave() -> list[bool]:
        config = uvicorn.Config(linger, log_level="critical", lifespan="off")
        config.load()
        made: list[BoundedHttpProtocol] = []

        def connect() -> BoundedHttpProtocol:
            made.append(
                BoundedHttpProtocol(config=config, server_state=ServerState(), app_state={})
            )
            return made[0]

        server = await asyncio.get_running_loop().create_server(connect, "127.0.0.1", 0)
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write((GET + b"\r\n") * 3)
        await writer.drain()
        async with asyncio.timeout(10):
            while not made or not made[0].pipeline:
                await asyncio.sleep(0)
            writer.transport.abort()
            while not told:
                await asyncio.sleep(0.005)
        server.close()
        return [bool(made[0].pipeline), bool(made[0].tasks)]

    left, _ = run_async(leave())
    assert told == ["http.disconnect"]
    assert not left, "what was queued is answered by nobody"
