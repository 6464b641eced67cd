"""Rate limits: whose they are, which holds, what the refusal says, and what if Redis is away."""

import logging
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi.testclient import TestClient
from prometheus_client import CollectorRegistry
from starlette.types import Message, Receive, Scope, Send

from finishline.cli.up.paths import prepare_var
from finishline.cli.up.redis import RedisAddress, redis_answers, redis_command
from server.app import create_app
from server.limits.kinds import Kind, kind_of
from server.limits.memory import BoundedMemory
from server.limits.metrics import LimitMetrics
from server.limits.rate_limiting import RateLimiting
from server.limits.rates import RateLimits, bucket_of
from server.limits.requesters import KnownSecrets, Requester
from server.settings import Settings
from tests.support.loops import run_async
from tests.support.processes import free_port, stop, wait_for


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Limits that a test reaches."""
    return settings.model_copy(
        update={
            "rate_limits": True,
            "rate_reads": "5/hour",
            "rate_expensive_reads": "2/hour",
            "rate_writes": "3/hour",
            "rate_failed_sign_ins": "4/hour",
        }
    )


@pytest.fixture
def within_one_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    """The middle of an hour: where one ends, a part of what was counted in it is let go."""
    middle = time.time() // 3600 * 3600 + 1800.0
    clock = SimpleNamespace(time=lambda: middle, monotonic=time.monotonic)
    monkeypatch.setattr("server.limits.rates.time", clock)
    defaults = BoundedMemory.__init__.__kwdefaults__ or {}
    monkeypatch.setitem(defaults, "clock", clock.time)


def read(client: TestClient, **headers: str) -> int:
    return client.get("/api/v1/me", headers=headers).status_code


def read_openly(client: TestClient, **headers: str) -> Any:
    return client.get("/api/v1/prices", headers=headers)


@pytest.mark.usefixtures("within_one_hour")
def test_a_refusal_says_which_limit_and_when_again(client: TestClient) -> None:
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
    assert "5 per 1 hour" in problem["detail"]
    assert f"try again in {wait} s" in problem["detail"]
    # Another kind has a limit of its own, whoever watches the server has none.
    assert client.get("/api/v1/prices.csv").status_code == 200
    assert {client.get("/healthz").status_code for _ in range(8)} == {200}
    page = client.get("/workers", headers={"Accept": "text/html"})
    assert (page.status_code, page.headers["content-type"][:9]) == (429, "text/html")
    scraped = client.get("/metrics").text
    assert 'finishline_requests_limited_total{limit="reads"} 2.0' in scraped
    assert 'finishline_requests_limited_total{limit="writes"} 0.0' in scraped


@pytest.mark.usefixtures("within_one_hour")
def test_a_good_token_has_limits_of_its_own_and_a_made_up_one_those_of_its_address(
    client: TestClient, alice: Any, bob: Any
) -> None:
    assert [read(client, **alice.headers) for _ in range(6)] == [200] * 6
    assert read(client, **alice.headers) == 429  # 1 of the address, before it was known, and 5.
    assert [read(client, **bob.headers) for _ in range(6)] == [200] * 6
    assert read(client, **bob.headers) == 429

    other = {"Authorization": "Bearer fl_made-up"}
    statuses = [
        read_openly(client, Authorization=f"Bearer fl_made-up-{n}").status_code for n in range(4)
    ]
    assert statuses == [200, 200, 200, 429]
    assert read_openly(client, **other).status_code == 429


@pytest.mark.usefixtures("within_one_hour")
def test_a_token_that_only_reads_what_is_public_is_known_too(
    client: TestClient, alice: Any
) -> None:
    def list_submissions(**headers: str) -> int:
        return client.get("/api/v1/submissions", headers=headers).status_code

    assert [list_submissions(**alice.headers) for _ in range(7)] == [200] * 6 + [429]
    assert [list_submissions() for _ in range(5)] == [200] * 4 + [429]


@pytest.mark.usefixtures("within_one_hour")
def test_a_made_up_token_beside_a_good_session_is_no_good_one(
    client: TestClient, alice: Any
) -> None:
    """Else whoever is signed in would make up limits of their own, one set with each page."""
    client.app.state.limits.rates._items["writes"] = RateLimits(Settings())._items["writes"]  # type: ignore[attr-defined]
    origin = {"Origin": "http://testserver"}
    fields = {"token": alice.secret}
    signed_in = client.post("/console/sign-in", data=fields, headers=origin, follow_redirects=False)
    assert signed_in.status_code == 303
    made_up = {"Authorization": "Bearer fl_made-up"}
    assert client.get("/console/account", headers=made_up).status_code == 200
    client.cookies.clear()

    asked = [read_openly(client, **made_up).status_code for _ in range(6)]
    assert asked == [200] * 4 + [429] * 2  # The page was read from this address too.


@pytest.mark.usefixtures("within_one_hour")
def test_a_good_token_that_is_seen_first_passes_where_others_guess(
    client: TestClient, alice: Any
) -> None:
    client.app.state.limits.rates._items["reads"] = RateLimits(Settings())._items["reads"]  # type: ignore[attr-defined]
    wrong = [read(client, Authorization=f"Bearer fl_guess-{number}") for number in range(5)]
    assert wrong == [401, 401, 401, 401, 429]
    assert read(client, **alice.headers) == 200
    assert read(client, Authorization="Bearer fl_guess") == 429


@pytest.mark.usefixtures("within_one_hour")
def test_tokens_that_are_not_known_are_refused_after_a_few_and_good_ones_are_not(
    client: TestClient, alice: Any
) -> None:
    client.app.state.limits.rates._items["reads"] = RateLimits(Settings())._items["reads"]  # type: ignore[attr-defined]
    assert read(client, **alice.headers) == 200
    wrong = [read(client, Authorization=f"Bearer fl_guess-{number}") for number in range(6)]
    assert wrong == [401, 401, 401, 401, 429, 429]
    refused = client.get("/api/v1/me", headers={"Authorization": "Bearer fl_guess"})
    assert "token that is not known" in refused.json()["detail"]
    assert read(client, **alice.headers) == 200
    assert read(client) == 401  # Without a token nothing was guessed.


@pytest.mark.usefixtures("within_one_hour")
def test_the_token_of_an_attempt_is_good_once_a_post_with_it_was_taken() -> None:
    """It is no user's token: what tells that it is good is that the attempt takes the post."""
    few = Settings(rate_worker_posts="3/hour", rate_reads="3/hour")
    statuses: list[int] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": answered[0], "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def ask(method: str, token: str, *, times: int) -> list[int]:
        statuses.clear()
        for _ in range(times):
            await limited(
                {
                    "type": "http", "method": method, "path": "/api/v1/attempts/a/events",
                    "query_string": b"", "client": ("192.0.2.1", 1),
                    "headers": [(b"authorization", b"Bearer " + token.encode())],
                },
                receive,
                send,
            )  # fmt: skip
        return list(statuses)

    limited = RateLimiting(
        app,
        limits=RateLimits(few),
        known=KnownSecrets(),
        metrics=LimitMetrics(CollectorRegistry()),
        enforced=True,
        find_role=lambda _: None,
    )
    answered = [200]
    # One of the address, before it was known, and three of its own.
    assert run_async(ask("POST", "fla_good", times=5)) == [200] * 4 + [429]
    answered[0] = 409
    assert run_async(ask("POST", "fla_late", times=3)) == [409] * 2 + [429]
    answered[0] = 200
    assert run_async(ask("GET", "fla_reads", times=4)) == [200] * 3 + [429]


