"""Rate limits: whose they are, which holds, and what the refusal says."""

import asyncio
from collections import Counter

import pytest
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from server.app import create_app
from server.base.http import RequestMetrics
from server.base.settings import Settings
from server.operations.limits import Limits, is_free, is_one_at_a_time, rate_of


@pytest.fixture
def settings(settings):
    limits = {"rate_limits": True, "rate_reads": "5/hour", "rate_writes": "3/hour"}
    return settings.model_copy(update=limits)


def read(client, **headers):
    return client.get("/api/v1/me", headers=headers).status_code


def read_openly(client, **headers):
    return client.get("/api/v1/prices", headers=headers)


def test_a_refusal_says_which_limit_and_when_again(client):
    assert [read_openly(client).status_code for _ in range(5)] == [200] * 5
    refused = read_openly(client)

    assert refused.status_code == 429
    assert refused.headers["content-type"] == "application/problem+json"
    wait = int(refused.headers["Retry-After"])
    assert 1 <= wait <= 3600
    assert refused.headers["RateLimit-Policy"] == '"reads";q=5;w=3600'
    assert refused.headers["RateLimit"] == f'"reads";r=0;t={wait}'
    assert refused.headers["X-Content-Type-Options"] == "nosniff"
    problem = refused.json()
    assert problem["request_id"] == refused.headers["X-Request-ID"]
    assert "5 per hour" in problem["detail"]
    assert f"try again in {wait} s" in problem["detail"]
    # Whoever watches the server has no limit.
    assert {client.get("/healthz").status_code for _ in range(8)} == {200}
    page = client.get("/workers", headers={"Accept": "text/html"})
    assert (page.status_code, page.headers["content-type"][:9]) == (429, "text/html")
    scraped = client.get("/metrics").text
    assert 'finishline_requests_limited_total{limit="reads"} 2.0' in scraped
    assert 'finishline_requests_limited_total{limit="writes"} 0.0' in scraped


def test_a_good_token_has_its_own_limits(client, alice, bob):
    assert [read(client, **alice.headers) for _ in range(6)] == [200] * 6
    assert read(client, **alice.headers) == 429  # 1 of the address, before it was known, and 5.
    assert [read(client, **bob.headers) for _ in range(6)] == [200] * 6
    assert read(client, **bob.headers) == 429

    made_up = [read(client, Authorization=f"Bearer fl_made-up-{n}") for n in range(4)]
    assert made_up == [401, 401, 401, 429]


def test_all_tokens_and_sessions_of_an_account_have_one_limit(client, alice, bob):
    made = [
        client.post("/api/v1/me/tokens", json={"label": f"{n}"}, headers=alice.headers).json()
        for n in range(2)
    ]
    second, third = ({"Authorization": f"Bearer {one['token']}"} for one in made)
    # The first read of each counts for the address: only its response shows that it is good.
    assert [read(client, **second), read(client, **third)] == [200, 200]

    assert [read(client, **second) for _ in range(3)] == [200] * 3
    assert [read(client, **third) for _ in range(3)] == [200, 200, 429]
    assert read(client, **second) == 429
    assert [read(client, **bob.headers) for _ in range(3)] == [200] * 3


def test_a_token_that_only_reads_what_is_public_is_known_too(client, alice):
    def list_submissions(**headers):
        return client.get("/api/v1/submissions", headers=headers).status_code

    assert [list_submissions(**alice.headers) for _ in range(7)] == [200] * 6 + [429]
    assert [list_submissions() for _ in range(5)] == [200] * 4 + [429]


def test_a_made_up_token_beside_a_good_session_is_no_good_one(client, alice):
    """Else whoever is signed in would make up limits of their own, one set with each page."""
    origin = {"Origin": "http://testserver"}
    fields = {"token": alice.secret}
    signed_in = client.post("/console/sign-in", data=fields, headers=origin, follow_redirects=False)
    assert signed_in.status_code == 303
    made_up = {"Authorization": "Bearer fl_made-up"}
    assert client.get("/account", headers=made_up).status_code == 200
    client.cookies.clear()

    asked = [read_openly(client, **made_up).status_code for _ in range(6)]
    assert asked == [200] * 4 + [429] * 2  # The page was read from this address too.


