"""Boards answered in front of the application: the same answers, and never an older board."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from server.app import create_app
from server.board_versions import KnownVersions, known_versions, raise_board_version
from server.boards.fast_path import FastPath
from server.boards.lessons import LESSON
from server.boards.watch import VersionWatch
from server.database import Database
from server.operations.logs import Observed
from server.request_metrics import RequestMetrics
from server.settings import Settings
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

    An answer that was kept has no id of its own: no line speaks of it.
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
def board(digits_submission: Any, submit: Callable[..., Any], database: Database) -> str:
    """A board of three submissions; what is known of its version stays fresh for a minute."""
    known_versions(database.engine).fresh_seconds = 60.0
    for model in ("first", "second", "third"):
        digits_submission.claim["model"] = model
        assert submit(digits_submission).status_code == 201
    return BOARD


@pytest.fixture
def slow_app(settings: Settings) -> Iterator[FastAPI]:
    """The same server without the fast path."""
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
def test_what_is_known_is_said_without_the_database_from_the_first_time_on(
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
    [
        (b"price=3", []),
        (b"q=first", []),
        (b"framework=" + b"x" * 3000, []),
        (b"", [(b"content-length", b"1")]),
    ],
    ids=["a price of one's own", "words of one's own", "a long query", "a request with a body"],
)
def test_what_only_one_asks_for_is_not_kept(
    query: bytes, headers: list[tuple[bytes, bytes]], client: TestClient, database: Database
) -> None:
    first = ask(client.app, BOARD, query, headers)
    with statements_of(database) as statements:
        again = ask(client.app, BOARD, query, headers)

    assert first == again
    assert first[0] == 200
    assert statements != []


@pytest.mark.usefixtures("board")
def test_what_the_fast_path_answers_is_counted_under_its_route(client: TestClient) -> None:
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
def test_a_kept_board_is_counted_timed_and_written_down_at_debug_alone(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    labels = 'method="GET",route="/api/v1/leaderboards/{benchmark_id}"'
    names = ("finishline_http_requests_total", "finishline_http_request_duration_seconds_count")
    ask(client.app, BOARD)
    before = client.get("/metrics").text
    for level, lines in (("INFO", 0), ("DEBUG", 1)):
        caplog.clear()
        with caplog.at_level(level, "server.access"):
            ask(client.app, BOARD)
        assert len(caplog.records) == lines
    after = client.get("/metrics").text

    for name in names:
        counts = [sample(text, name, labels) for text in (before, after)]
        assert counts[1] - counts[0] == 2


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
def test_another_process_writes_and_is_seen_once_its_version_is_read(
    client: TestClient, settings: Settings, database: Database
) -> None:
    before = client.get(BOARD).json()["version"]
    other = Database(settings.database_url)
    with other.write() as session:
        raise_board_version(session, "digits")
    other.close()
    known = known_versions(database.engine)

    assert client.get(BOARD).json()["version"] == before
    VersionWatch(database).ask_once()
    assert client.get(BOARD).json()["version"] == before + 1
    known.fresh_seconds = 0.0
    with database.write() as session:
        raise_board_version(session, "digits")
    assert client.get(BOARD).json()["version"] == before + 2


@pytest.mark.usefixtures("board")
def test_one_query_never_shows_a_board_before_the_one_another_query_showed(
    client: TestClient, settings: Settings
) -> None:
    before = client.get(BOARD).json()["version"]
    other = Database(settings.database_url)
    with other.write() as session:
        raise_board_version(session, "digits")
    other.close()

    assert client.get(BOARD, params={"limit": 2}).json()["version"] == before + 1
    assert client.get(BOARD).json()["version"] == before + 1


@pytest.mark.usefixtures("board")
def test_a_database_that_is_away_is_told_as_soon_as_nothing_fresh_is_known(
    client: TestClient, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.get(BOARD).status_code == 200

    def away(_: Database, *_viewer: object) -> None:
        raise OperationalError("SELECT 1", {}, Exception("connection refused"))

    monkeypatch.setattr(Database, "read_snapshot", away)
    assert client.get(BOARD).status_code == 200
    known_versions(database.engine).fresh_seconds = 0.0
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


def test_an_older_read_that_ends_late_takes_nothing_back() -> None:
    known = KnownVersions()
    began = time.monotonic()
    known.note("digits", 4, asked_at=began)
    known.note_write("digits", 5)
    known.note_all({"digits": 4}, asked_at=began)

    assert known.is_current("digits", 5, began)
    assert not known.is_current("digits", 4, began)


def test_a_database_restored_from_a_copy_is_believed() -> None:
    known, now = KnownVersions(), time.monotonic()
    known.note("digits", 5, asked_at=now)
    known.note_all({"digits": 3}, asked_at=now + 0.001)

    assert known.is_current("digits", 3, now + 0.002)


def test_a_board_is_current_by_fresh_knowledge_alone() -> None:
    known, now = KnownVersions(fresh_seconds=0.25), time.monotonic()
    known.note("digits", 5, asked_at=now - 0.3)
    assert not known.is_current("digits", 5, now)
    known.note_write("digits", 5)
    assert not known.is_current("digits", 5, now), "a write says nothing of what others wrote since"
    known.note("digits", 5, asked_at=now)
    assert known.is_current("digits", 5, now + 0.2)
    assert not known.is_current("digits", 5, now + 0.3)
    assert not known.is_current("cifar10", 0, now)


def test_versions_are_asked_for_while_boards_are_read_and_not_without(
    client: TestClient, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.boards.watch.IDLE_SECONDS", 0.2)
    monkeypatch.setattr("server.boards.watch.INTERVAL_SECONDS", 0.01)
    watch = VersionWatch(database)
    with statements_of(database) as statements:
        watch.start()
        assert statements == []
        wait_until(lambda: watch.want(time.monotonic()) or len(statements) >= 6)  # type: ignore[func-returns-value]
        wait_until(lambda: not watch._is_wanted())
        wait_until(lambda: is_quiet(statements))
        watch.want(time.monotonic())
        before = len(statements)
        wait_until(lambda: len(statements) > before)
        watch.stop()
    assert not watch._thread.is_alive()
    assert all("FROM boards" in text for text in statements if not text.startswith("BEGIN"))


def wait_until(condition: Callable[[], Any]) -> None:
    """Poll for up to ten seconds."""
    deadline = time.monotonic() + 10.0
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        threading.Event().wait(0.005)


def is_quiet(statements: list[str]) -> bool:
    """Whether nothing was sent for ten intervals."""
    count = len(statements)
    threading.Event().wait(0.1)
    return len(statements) == count


class Made:
    """An application that answers everything with a board, and counts how often."""

    def __init__(self, *headers: tuple[bytes, bytes], size: int = 10_000) -> None:
        self.headers = list(headers)
        self.size = size
        self.calls = 0

    async def __call__(self, scope: Any, _receive: Any, send: Any) -> None:
        self.calls += 1
        lesson = scope[LESSON]
        lesson.benchmark_id, lesson.version, lesson.etag = "digits", 1, 'W/"a"'
        lesson.is_kept = True
        await send({"type": "http.response.start", "status": 200, "headers": self.headers})
        await send({"type": "http.response.body", "body": b"x" * self.size})


def fast(made: Made, database: Database, **limits: int) -> FastPath:
    """The fast path in front of such an application."""
    known = KnownVersions(fresh_seconds=60.0)
    known.note("digits", 1, asked_at=time.monotonic())
    return FastPath(
        made, known=known, watch=VersionWatch(database), metrics=RequestMetrics(), **limits
    )


def test_an_answer_that_sets_a_cookie_is_one_persons(database: Database) -> None:
    made = Made((b"set-cookie", b"session=1"))
    path = fast(made, database)
    for _ in range(3):
        assert ask(path, BOARD)[0] == 200
    assert made.calls == 3


def test_the_longest_unread_go_when_too_much_is_kept(database: Database) -> None:
    made = Made()
    path = fast(made, database, most_bytes=25_000)
    for query in (b"a", b"b", b"a", b"c", b"a"):
        ask(path, BOARD, query)
    assert made.calls == 3
    ask(path, BOARD, b"b")
    assert made.calls == 4


class AskedWatch:
    """A watch that nobody gives time: it learns a version when it is asked to, and counts."""

    def __init__(self, known: KnownVersions, version: int) -> None:
        self.known = known
        self.version = version
        self.asked = 0

    def want(self, now: float) -> None:
        """Nothing is done in the background."""

    def try_once(self) -> None:
        self.asked += 1
        self.known.note("digits", self.version, asked_at=time.monotonic())


@pytest.mark.parametrize(("version", "made_again"), [(1, 0), (2, 5)])
def test_many_whose_board_is_only_old_ask_once_for_its_version(
    version: int, made_again: int
) -> None:
    known, made = KnownVersions(fresh_seconds=60.0), Made()
    watch: Any = AskedWatch(known, version)
    path = FastPath(made, known=known, watch=watch, metrics=RequestMetrics())
    known.note("digits", 1, asked_at=time.monotonic())
    ask(path, BOARD)
    known._boards.clear()
    known.note("digits", 1, asked_at=time.monotonic() - 100.0)

    async def many() -> None:
        await asyncio.gather(*(path(board_scope(), no_body, discard) for _ in range(5)))

    run_async(many())
    assert (watch.asked, made.calls) == (1, 1 + made_again)


def board_scope() -> dict[str, Any]:
    """A read of the board."""
    return {"type": "http", "method": "GET", "path": BOARD, "query_string": b"", "headers": []}


async def no_body() -> Any:
    return {"type": "http.request", "body": b"", "more_body": False}


async def discard(_message: Any) -> None:
    """Nobody listens."""
