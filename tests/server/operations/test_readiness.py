"""GET /healthz, GET /readyz and `finishline admin check`: faults and their names."""

import json
import logging
import os
import re
import shutil
import signal
import threading
import time
from datetime import timedelta
from importlib.metadata import version
from types import SimpleNamespace

import pytest
from sqlalchemy import text, update
from sqlalchemy.exc import OperationalError

from server.base.artifacts import ArtifactStore
from server.base.broker import Broker
from server.base.database import Database, utc_now
from server.base.errors import UnavailableError
from server.base.models import BenchmarkDefinition, Evidence, SigningKey, Verification, WorkerRow
from server.base.schema import newest_revision
from server.commands.check import check_server
from server.operations import health
from server.operations.health import (
    Readiness,
    UnwellError,
    check_artifacts,
    check_clock,
    check_database,
    check_dispatch,
    drained_before_stop,
)
from server.operations.metrics import CachedFigures
from server.verifications import dispatch
from server.verifications.dispatch import Dispatcher
from tests.support.admin import environment_of, run_finishline
from tests.support.processes import wait_for
from tests.support.services import services_of


def away(_, *_viewer):
    raise OperationalError("SELECT 1", {}, Exception("connection to db.internal refused"))


def test_a_process_that_answers_is_alive_whatever_its_database_does(client, monkeypatch):
    monkeypatch.setattr(Database, "read", away)
    response = client.get("/healthz")

    assert response.status_code == 200
    assert response.json() == {"status": "ok", "version": version("finishline-server")}


@pytest.fixture
def look(client, monkeypatch):
    """Asks /readyz with a broker that answers and a loop that runs, both only pretended; every
    question is asked anew.
    """
    monkeypatch.setattr(Broker, "ask", lambda _: None)
    monkeypatch.setattr(Dispatcher, "is_running", True)
    dispatcher = services_of(client).of(Dispatcher)
    dispatcher._round_ended_at = time.monotonic()
    for kept in services_of(client).of(Readiness).answers.values():
        kept.keep_seconds = 0.0
        kept.limit_seconds = 60.0
    return lambda: client.get("/readyz")


def found(answer, name):
    (check,) = [check for check in answer.json()["checks"] if check["name"] == name]
    return dict(check)


def test_a_server_that_works_is_ready_and_its_probe_leaves_no_file(look, stored_files):
    answer = look()

    assert (answer.status_code, answer.json()["status"]) == (200, "ready"), answer.text
    needed = {check["name"]: check["needed"] for check in answer.json()["checks"]}
    names = ("database", "artifacts", "broker", "dispatch", "clock", "queue", "definitions")
    assert needed == {name: name in ("database", "artifacts") for name in names}
    assert stored_files() == []


def test_a_database_that_is_away_makes_it_not_ready_and_names_no_host(look, monkeypatch, caplog):
    with monkeypatch.context() as patched:
        patched.setattr(Database, "read", away)
        answers = [look(), look()]
    with caplog.at_level(logging.INFO, "server.operations"):
        back = look()

    assert [answer.status_code for answer in answers] == [503, 503]
    assert answers[0].json()["status"] == "not ready"
    assert found(answers[0], "database")["detail"] == "No response (OperationalError)."
    assert "db.internal" not in answers[0].text
    told = [line for line in caplog.messages if line.startswith("check database")]
    assert len(told) == 2  # Once that it is away, once that it is back.
    assert "db.internal" in told[0]
    assert back.json()["status"] == "ready"


def test_what_is_needed_and_fails_makes_it_not_ready(look, database, settings, monkeypatch):
    def failing(check):
        answer = look()
        assert (answer.status_code, found(answer, check)["state"]) == (503, "failing")
        return found(answer, check)["detail"]

    with monkeypatch.context() as patched:
        # A file system that is read-only: for whoever is root no mode of the file stands for it.
        patched.setattr(os, "access", lambda _path, mode: mode != os.W_OK)
        assert "database is read-only" in failing("database")
    incoming = settings.artifacts_dir / "incoming"
    incoming.rmdir()
    failing("artifacts")
    incoming.mkdir()
    assert look().status_code == 200
    with database.write() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '0001'"))
    assert "0001" in failing("database")


