"""GET /metrics: bounded labels, figures that agree with the database, and alerts that exist."""

import re
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from pydantic import SecretStr
from sqlalchemy.exc import OperationalError

from server.app import create_app
from server.base.broker import Broker
from server.base.database import Database, utc_now
from server.base.models import Verification, WorkerRow
from server.operations.health import Readiness
from server.operations.metrics import CachedFigures, read_figures
from server.verifications.dispatch import Dispatcher
from tests.support.both_databases import database_url, on_sqlite  # noqa: F401
from tests.support.services import services_of

ROOT = Path(__file__).parents[3]
ALERTS = ROOT / "deploy" / "prometheus-alerts.yml"


@pytest.fixture
def settings(settings, tmp_path):
    """A server that knows where its copies would lie, so that it tells of them."""
    folders = {"exports_dir": tmp_path / "exports", "backups_dir": tmp_path / "backups"}
    return settings.model_copy(update=folders)


@pytest.fixture(autouse=True)
def broker_answers(monkeypatch):
    """A scrape asks the broker too, and none is there."""
    monkeypatch.setattr(Broker, "ask", lambda _: None)


def scrape(client):
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    families = text_string_to_metric_families(answer.text)
    samples = [sample for family in families for sample in family.samples]
    return {(each.name, frozenset(each.labels.items())): each.value for each in samples}


def value(samples, name, **labels):
    return samples.get((f"finishline_{name}", frozenset(labels.items())))


def add_worker(database, name, **values):
    now = utc_now()
    row = {"hardware_class": "cpu-test", "state": "idle", "last_seen_at": now, "confirmed_at": now}
    with database.write() as session:
        session.add(WorkerRow(name=name, system={}, first_seen_at=now, **row | values))


def test_what_waits_runs_and_ended_is_counted(replay, client, database, make_report):
    services_of(client).of(CachedFigures).keep_seconds = 0.0
    replay.change(replay.attempt_id, created_at=utc_now() - timedelta(seconds=500))
    waiting = scrape(client)
    # A submitter may write any class: without a worker of it, it is no label.
    assert value(waiting, "queued_attempts", hardware_class="any") == 1
    assert value(waiting, "queued_attempts", hardware_class="cpu-test") is None
    assert value(waiting, "submissions_total", kind="train", archive="false") == 1

    add_worker(database, "walter-1")
    add_worker(database, "w-2", drift="3 % slow")
    add_worker(database, "w-3", last_seen_at=utc_now() - timedelta(hours=1))
    add_worker(database, "w-4", state="stopping", hardware_class="gpu-test")
    beside_idle = scrape(client)
    assert value(beside_idle, "queued_attempts", hardware_class="cpu-test") == 1
    assert value(beside_idle, "queued_attempts", hardware_class="any") == 0
    for name in ("oldest_queued_attempt", "queued_beside_free_worker"):
        assert 500 <= value(beside_idle, f"{name}_age_seconds", hardware_class="cpu-test") < 560
    states = [("cpu-test", "idle"), ("cpu-test", "drifted"), ("cpu-test", "gone")]
    for hardware_class, state in [*states, ("gpu-test", "stopping")]:
        assert value(beside_idle, "workers", hardware_class=hardware_class, state=state) == 1

    lost = replay.claim().json()
    replay.change(lost["attempt_id"], lease_expires_at=utc_now() - timedelta(seconds=100))
    running = scrape(client)
    assert value(running, "running_attempts") == 1
    assert 100 <= value(running, "running_attempt_past_lease_seconds") < 160
    assert value(running, "queued_attempts", hardware_class="cpu-test") == 0
    assert value(running, "leases_lost_total") == 0

    services_of(client).of(Dispatcher).run_once()
    grant = replay.claim().json()
    assert replay.report(grant, make_report(replay.seeds())).status_code == 200
    began = utc_now() - timedelta(seconds=300)
    replay.change(grant["attempt_id"], started_at=began, ended_at=began + timedelta(seconds=12.5))
    ended = scrape(client)
    assert value(ended, "leases_lost_total") == 1
    assert value(ended, "attempts_ended_total", state="lost", failure="infrastructure") == 1
    assert value(ended, "attempts_ended_total", state="done", failure="none") == 1
    assert value(ended, "running_attempt_past_lease_seconds") == 0
    assert value(ended, "replay_seconds_count", benchmark="digits") == 1
    assert value(ended, "replay_seconds_sum", benchmark="digits") == pytest.approx(12.5, abs=0.001)
    assert value(ended, "verdicts_total", kind="replay", outcome="verified") == 1


