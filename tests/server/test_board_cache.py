"""Boards cached in front of the application: made once, the same answers, never an older board."""

import re
import time
from dataclasses import dataclass

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import select
from sqlalchemy.exc import OperationalError

from server.app import create_app, observed
from server.base.board_versions import (
    HINT,
    MOST_CHANGES,
    OVERHEAD_BYTES,
    BoardCache,
    BoardValues,
    VersionReader,
    changes_between,
    raise_board_version,
)
from server.base.database import Database
from server.base.http import FOR_PAGES, RequestMetrics
from server.base.models import Submission
from tests.support.both_databases import at_once
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


def ask(app, path, query=b"", headers=(), *, method="GET", host=b"testserver"):
    """What an application sends: status, headers in their order, and the body's bytes.

    An answer from the cache has no id of its own: no line speaks of it.
    """
    sent = []
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

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    run_async(app(scope, receive, send))
    body = b"".join(message.get("body", b"") for message in sent[1:])
    headers = [item for item in sent[0]["headers"] if item[0] != b"x-request-id"]
    return sent[0]["status"], headers, body


@pytest.fixture
def board(digits_submission, submit):
    for model in ("first", "second", "third"):
        digits_submission.claim["model"] = model
        assert submit(digits_submission).status_code == 201
    return BOARD


@pytest.fixture
def slow_app(settings):
    app = create_app(settings, dispatch=False)
    stack = FastAPI.build_middleware_stack(app)
    app.middleware_stack = observed(stack, app.state.services.of(RequestMetrics))
    with TestClient(app):
        yield app


@pytest.mark.usefixtures("board")
def test_every_answer_is_the_applications_own_to_the_byte(client, slow_app, database):
    fast = client.app
    for path, query in READS:
        for encodings in (None, b"br, gzip"):
            sent = [] if encodings is None else [(b"accept-encoding", encodings)]
            wanted = ask(slow_app, path, query, sent)
            assert ask(fast, path, query, sent) == wanted, "the first read"
            assert ask(fast, path, query, sent) == wanted, "a repeated read"
            mine = ask(slow_app, path, query, sent + PERSONAL)
            assert mine == (wanted[0], [h for h in wanted[1] if h not in FOR_PAGES], wanted[2])
            assert ask(fast, path, query, sent + PERSONAL) == mine, "somebody's own headers"
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
        for path in (BOARD, f"{BOARD}.csv", "/benchmarks/digits"):
            ask(fast, path)
        ask(fast, "/benchmarks/digits", b"metric=cost", PERSONAL)
    assert statements == []


@pytest.mark.usefixtures("board")
def test_not_modified_is_cached_from_the_first_time_on(client, database, slow_app):
    tag = dict(ask(slow_app, BOARD)[1])[b"etag"]
    first = ask(client.app, BOARD, b"", [(b"if-none-match", tag)])
    with statements_of(database) as statements:
        again = ask(client.app, BOARD, b"", [(b"if-none-match", tag)])
        whole = ask(client.app, BOARD)

    assert first == again
    assert (first[0], first[2], statements) == (304, b"", [])
    assert whole == ask(slow_app, BOARD)


@pytest.mark.usefixtures("board")
def test_a_long_query_and_a_request_with_a_body_are_not_cached(client, database):
    for query, headers in ((b"framework=" + b"x" * 3000, []), (b"", [(b"content-length", b"1")])):
        first = ask(client.app, BOARD, query, headers)
        with statements_of(database) as statements:
            again = ask(client.app, BOARD, query, headers)

        assert first == again
        assert first[0] == 200
        assert statements != []


@pytest.mark.usefixtures("board")
def test_a_cached_board_is_counted_and_leaves_no_line(client, caplog):
    ask(client.app, BOARD)
    before = client.get("/metrics").text
    with caplog.at_level("INFO", "server.access"):
        for _ in range(2):
            ask(client.app, BOARD)
    assert [record for record in caplog.records if record.name == "server.access"] == []
    after = client.get("/metrics").text

    counted = re.compile(r'^finishline_cached_boards_total\{status="200".* (\S+)$', re.MULTILINE)
    first, then = (sum(map(float, counted.findall(text))) for text in (before, after))
    assert then - first == 2


@pytest.mark.usefixtures("board")
def test_a_made_up_host_reaches_nobody_else(client, slow_app):
    for host in (b"evil.example/x?", b"evil.example", b"a b\\"):
        ask(client.app, BOARD, b"limit=2", host=host)
        assert ask(client.app, BOARD, b"limit=2") == ask(slow_app, BOARD, b"limit=2")