@pytest.mark.nightly
def test_a_read_only_or_late_postgresql_is_told(postgresql_url, settings, monkeypatch):
    revision = newest_revision()
    for setting, words in (("off", "answers"), ("on", "database is read-only")):
        database = Database(f"{postgresql_url}&options=-cdefault_transaction_read_only%3D{setting}")
        try:
            said = check_database(database, revision)
        except UnwellError as error:
            said = str(error)
        database.close()
        assert words in said

    database = Database(postgresql_url)
    full = "DO $$ BEGIN RAISE EXCEPTION 'no room' USING ERRCODE = 'disk_full'; END $$"
    with pytest.raises(OperationalError), database.write() as session:
        session.execute(text(full))
    with monkeypatch.context() as patched:
        patched.setattr(health, "GROW", full)
        with pytest.raises(UnwellError, match="disk is full"):
            check_database(database, revision)
    assert database.was_full
    assert "answers" in check_database(database, revision)
    assert not database.was_full

    dispatcher = Dispatcher(database, Silent(), settings)
    hour = timedelta(hours=1)
    for ahead, words in ((hour, "3600 s ahead of"), (-hour, "3600 s behind")):
        monkeypatch.setattr(dispatch, "utc_now", lambda ahead=ahead: utc_now() + ahead)
        dispatcher.run_once()
        with pytest.raises(UnwellError, match=words):
            check_clock(dispatcher)
    monkeypatch.setattr(dispatch, "utc_now", utc_now)
    dispatcher.run_once()
    assert "same time" in check_clock(dispatcher)
    database.close()


class Silent:
    """A broker that nothing is sent to."""

    def close(self):
        pass


def test_a_bucket_that_refuses_and_a_disk_with_little_room_are_told(settings, monkeypatch):
    class Refusing:
        def check(self):
            raise UnavailableError("no such bucket")

    with pytest.raises(UnavailableError):
        check_artifacts(ArtifactStore(settings.artifacts_dir, Refusing()), settings)
    usage = shutil.disk_usage(settings.artifacts_dir)
    little = usage._replace(free=settings.max_request_bytes - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: little)
    with pytest.raises(UnwellError, match="less than one submission") as told:
        check_artifacts(ArtifactStore(settings.artifacts_dir), settings)
    assert told.value.is_minor


def test_no_broker_degrades_and_draining_is_503(look, client, monkeypatch):
    def refuse(_):
        raise ConnectionError("refused")

    monkeypatch.setattr(Broker, "ask", refuse)
    monkeypatch.setattr(Dispatcher, "is_running", False)
    answer = look()

    assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
    assert found(answer, "broker")["state"] == "degraded"
    assert found(answer, "dispatch")["state"] == "degraded"
    services_of(client).of(Readiness).is_draining = True
    answer = look()
    assert (answer.status_code, answer.json()["status"]) == (503, "draining")


def test_a_loop_whose_last_round_is_long_ago_is_told(database, settings):
    hanging = SimpleNamespace(is_running=True, seconds_since_round=31.0)
    with pytest.raises(UnwellError, match="31 s ago"):
        check_dispatch(hanging)

    dispatcher = Dispatcher(database, Silent(), settings)
    assert (dispatcher.is_running, dispatcher.seconds_since_round) == (False, None)
    dispatcher.start()
    wait_for(
        lambda: dispatcher.seconds_since_round is not None, seconds=20, what="a round", pause=0.01
    )
    assert dispatcher.is_running
    assert 0 <= dispatcher.seconds_since_round < 20
    dispatcher.stop()
    assert not dispatcher.is_running


@pytest.mark.parametrize(("state", "expected"), [("idle", "degraded"), ("busy", "ok")])
def test_a_wait_beside_an_idle_worker_is_told(state, expected, replay, look, database):
    now = utc_now()
    replay.change(replay.attempt_id, created_at=now - timedelta(seconds=300))
    seen = {"first_seen_at": now, "last_seen_at": now, "confirmed_at": now}
    with database.write() as session:
        session.add(
            WorkerRow(name="w-1", hardware_class="cpu-test", state=state, system={}, **seen)
        )
    check = found(look(), "queue")

    assert check["state"] == expected
    assert re.search(r"\b3[0-5]\d s\b", check["detail"])


@pytest.fixture
def released():
    event = threading.Event()
    yield event
    event.set()


def test_the_whole_server_answers_while_its_database_hangs(look, client, released, monkeypatch):
    asked = []

    def hang(_, *_viewer):
        asked.append(True)
        released.wait(60)
        raise OperationalError("SELECT 1", {}, Exception("released"))

    monkeypatch.setattr(Database, "read", hang)
    services_of(client).of(CachedFigures).limit_seconds = 0.05
    for kept in services_of(client).of(Readiness).answers.values():
        kept.limit_seconds = 0.05
    answer = look()

    assert answer.status_code == 503
    assert found(answer, "database")["detail"] == "No response within 0.05 s."
    assert look().status_code == 503
    assert len(asked) <= 3  # Three checks read the database, and none is asked beside itself.
    assert client.get("/healthz").status_code == 200
    assert "finishline_figures_ok 0.0" in client.get("/metrics").text


