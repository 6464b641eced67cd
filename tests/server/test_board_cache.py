"""Boards cached in front of the application: the same answers, and never an older board."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import update
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from server.app import create_app
from server.base.board_versions import VersionReader, raise_board_version
from server.base.database import Database
from server.base.models import Submission
from server.base.request_metrics import RequestMetrics
from server.base.settings import Settings
from server.boards.cache import HINT, OVERHEAD_BYTES, BoardCache
from server.operations.logs import Observed
from tests.support.loops import run_async
from tests.support.statements import statements_of

BOARD = "/api/v1/leaderboards/digits"
READS = [
    (BOARD, b""),
    (BOARD, b"limit=1"),
    (BOARD, b"limit=1&page=2"),
    (BOARD, b"sort=model&order=desc&division=closed"),
    (f"{BOARD}.csv", b""),
    ("/benchmarks/digits", b""),
    ("/benchmarks/digits", b"metric=cost"),
    (BOARD, b"price=3"),
    (BOARD, b"q=digits"),
    (BOARD, b"sort=nothing"),
    (BOARD, b"cursor=0.1"),
    ("/api/v1/leaderboards/nothing", b""),
    ("/benchmarks/nothing", b""),
    ("/benchmarks/digits/charts/pareto", b""),
    ("/benchmarks/digits/feed.atom", b""),
]
PERSONAL = [
    (b"cookie", b"session=anything; theme=dark"),
    (b"authorization", b"Bearer fl_nobody"),
    (b"accept-language", b"de"),
]
Answer = tuple[int, list[tuple[bytes, bytes]], bytes]


def ask(
    app: Any,
    path: str,
    query: bytes = b"",
    headers: Any = (),
    *,
    method: str = "GET",
    host: bytes = b"testserver",
) -> Answer:
    """What an application sends: status, headers in their order, and the body's bytes.

    An answer from the cache has no id of its own: no line speaks of it.
    """
    sent: list[Any] = []
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query,
        "headers": [(b"host", host), (b"x-request-id", b"of-the-test"), *headers],
        "client": ("127.0.0.1", 1),
        "server": ("testserver", 80),
    }

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    run_async(app(scope, receive, send))
    body = b"".join(message.get("body", b"") for message in sent[1:])
    headers = [item for item in sent[0]["headers"] if item[0] != b"x-request-id"]
    return sent[0]["status"], headers, body


@pytest.fixture
def board(digits_submission: Any, submit: Callable[..., Any]) -> str:
    """A board of three submissions."""
    for model in ("first", "second", "third"):
        digits_submission.claim["model"] = model
        assert submit(digits_submission).status_code == 201
    return BOARD


@pytest.fixture
def slow_app(settings: Settings) -> Iterator[FastAPI]:
    """The same server without the cache."""
    app = create_app(settings, dispatch=False)
    stack = FastAPI.build_middleware_stack(app)
    app.middleware_stack = Observed(stack, app.state.request_metrics)
    with TestClient(app):
        yield app


@pytest.mark.usefixtures("board")
def test_every_answer_is_the_applications_own_to_the_byte(
    client: TestClient, slow_app: FastAPI, database: Database
) -> None:
    fast = client.app
    for path, query in READS:
        for encodings in (None, b"br, gzip"):
            sent = [] if encodings is None else [(b"accept-encoding", encodings)]
            wanted = ask(slow_app, path, query, sent)
            assert ask(fast, path, query, sent) == wanted, "the first read"
            assert ask(fast, path, query, sent) == wanted, "a repeated read"
            assert ask(fast, path, query, sent + PERSONAL) == wanted, "somebody's own headers"
            assert ask(slow_app, path, query, sent + PERSONAL) == wanted, "the slow path's, too"
            head = ask(slow_app, path, query, sent, method="HEAD")
            assert ask(fast, path, query, sent, method="HEAD") == head
            tag = dict(wanted[1]).get(b"etag", b'"none"')
            for tags in (tag, b'"other", ' + tag.removeprefix(b"W/"), b'"other"', b"*"):
                asked = [*sent, (b"if-none-match", tags)]
                assert ask(fast, path, query, asked) == ask(slow_app, path, query, asked)
                known = ask(slow_app, path, query, asked, method="HEAD")
                assert ask(fast, path, query, asked, method="HEAD") == known
    for path, wanted in (
        ("/benchmarks/digits", {b"content-security-policy", b"referrer-policy"}),
        (BOARD, {b"x-total-count", b"link"}),
    ):
        status, headers, _ = ask(fast, path, b"limit=1")
        assert status == 200
        assert wanted | {b"x-content-type-options", b"vary", b"etag"} <= dict(headers).keys()
    with statements_of(database) as statements:
        ask(fast, BOARD)
        ask(fast, "/benchmarks/digits", b"metric=cost", PERSONAL)
    assert statements == []


@pytest.mark.usefixtures("board")
def test_not_modified_is_cached_from_the_first_time_on(
    client: TestClient, database: Database, slow_app: FastAPI
) -> None:
    tag = dict(ask(slow_app, BOARD)[1])[b"etag"]
    first = ask(client.app, BOARD, b"", [(b"if-none-match", tag)])
    with statements_of(database) as statements:
        again = ask(client.app, BOARD, b"", [(b"if-none-match", tag)])
        whole = ask(client.app, BOARD)

    assert first == again
    assert (first[0], first[2], statements) == (304, b"", [])
    assert whole == ask(slow_app, BOARD)


@pytest.mark.usefixtures("board")
@pytest.mark.parametrize(
    ("query", "headers"),
    [(b"framework=" + b"x" * 3000, []), (b"", [(b"content-length", b"1")])],
    ids=["a long query", "a request with a body"],
)
def test_a_long_query_and_a_request_with_a_body_are_not_cached(
    query: bytes, headers: list[tuple[bytes, bytes]], client: TestClient, database: Database
) -> None:
    first = ask(client.app, BOARD, query, headers)
    with statements_of(database) as statements:
        again = ask(client.app, BOARD, query, headers)

    assert first == again
    assert first[0] == 200
    assert statements != []


@pytest.mark.usefixtures("board")
def test_a_cached_board_is_counted_under_its_route(client: TestClient) -> None:
    counted = 'finishline_http_requests_total{method="GET",route="/api/v1/leaderboards/'
    before = client.get("/metrics").text
    for _ in range(3):
        client.get(BOARD)
    after = client.get("/metrics").text

    def count(text: str) -> float:
        lines = [line for line in text.splitlines() if line.startswith(counted)]
        return sum(float(line.split()[-1]) for line in lines)

    assert count(after) - count(before) == 3


@pytest.mark.usefixtures("board")
def test_a_cached_board_is_counted_and_timed_and_leaves_no_line(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    labels = 'method="GET",route="/api/v1/leaderboards/{benchmark_id}"'
    names = ("finishline_http_requests_total", "finishline_http_request_duration_seconds_count")
    ask(client.app, BOARD)
    before = client.get("/metrics").text
    with caplog.at_level("INFO", "server.access"):
        ask(client.app, BOARD)
    assert [record for record in caplog.records if record.name == "server.access"] == []
    after = client.get("/metrics").text

    for name in names:
        counts = [sample(text, name, labels) for text in (before, after)]
        assert counts[1] - counts[0] == 1


def sample(text: str, name: str, labels: str) -> float:
    """All samples of a name whose labels begin so."""
    lines = [line for line in text.splitlines() if line.startswith(f"{name}{{{labels}")]
    return sum(float(line.split()[-1]) for line in lines)


@pytest.mark.usefixtures("board")
def test_a_made_up_host_reaches_nobody_else(client: TestClient, slow_app: FastAPI) -> None:
    for host in (b"evil.example/x?", b"evil.example", b"a b\\"):
        ask(client.app, BOARD, b"limit=2", host=host)
        assert ask(client.app, BOARD, b"limit=2") == ask(slow_app, BOARD, b"limit=2")


@pytest.mark.usefixtures("board")
@pytest.mark.parametrize("headers", [[], [(b"accept-encoding", b"gzip")]])
def test_a_write_of_another_process_is_shown_from_the_moment_it_is_acknowledged(
    client: TestClient, settings: Settings, headers: list[tuple[bytes, bytes]]
) -> None:
    other = Database(settings.database_url)
    for path in (BOARD, f"{BOARD}.csv", "/benchmarks/digits"):
        first = ask(client.app, path, b"", headers)
        tag = dict(first[1])[b"etag"]
        for model in ("once", "twice"):
            with other.write() as session:
                session.execute(update(Submission).values(model=f"{model} {path}"))
                raise_board_version(session, "digits")
            asked = [*headers, (b"if-none-match", tag)]
            again = ask(client.app, path, b"", asked)
            assert again[0] == 200
            tag = dict(again[1])[b"etag"]
            assert ask(client.app, path, b"", [*headers, (b"if-none-match", tag)])[0] == 304
    other.close()


@pytest.mark.usefixtures("board")
def test_a_database_that_is_away_is_told_at_once(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.get(BOARD).status_code == 200

    def away(_: Database, *_viewer: object) -> None:
        raise OperationalError("SELECT 1", {}, Exception("connection refused"))

    monkeypatch.setattr(Database, "read_snapshot", away)
    assert client.get(BOARD).status_code == 200
    monkeypatch.setattr(VersionReader, "read_now", lambda _self: None)
    assert client.get(BOARD).status_code == 503


def test_a_write_that_is_rolled_back_changes_nothing_that_is_known(
    board: str, client: TestClient, database: Database
) -> None:
    first = client.get(board)
    with pytest.raises(RuntimeError, match="nothing of this"), database.write() as session:
        write_and_fail(session)
    with statements_of(database) as statements:
        again = client.get(board)

    assert (again.json(), statements) == (first.json(), [])


def write_and_fail(session: Session) -> None:
    """A write whose transaction is rolled back."""
    raise_board_version(session, "digits")
    raise RuntimeError("nothing of this is kept")


class Made:
    """An application that answers everything with a board, and counts how often."""

    def __init__(self, *headers: tuple[bytes, bytes], size: int = 10_000) -> None:
        self.headers = list(headers)
        self.size = size
        self.calls = 0

    async def __call__(self, scope: Any, _receive: Any, send: Any) -> None:
        self.calls += 1
        hint = scope[HINT]
        hint.benchmark_id, hint.version, hint.etag = "digits", 1, 'W/"a"'
        await send({"type": "http.response.start", "status": 200, "headers": self.headers})
        await send({"type": "http.response.body", "body": b"x" * self.size})


class AtVersion:
    """A reader of versions that always finds the first."""

    async def read(self) -> dict[str, int]:
        return {"digits": 1}


def cached(made: Made) -> BoardCache:
    """The cache in front of such an application."""
    reader: Any = AtVersion()
    return BoardCache(made, reader, RequestMetrics())


def test_an_answer_that_sets_a_cookie_is_one_readers() -> None:
    made = Made((b"set-cookie", b"session=1"))
    cache = cached(made)
    for _ in range(3):
        assert ask(cache, BOARD)[0] == 200
    assert made.calls == 3


def test_the_longest_unread_go_when_too_much_is_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made()
    monkeypatch.setattr("server.boards.cache.MOST_BYTES", 2 * (made.size + OVERHEAD_BYTES))
    cache = cached(made)
    for query in (b"a", b"b", b"a", b"c", b"a"):
        ask(cache, BOARD, query)
    assert made.calls == 3
    ask(cache, BOARD, b"b")
    assert made.calls == 4