def test_the_token_of_an_attempt_is_good_once_a_post_with_it_was_taken():
    """It is no user's token: what tells that it is good is that the attempt takes the post."""
    status = 200

    async def attempt(request):
        return Response(status_code=status)

    routes = [Route("/api/v1/attempts/a/events", attempt, methods=["GET", "POST"])]
    limits = Settings(rate_worker_posts="3/hour", rate_reads="3/hour")
    app = Limits(Starlette(routes=routes), settings=limits, metrics=RequestMetrics())
    client = TestClient(app)

    def ask(method, token, *, times):
        headers = {"Authorization": f"Bearer {token}"}
        address = "/api/v1/attempts/a/events"
        return [client.request(method, address, headers=headers).status_code for _ in range(times)]

    # One of the address, before it was known, and three of its own.
    assert ask("POST", "fla_good", times=5) == [200] * 4 + [429]
    status = 409
    assert ask("POST", "fla_late", times=3) == [409] * 2 + [429]
    status = 200
    assert ask("GET", "fla_reads", times=4) == [200] * 3 + [429]


def test_writes_have_a_limit_of_their_own_and_workers_another(client, walter):
    writes = [client.post("/api/v1/tokens", json={}).status_code for _ in range(4)]
    assert writes == [401, 401, 401, 429]
    address, headers = (
        "/api/v1/attempts/none/evaluations",
        walter.headers | {"Finishline-Fence": "1"},
    )
    posts = [client.post(address, json={"events": []}, headers=headers) for _ in range(20)]
    assert {answer.status_code for answer in posts} == {404}


def test_without_rate_limits_nothing_is_counted(settings):
    free = settings.model_copy(update={"rate_limits": False})
    with TestClient(create_app(free, dispatch=False)) as client:
        assert {read_openly(client).status_code for _ in range(9)} == {200}


@pytest.mark.parametrize(
    ("method", "path", "role", "name"),
    [
        ("GET", "/healthz", None, None),
        ("GET", "/readyz", None, None),
        ("GET", "/metrics", None, None),
        ("GET", "/favicon.ico", None, None),
        ("GET", "/robots.txt", None, None),
        ("HEAD", "/healthz", None, None),
        ("OPTIONS", "/api/v1/submissions", None, "reads"),
        ("GET", "/static/style.css", None, None),
        ("GET", "/docs-assets/swagger-ui.css", None, None),
        ("GET", "/statics", None, "reads"),
        ("POST", "/healthz", None, "writes"),
        ("GET", "/api/v1/submissions", None, "reads"),
        ("POST", "/api/v1/submissions", None, "writes"),
        ("GET", "/join/7-x", None, "reads"),
        ("POST", "/join/7-x", None, "reads"),
        ("DELETE", "/api/v1/tokens/7", None, "writes"),
        ("POST", "/api/v1/attempts/a/report", None, "worker_posts"),
        ("POST", "/api/v1/workers/hello", None, "worker_posts"),
        ("POST", "/api/v1/workers/probes", None, "worker_posts"),
        ("POST", "/api/v1/workers/w/baseline", None, "writes"),
        ("GET", "/api/v1/workers/hello", None, "reads"),
        # An import is many writes.
        ("POST", "/api/v1/submissions", "submitter", "writes"),
        ("POST", "/api/v1/submissions", "worker", "writes"),
        ("POST", "/api/v1/submissions", "organiser", None),
        ("POST", "/api/v1/submissions", "admin", None),
        ("GET", "/api/v1/submissions", "organiser", "reads"),
        ("POST", "/api/v1/attempts/a/report", "organiser", "worker_posts"),
    ],
)
def test_the_limit_follows_from_method_address_and_role(method, path, role, name):
    scope = asked(path, method)
    assert (None if is_free(scope) else rate_of(scope, role)) == name


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("/api/v1/verifications/v/proof", True),
        ("/api/v1/verifications/v/events", False),
        ("/benchmarks/digits/charts/times", True),
        ("/api/v1/submissions/s/runs.json", True),
        ("/api/v1/submissions/s/runs/0/log.json", True),
        ("/api/v1/prices.csv", True),
        ("/benchmarks/digits/convergence", True),
        ("/compare", True),
        ("/benchmarks/digits?division=open", False),
        ("/benchmarks/digits?division=open&target=90", True),
        ("/api/v1/leaderboards/digits?clock=dawnbench", True),
        ("/api/v1/leaderboards/digits?%70rice=3", True),
        ("/api/v1/leaderboards/digits?prices_on=2026-01-01", True),
    ],
)
def test_a_read_of_many_rows_is_one_at_a_time(address, expected):
    assert is_one_at_a_time(asked(address), None) is expected