def test_a_process_told_to_stop_says_so_before_it_does():
    stopped = []
    over = threading.Event()

    def stop(number, _frame):
        stopped.append(number)
        over.set()

    before = signal.signal(signal.SIGTERM, stop)
    try:
        readiness = Readiness({})
        with drained_before_stop(readiness, drain_seconds=3600):
            assert readiness.is_ready([])
            signal.raise_signal(signal.SIGTERM)
            assert not readiness.is_ready([])
            assert stopped == []
            signal.raise_signal(signal.SIGTERM)
            assert stopped == [signal.SIGTERM]
        with drained_before_stop(Readiness({}), drain_seconds=0.01):
            over.clear()
            signal.raise_signal(signal.SIGTERM)
            assert over.wait(20)
        assert signal.getsignal(signal.SIGTERM) is stop
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.fixture
def served(replay, client):
    assert replay.finish()["outcome"] == "verified"
    return client


def test_a_server_as_it_should_be_has_no_fault(served, settings):
    fresh = settings.artifacts_dir / "ab" / ("ab" * 32)
    fresh.parent.mkdir(exist_ok=True)
    fresh.write_bytes(b"its row comes in a moment")
    said = run_finishline(environment_of(settings), "check")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert (found["looked_at"]["files"], found["looked_at"]["proofs"]) == (4, 1)
    assert (found["faults"], found["orphans"]) == ([], [])


def test_files_that_are_lost_changed_or_left_over_are_named(served, replay, settings):
    runs = served.get(f"/api/v1/submissions/{replay.submission_id}").json()["runs"]
    lost, changed = (settings.artifacts_dir / each["log_sha256"][:2] / each["log_sha256"]
                     for each in runs[:2])  # fmt: skip
    lost.unlink()
    changed.write_bytes(changed.read_bytes() + b" ")
    orphan = settings.artifacts_dir / "ff" / ("ff" * 32)
    orphan.parent.mkdir(exist_ok=True)
    orphan.write_bytes(b"nobody's")
    os.utime(orphan, (1e9, 1e9))

    findings = check_server(services_of(served), files=True, proofs=False)
    submission = f"named by submission {replay.submission_id} as"
    faults = {fault.split(":")[0]: fault for fault in findings.faults}
    assert faults.keys() == {lost.name, changed.name}
    assert "cannot be read" in faults[lost.name]
    assert faults[lost.name].endswith(f"{submission} run_0.log")
    assert "its content has hash" in faults[changed.name]
    assert faults[changed.name].endswith(f"{submission} run_1.log")
    assert findings.orphans == [f"{orphan.name}: no row names this file"]
    said = run_finishline(environment_of(settings), "check")
    assert said.code == 1
    assert set(findings.faults) < set(json.loads(said.out)["faults"])


def test_settings_of_another_server_are_refused_before_a_key_is_made(served, tmp_path):
    elsewhere = tmp_path / "elsewhere" / "artifacts"
    environment = environment_of(services_of(served).settings)
    environment["FINISHLINE_ARTIFACTS_DIR"] = str(elsewhere)
    for command in (["check"], ["export", str(tmp_path)], ["backup", str(tmp_path)]):
        said = run_finishline(environment, *command)
        assert (said.code, "are FINISHLINE_ARTIFACTS_DIR" in said.err) == (1, True)
    assert not (elsewhere.parent / "signing-key.pem").exists()


def test_what_was_changed_in_the_database_is_named(served, replay):
    services = services_of(served)
    check_server(services, files=False, proofs=False)  # The key is listed from here on.
    with services.database.write() as session:
        session.execute(text("DROP TRIGGER audit_log_refuses_update"))
        session.execute(text("UPDATE audit_log SET reason = 'another' WHERE id = 1"))
        session.execute(update(SigningKey).values(public_key="ab" * 32))
        one = BenchmarkDefinition.benchmark_id == "digits"
        session.execute(update(BenchmarkDefinition).where(one).values(content="title = 'changed'"))
    faults = check_server(services, files=False, proofs=False).faults
    kinds = [fault.split(":")[0].split(" ")[0] for fault in faults]
    assert kinds == ["audit", "signing", "definition"]
    assert "record 1.sha256" in faults[0]


def test_a_proof_that_does_not_hold_is_named(served, replay):
    services = services_of(served)
    with services.database.write() as session:
        evidence = session.get_one(Evidence, replay.verification_id)
        changed = dict(evidence.submission)
        changed["result"] = changed["result"] | {"tta_seconds": 0.001}
        evidence.submission = changed
        session.execute(update(Verification).values(nonce="ab" * 16))
    faults = check_server(services, files=False, proofs=True).faults
    assert faults
    assert {fault.split(",")[0] for fault in faults} == {f"proof of {replay.verification_id}"}
    assert {"score", "seal"} <= {fault.split(", ")[1].split(":")[0] for fault in faults}