@on_sqlite
class TestOnOneDatabase:
    def test_requests_are_counted_by_route_and_never_by_address(self, client):
        for path in ("submissions/a1", "submissions/b2?token=secret", "%0A-c3", "d4/e5"):
            client.get(f"/api/v1/{path}")
        client.post("/api/v1/submissions/a1")
        client.get("/healthz")
        text = client.get("/metrics").text
        samples = scrape(client)
        route = "/api/v1/submissions/{submission_id}"

        def counted(method, handler, status):
            labels = {"method": method, "handler": handler, "status": status}
            return value(samples, "http_requests_total", **labels)

        assert counted("GET", route, "404") == 2
        assert counted("POST", route, "405") == 1
        assert counted("GET", "none", "404") == 2
        count = "http_request_duration_seconds_count"
        assert value(samples, count, method="GET", handler=route) is None
        assert value(samples, count, method="GET", handler="/healthz") == 1
        assert not any(word in text for word in ("a1", "b2", "c3", "d4", "secret"))

    def test_every_route_of_the_application_has_its_whole_template(self, client):
        schema = client.get("/openapi.json").json()
        for path, operations in schema["paths"].items():
            client.request(next(iter(operations)), re.sub(r"\{\w+\}", "unknown", path))
        found = {dict(labels).get("handler", "") for _, labels in scrape(client)}
        routes = {route.replace(":path}", "}") for route in found}

        assert set(schema["paths"]) - routes == set()

    def test_event_streams_are_timed_until_they_begin(self, replay, client, database):
        with database.write() as session:
            session.get_one(Verification, replay.verification_id).state = "cancelled"
        client.get(f"/api/v1/verifications/{replay.verification_id}/events")
        samples = scrape(client)
        route = "/api/v1/verifications/{verification_id}/events"
        counted = {"method": "GET", "handler": route}

        assert value(samples, "http_requests_total", status="200", **counted) == 1
        assert value(samples, "http_request_duration_seconds_count", **counted) == 1

    def test_an_error_nobody_foresaw_is_counted_and_has_its_id(self, client, monkeypatch):
        def broken(_, *_viewer):
            raise ZeroDivisionError

        client._transport.raise_server_exceptions = False
        with monkeypatch.context() as patched:
            patched.setattr(Database, "read", broken)
            answer = client.get("/api/v1/workers", headers={"X-Request-ID": "from-a.proxy_1"})
        samples = scrape(client)
        labels = {"method": "GET", "handler": "/api/v1/workers", "status": "500"}

        assert answer.status_code == 500
        assert answer.json()["request_id"] == answer.headers["X-Request-ID"] == "from-a.proxy_1"
        assert value(samples, "http_requests_total", **labels) == 1

    def test_a_database_that_is_away_is_counted(self, client, monkeypatch, caplog):
        def away(_, *_viewer):
            raise OperationalError("SELECT 1", {}, Exception("connection refused"))

        monkeypatch.setattr(Database, "read", away)
        services_of(client).of(CachedFigures).keep_seconds = 0.0
        for kept in services_of(client).of(Readiness).answers.values():
            kept.keep_seconds = 0.0
        client.get("/api/v1/verifications")
        samples = scrape(client)

        labels = {"method": "GET", "handler": "/api/v1/verifications", "status": "503"}
        assert value(samples, "http_requests_total", **labels) == 1
        assert value(samples, "figures_ok") == 0
        assert value(samples, "ready") == 0
        assert value(samples, "check_ok", check="database") == 0
        assert value(samples, "check_ok", check="artifacts") == 1
        assert value(samples, "queued_attempts", hardware_class="any") is None
        scrape(client)
        told = [line for line in caplog.messages if "figures of the service" in line]
        assert len(told) == 1  # Not with every scrape.
        assert "connection refused" in told[0]

    def test_scrapes_in_a_row_read_the_database_once(self, client, monkeypatch):
        read = []
        kept = services_of(client).of(CachedFigures)
        database = services_of(client).database

        def count():
            read.append(True)
            return read_figures(database)

        monkeypatch.setattr(kept, "_ask", count)
        monkeypatch.setattr(kept, "keep_seconds", 3600.0)
        for _ in range(5):
            scrape(client)

        assert len(read) == 1

    def test_a_token_in_the_settings_is_asked_for(self, settings):
        token = SecretStr("scrape-token-of-the-test")
        app = create_app(settings.model_copy(update={"metrics_token": token}), dispatch=False)
        with TestClient(app) as guarded:
            answers = [
                guarded.get("/metrics", headers={"Authorization": sent} if sent else {})
                for sent in ("", "Bearer scrape-token", f"Bearer {token.get_secret_value()}")
            ]
        assert [answer.status_code for answer in answers] == [401, 401, 200]
        assert answers[0].headers["content-type"] == "application/problem+json"

    def test_alerts_are_of_exported_metrics(self, replay, client, database, make_report):
        add_worker(database, "walter-1")
        grant = replay.claim().json()
        replay.report(grant, make_report(replay.seeds()))
        exported = {name for name, _ in scrape(client)}
        labels = {name: dict(pairs).keys() for name, pairs in scrape(client)}
        page = (ROOT / "docs" / "operating.md").read_text()
        groups = yaml.safe_load(ALERTS.read_text())["groups"]
        rules = [rule for group in groups for rule in group["rules"]]

        assert len(rules) >= 10
        for rule in rules:
            named = re.findall(r"(finishline_\w+)(?:\{([^}]*)\})?", rule["expr"])
            assert named or "up{" in rule["expr"], rule["alert"]
            for name, matchers in named:
                assert name in exported, rule["alert"]
                assert set(re.findall(r"(\w+)[!=]", matchers)) <= labels[name], rule["alert"]
            anchor = rule["annotations"]["runbook"].rpartition("docs/operating.md#")[2]
            assert anchor == rule["alert"].lower()
            assert f"### {rule['alert']}\n" in page
            assert rule["labels"]["severity"] in ("page", "ticket")
        documented = set(re.findall(r"`(finishline_\w+?)(?:_sum)?[`{]", page))
        assert documented - {"finishline_dispatch_round_age_seconds"} <= {
            re.sub("_(sum|count)$", "", name) for name in exported
        }


@on_sqlite
def test_a_scan_of_every_address_leaves_few_series(client):
    described = list(client.get("/openapi.json").json()["paths"])
    pages = [str(getattr(route, "path", "")) for route in client.app.routes]
    paths = {re.sub(r"\{[^}]*\}", "x", path) for path in described + pages}
    for path in paths:
        if path.startswith("/") and not path.endswith("/events"):
            for method in ("GET", "DELETE"):
                client.request(method, path)
                client.request(method, f"{path}/nothing-here")

    assert len(client.get("/metrics").content) < 256 * 1024