@pytest.mark.usefixtures("within_one_hour")
def test_writes_have_a_limit_of_their_own_and_workers_another(
    client: TestClient, walter: Any
) -> None:
    assert [client.post("/api/v1/tokens", json={}).status_code for _ in range(4)] == [
        *[401] * 3,
        429,
    ]
    posts = [
        client.post(
            "/api/v1/attempts/none/evaluations",
            json={"events": []},
            headers=walter.headers | {"Finishline-Fence": "1"},
        ).status_code
        for _ in range(20)
    ]
    assert set(posts) == {404}


def test_without_rate_limits_nothing_is_counted(settings: Settings) -> None:
    free = settings.model_copy(update={"rate_limits": False})
    with TestClient(create_app(free, dispatch=False)) as client:
        assert {read_openly(client).status_code for _ in range(9)} == {200}


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [
        ("GET", "/healthz", Kind.FREE),
        ("GET", "/readyz", Kind.FREE),
        ("GET", "/metrics", Kind.FREE),
        ("GET", "/favicon.ico", Kind.FREE),
        ("GET", "/robots.txt", Kind.FREE),
        ("HEAD", "/healthz", Kind.FREE),
        ("OPTIONS", "/api/v1/submissions", Kind.READ),
        ("GET", "/static/style.css", Kind.FREE),
        ("GET", "/docs-assets/swagger-ui.css", Kind.FREE),
        ("GET", "/statics", Kind.READ),
        ("POST", "/healthz", Kind.WRITE),
        ("GET", "/api/v1/submissions", Kind.READ),
        ("POST", "/api/v1/submissions", Kind.UPLOAD),
        ("GET", "/api/v1/verifications/v/proof", Kind.EXPENSIVE),
        ("GET", "/api/v1/verifications/v/events", Kind.STREAM),
        ("GET", "/benchmarks/digits/charts/times", Kind.EXPENSIVE),
        ("GET", "/api/v1/submissions/s/runs.json", Kind.EXPENSIVE),
        ("GET", "/api/v1/submissions/s/runs/0/log.json", Kind.EXPENSIVE),
        ("GET", "/api/v1/prices.csv", Kind.EXPENSIVE),
        ("GET", "/benchmarks/digits/convergence", Kind.EXPENSIVE),
        ("GET", "/compare", Kind.EXPENSIVE),
        ("DELETE", "/api/v1/tokens/7", Kind.WRITE),
        ("POST", "/api/v1/attempts/a/report", Kind.WORKER),
        ("POST", "/api/v1/workers/hello", Kind.WORKER),
        ("POST", "/api/v1/workers/probes", Kind.WORKER),
        ("POST", "/api/v1/workers/w/baseline", Kind.WRITE),
        ("GET", "/api/v1/workers/hello", Kind.READ),
    ],
)
def test_a_kind_follows_from_method_and_address(method: str, path: str, kind: Kind) -> None:
    assert kind_of({"type": "http", "method": method, "path": path}) is kind


