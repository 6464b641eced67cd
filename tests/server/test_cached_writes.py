"""Cached boards that the protocol writes itself, and encodings and tags as RFC 9110 writes them."""

import asyncio
import re
from contextlib import asynccontextmanager

import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from server.base.board_versions import raise_board_version
from server.base.middleware import by_name, is_known, takes_gzip
from server.operations.heads import BoundedHttpProtocol
from tests.support.loops import run_async

BOARD = b"/api/v1/leaderboards/digits"


LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n")


REQUEST_ID = re.compile(rb'x-request-id: \S+\r\n|"request_id":"[^"]+"')


def request(method=b"GET", path=BOARD, *lines, http=b"1.1"):
    """The bytes of a request without a body."""
    head = [method + b" " + path + b" HTTP/" + http, b"Host: testserver", *lines]
    return b"\r\n".join([*head, b"", b""])


@asynccontextmanager
async def connected(protocol, app, *, keep_alive_seconds=5):
    """A connection to a server that speaks a protocol, with the headers it gives every answer."""
    config = uvicorn.Config(
        app, log_level="critical", lifespan="off", timeout_keep_alive=keep_alive_seconds
    )
    config.load()
    state = ServerState()
    state.default_headers = [(b"server", b"ours")]
    server = await asyncio.get_running_loop().create_server(
        lambda: protocol(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    try:
        yield reader, writer
    finally:
        writer.close()
        await writer.wait_closed()
        server.close()


async def answers(connection, *requests):
    """The answers to requests that are sent in one piece; ids of requests are left out."""
    reader, writer = connection
    writer.write(b"".join(requests))
    found = []
    async with asyncio.timeout(20):
        for asked in requests:
            head = await reader.readuntil(b"\r\n\r\n")
            length = LENGTH.search(head)
            is_bare = asked.startswith(b"HEAD") or head.startswith(b"HTTP/1.1 304")
            body = b"" if length is None or is_bare else await reader.readexactly(int(length[1]))
            found.append(REQUEST_ID.sub(b"", head + body))
    return found


@pytest.fixture
def app(digits_submission, submit, client):
    """A server whose board is cached."""
    assert submit(digits_submission).status_code == 201
    for headers in ({}, {"Accept-Encoding": "identity"}):
        assert client.get(BOARD.decode(), headers=headers).status_code == 200
    return client.app


@pytest.fixture
def tasks(monkeypatch):
    """The paths of the requests that went to the application in a task."""
    found = []
    start = HttpToolsProtocol._start_asgi_task

    def noted(self, cycle, app):
        found.append(cycle.scope["raw_path"])
        start(self, cycle, app)

    monkeypatch.setattr(HttpToolsProtocol, "_start_asgi_task", noted)
    return found


def test_a_cached_board_is_written_as_uvicorn_would_send_it(app, client, tasks):
    etag = client.get(BOARD.decode()).headers["etag"].encode()
    kept = [
        request(),
        request(b"HEAD"),
        request(b"GET", BOARD, b"Accept-Encoding: gzip"),
        request(b"GET", BOARD, b"If-None-Match: " + etag),
        request(b"HEAD", BOARD, b"If-None-Match: " + etag),
    ]
    others = [
        request(b"GET", b"/healthz"),
        request(b"GET", b"/api/v1/leaderboards/nothing"),
        request(b"GET", BOARD, b"Content-Length: 0"),
    ]
    ends = [request(b"GET", BOARD, b"Connection: close"), request(http=b"1.0")]

    async def ask(protocol):
        found = []
        async with connected(protocol, app) as connection:
            for one in kept + others:
                found += await answers(connection, one)
        for one in ends:
            async with connected(protocol, app) as connection:
                found += await answers(connection, one)
                assert await connection[0].read() == b""
        return found

    expected = run_async(ask(HttpToolsProtocol))
    tasks.clear()
    assert run_async(ask(BoundedHttpProtocol)) == expected
    assert len(tasks) == len(others) + len(ends)
    statuses = [one.split(b" ", 2)[1] for one in expected]
    assert statuses == [b"200"] * 3 + [b"304"] * 2 + [b"200", b"404"] + [b"200"] * 3


def test_requests_sent_together_are_answered_in_their_order(app, tasks):
    together = [request(), request(b"GET", b"/healthz"), *[request()] * 50, request(b"HEAD")]

    async def ask():
        async with connected(BoundedHttpProtocol, app) as connection:
            alone = [(await answers(connection, one))[0] for one in together]
            tasks.clear()
            return alone, await answers(connection, *together)

    alone, found = run_async(ask())
    assert found == alone
    # All but the one that is no board: each waits in uvicorn's queue for its turn.
    assert len(tasks) == 1


def test_a_connection_does_not_end_while_what_came_with_a_cached_board_is_answered(app):
    """It ends when nothing was asked for so long: here at once, and a thread answers later."""
    together = [request(), request(b"GET", BOARD, b"Content-Length: 0")]

    async def ask(protocol):
        async with connected(protocol, app, keep_alive_seconds=0) as connection:
            found = await answers(connection, *together)
            assert await connection[0].read() == b""
            return found

    assert run_async(ask(BoundedHttpProtocol)) == run_async(ask(HttpToolsProtocol))


def test_the_board_after_a_write_is_the_one_that_was_written(app, client, database, tasks):
    async def ask():
        found = []
        async with connected(BoundedHttpProtocol, app) as connection:
            for _ in range(3):
                found += await answers(connection, request())
                await asyncio.to_thread(write)
            return found

    def write():
        with database.write() as session:
            raise_board_version(session, "digits")

    found = run_async(ask())
    versions = [int(re.findall(rb'"version":(\d+)', one)[0]) for one in found]
    assert versions == [versions[0], versions[0] + 1, versions[0] + 2]
    assert len(tasks) == 2
    counted = client.get("/metrics").text
    name = 'finishline_http_requests_total{method="GET",route="/api/v1/leaderboards/{benchmark_id}"'
    (line,) = [one for one in counted.splitlines() if one.startswith(name)]
    assert float(line.split()[-1]) == 2 + len(found)


@pytest.mark.parametrize(
    ("encodings", "is_taken"),
    [
        (b"compress, gzip", True),
        (b"", False),
        (b"*", True),
        (b"compress;q=0.5, gzip;q=1.0", True),
        (b"gzip;q=1.0, identity; q=0.5, *;q=0", True),
        (b"gzip;q=0", False),
        (b"br, GZIP ; Q=0.000", False),
        (b"*;q=0, br", False),
        (b"gzip;q=0, *", False),
        (b"x-gzip", True),
        (b"br, gzipped", False),
        (b"gzip;q=much", False),
    ],
)
def test_gzip_is_taken_where_it_is_named_with_a_weight(encodings, is_taken):
    assert takes_gzip(encodings) is is_taken


@pytest.mark.parametrize(
    ("tags", "is_same"),
    [
        (b'W/"xyzzy"', True),
        (b'"xyzzy"', True),
        (b'"r2d2xxxx", W/"xyzzy","c3piozzzz"', True),
        (b"*", True),
        (b'"r2d2xxxx"', False),
        (b"xyzzy", False),
    ],
)
def test_tags_are_compared_weakly_and_a_star_is_any(tags, is_same):
    assert is_known(tags, 'W/"xyzzy"') is is_same


def test_lines_of_one_header_are_one_list():
    headers = [(b"if-none-match", b'"a"'), (b"host", b"h"), (b"if-none-match", b'"b"')]
    assert by_name(headers) == {b"if-none-match": b'"a", "b"', b"host": b"h"}