@pytest.mark.usefixtures("board")
@pytest.mark.parametrize("headers", [[], [(b"accept-encoding", b"gzip")]])
def test_acknowledged_write_of_another_process_is_shown(client, settings, headers):
    other = Database(settings.database_url)
    for path in (BOARD, f"{BOARD}.csv", "/benchmarks/digits"):
        first = ask(client.app, path, b"", headers)
        tag = dict(first[1])[b"etag"]
        for name in ("once", "twice"):
            with other.write() as session:
                for row in session.scalars(select(Submission)):
                    row.system = row.system | {"name": f"{name} {path}"}
                    row.tta_seconds += 1.0  # Which every format shows.
                raise_board_version(session, "digits")
            asked = [*headers, (b"if-none-match", tag)]
            again = ask(client.app, path, b"", asked)
            assert again[0] == 200
            tag = dict(again[1])[b"etag"]
            assert ask(client.app, path, b"", [*headers, (b"if-none-match", tag)])[0] == 304
    other.close()


@pytest.mark.usefixtures("board")
def test_a_database_that_is_away_is_told_at_once(client, monkeypatch):
    assert client.get(BOARD).status_code == 200

    def away(_, *_viewer):
        raise OperationalError("SELECT 1", {}, Exception("connection refused"))

    monkeypatch.setattr(Database, "read_snapshot", away)
    assert client.get(BOARD).status_code == 200
    monkeypatch.setattr(VersionReader, "read_now", lambda _self: None)
    assert client.get(BOARD).status_code == 503


def test_a_write_that_is_rolled_back_changes_nothing_that_is_known(board, client, database):
    first = client.get(board)
    with pytest.raises(RuntimeError, match="nothing of this"), database.write() as session:
        write_and_fail(session)
    with statements_of(database) as statements:
        again = client.get(board)

    assert (again.json(), statements) == (first.json(), [])


def write_and_fail(session):
    raise_board_version(session, "digits")
    raise RuntimeError("nothing of this is kept")


class Made:
    size, calls = 10000, 0

    def __init__(self, *, status=200, headers=(), hinted=True):
        self.start = {"type": "http.response.start", "status": status, "headers": [*headers]}
        self.hinted = hinted

    async def __call__(self, scope, _receive, send):
        self.calls += 1
        hint = scope[HINT]
        if self.hinted:
            hint.benchmark_id, hint.version, hint.etag = "digits", 1, 'W/"a"'
        await send(self.start)
        await send({"type": "http.response.body", "body": b"x" * self.size})


class AtVersion:
    async def read(self):
        return {"digits": 1}


def test_the_longest_unread_go_when_too_much_is_cached(monkeypatch):
    made = Made()
    monkeypatch.setattr("server.base.board_versions.MOST_BYTES", 2 * (made.size + OVERHEAD_BYTES))
    cache = BoardCache(made, AtVersion(), RequestMetrics())
    for query in (b"a", b"b", b"a", b"c", b"a"):
        ask(cache, BOARD, query)
    assert made.calls == 3
    ask(cache, BOARD, b"b")
    assert made.calls == 4


@pytest.mark.parametrize(
    "fault", [{"status": 503}, {"headers": [(b"set-cookie", b"a=b")]}, {"hinted": False}]
)
def test_other_responses_are_not_cached(fault):
    made = Made(**fault)
    cache = BoardCache(made, AtVersion(), RequestMetrics())
    for _ in range(2):
        ask(cache, BOARD)
    assert made.calls == 2


def test_of_many_changes_the_latest_are_known(database):
    with database.write() as session:
        for version in range(1, 2 * MOST_CHANGES + 1):
            raise_board_version(session, "digits", submission_id=f"s{version}")
    with database.read() as session:
        latest = changes_between(session, "digits", MOST_CHANGES, 2 * MOST_CHANGES)
        assert latest == {f"s{v}" for v in range(MOST_CHANGES + 1, 2 * MOST_CHANGES + 1)}
        assert changes_between(session, "digits", MOST_CHANGES - 1, MOST_CHANGES + 1) is None
        assert changes_between(session, "digits", 0, 2 * MOST_CHANGES) is None


@dataclass
class Weight:
    weight: int


def test_the_longest_unused_value_goes_when_all_grow_too_heavy():
    cache = BoardValues(10)
    for name in ("a", "b", "c"):
        cache.get(name, 1, lambda _: Weight(4))
        cache.get("a", 1, lambda _: Weight(100))
    assert [name for name in "abc" if cache.latest(name)] == ["a", "c"]
    cache.latest("a")[1].weight = 9  # It is weighed as what it has grown to.
    cache.get("d", 1, lambda _: Weight(3))
    assert [name for name in "acd" if cache.latest(name)] == ["d"]
    assert cache.get("e", 1, lambda _: Weight(50)) == Weight(50)


def test_many_who_ask_at_once_wait_for_one_who_makes_it():
    cache, made = BoardValues(10), []

    def make(_earlier):
        time.sleep(0.05)  # Long enough for all others to ask.
        made.append(True)

    asked = [lambda: cache.get("key", 1, make)] * 8
    assert at_once(*asked) == [None] * 8
    assert len(made) == 1