def asked(address, method="GET", *, by="anybody", body=False):
    path, _, query = address.partition("?")
    headers = [(b"content-length", b"1")] if body else []
    known = {"type": "http", "method": method, "headers": headers, "client": (by, 1)}
    return known | {"path": path, "query_string": query.encode()}


def test_expensive_requests_of_a_reader_are_worked_on_one_at_a_time():
    busy, most, answered = Counter(), Counter(), Counter()

    async def work(scope, _receive, send):
        each = scope["client"][0], scope["path"]
        busy[each] += 1
        most[each] = max(most[each], busy[each])
        await asyncio.sleep(0.01)
        busy[each] -= 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body"})

    async def send(message):
        answered[message.get("status")] += 1

    async def ask_all():
        app = Limits(work, settings=Settings(), metrics=RequestMetrics())
        scopes = [asked(f"/benchmarks/digits?target={n}", by="ann") for n in range(120)]
        scopes += [asked("/compare", by="bob")] * 3 + [asked("/benchmarks/text", by="ann")] * 3
        await asyncio.gather(*(app(each, None, send) for each in scopes))

    asyncio.run(ask_all())

    of_ann = {("ann", "/benchmarks/digits"): 1, ("ann", "/benchmarks/text"): 3}
    assert most == of_ann | {("bob", "/compare"): 1}
    assert (answered[200], answered[429]) == (106, 20)


async def post_beside_a_read(path):
    """Eve posts ten times at once to a server of two slots; the most at work, and bob's status."""
    at_work, most, posted = 0, 0, asyncio.Event()
    statuses = {}

    async def work(scope, receive, send):
        nonlocal at_work, most
        if scope["method"] == "POST":
            await receive()
            at_work += 1
            most = max(most, at_work)
            await posted.wait()
            at_work -= 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body"})

    async def receive():
        return {"type": "http.request", "body": b"-", "more_body": False}

    async def ask(scope):
        async def send(message):
            statuses.setdefault(scope["client"][0], message.get("status"))

        await app(scope, receive, send)

    settings = Settings(max_requests_in_work=2, max_wait_seconds=0.2)
    app = Limits(work, settings=settings, metrics=RequestMetrics())
    posts = [asyncio.create_task(ask(asked(path, "POST", by="eve", body=True))) for _ in range(10)]
    await asyncio.sleep(0)
    await ask(asked("/benchmarks/digits", by="bob"))
    posted.set()
    async with asyncio.timeout(10):
        await asyncio.gather(*posts)
    return most, statuses["bob"]


@pytest.mark.parametrize("path", ["/submit", "/submit/send", "/api/v1/submissions"])
def test_submissions_of_one_account_that_wait_leave_the_server_to_others(path):
    assert asyncio.run(post_beside_a_read(path)) == (1, 200)


def test_next_expensive_request_begins_with_the_response_of_the_one_before():
    """A download may be read for minutes."""
    begun = []

    async def ask_both():
        read = asyncio.Event()

        async def work(scope, _receive, send):
            begun.append(scope["path"])
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await read.wait()

        async def send(_message):
            if len(begun) == 2:
                read.set()

        app = Limits(work, settings=Settings(), metrics=RequestMetrics())
        async with asyncio.timeout(10):
            await asyncio.gather(*(app(asked("/x.csv"), None, send) for _ in range(2)))

    asyncio.run(ask_both())

    assert begun == ["/x.csv"] * 2


def test_a_count_holds_so_many_keys(monkeypatch):
    monkeypatch.setattr("server.operations.limits.MOST_KEYS", 8)
    statuses = set()

    async def work(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message):
        statuses.add(message["status"])

    limits = Limits(work, settings=Settings(rate_reads="4/day"), metrics=RequestMetrics())
    for number in range(100):
        asyncio.run(limits(asked("/", by=f"198.51.100.{number}"), None, send))
        assert len(limits.counts.storage) <= 8
    assert statuses == {200}


def test_of_the_secrets_the_latest_are_known(client, alice, bob, monkeypatch):
    monkeypatch.setattr("server.operations.limits.MOST_KNOWN", 1)
    assert [read(client, **alice.headers), read(client, **bob.headers)] == [200, 200]
    assert [read(client) for _ in range(4)] == [401] * 3 + [429]  # Five of the address in all.
    assert read(client, **alice.headers) == 429
    assert read(client, **bob.headers) == 200