@pytest.mark.parametrize(
    ("kind", "role", "bucket"),
    [
        (Kind.READ, None, "reads"),
        (Kind.READ, "admin", "reads"),
        (Kind.STREAM, None, "reads"),
        (Kind.EXPENSIVE, "submitter", "expensive_reads"),
        (Kind.WRITE, None, "writes"),
        (Kind.WRITE, "submitter", "writes"),
        (Kind.UPLOAD, "worker", "writes"),
        (Kind.WRITE, "organiser", "organiser_writes"),
        (Kind.UPLOAD, "admin", "organiser_writes"),
        (Kind.WORKER, None, "worker_posts"),
        (Kind.WORKER, "admin", "worker_posts"),
    ],
)
def test_which_limit_holds_follows_from_the_kind_and_who_asks(
    kind: Kind, role: str | None, bucket: str
) -> None:
    assert bucket_of(kind, Requester("192.0.2.1", "f" * 64, role)) == bucket
    assert bucket in RateLimits(Settings()).bucket_names


def test_the_memory_holds_so_many_keys_and_weighs_the_window_before() -> None:
    now = [600.0]
    memory = BoundedMemory(most_keys=8, clock=lambda: now[0])

    async def hit(key: str) -> bool:
        return await memory.acquire_sliding_window_entry(key, 4, 60)

    assert [run_async(hit("a")) for _ in range(5)] == [True] * 4 + [False]
    now[0] = 675.0  # A quarter into the next window: three quarters of four hits still count.
    assert [run_async(hit("a")) for _ in range(2)] == [True, False]
    assert run_async(memory.get_sliding_window("a", 60)) == (4, 45.0, 1, 105.0)
    now[0] = 800.0
    assert [run_async(hit("a")) for _ in range(5)] == [True] * 4 + [False]
    for number in range(100):
        assert run_async(hit(f"key-{number}"))
        assert len(memory) <= 8


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Callable[[], tuple[RedisAddress, Any]]]:
    """Starts a real broker, always at the same address."""
    started: list[subprocess.Popen[bytes]] = []
    address = RedisAddress(None, port=free_port())
    command = redis_command(address, prepare_var(tmp_path / "var").redis)

    def start() -> tuple[RedisAddress, Any]:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        started.append(process)
        wait_for(lambda: redis_answers(address), seconds=20, what="redis", pause=0.02)
        return address, process

    yield start
    for process in started:
        stop(process)


@pytest.mark.processes
def test_processes_count_together_in_redis_and_each_alone_while_it_is_away(
    redis: Callable[[], tuple[RedisAddress, Any]],
    settings: Settings,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("server.limits.rates.TRY_REDIS_AGAIN_SECONDS", 0.0)
    address, process = redis()
    shared = settings.model_copy(update={"broker_url": address.url, "rate_limit_storage": "broker"})
    caplog.set_level(logging.INFO, logger="server.limits.rates")

    async def scenario() -> None:
        first, second = RateLimits(shared), RateLimits(shared)
        assert [await each.hit("reads", "k") for each in (first, second, first, second, first)] == [
            None
        ] * 5
        refused = await second.hit("reads", "k")
        assert refused is not None
        assert 1 <= refused.retry_seconds <= 3600
        assert await first.look("reads", "other") is None

        stop(process)
        assert [await second.hit("reads", "k") for _ in range(5)] == [None] * 5
        assert await second.hit("reads", "k") is not None
        assert (first.shared_ok, second.shared_ok) == (True, False)

        redis()
        assert await second.hit("reads", "k") is None
        assert second.shared_ok
        await first.close()
        await second.close()

    run_async(scenario())
    said = [record.getMessage()[:40] for record in caplog.records]
    assert said == [
        "rate limits are counted by each process ",
        "rate limits are counted together again: ",
    ]
