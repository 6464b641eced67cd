"""GET /healthz and /readyz: the things that a server stands on, one fault at a time."""

import logging
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from importlib.metadata import version
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from server.base.artifacts import ArtifactStore
from server.base.database import Database, utc_now
from server.base.errors import UnavailableError
from server.base.models import WorkerRow
from server.base.revision import newest_revision
from server.base.settings import Settings
from server.operations import checks
from server.operations.checks import (
    Check,
    Said,
    UnwellError,
    check_artifacts,
    check_clock,
    check_database,
    check_dispatch,
)
from server.operations.figures import CachedFigures
from server.operations.readiness import Readiness, drained_before_stop
from server.verifications import dispatch
from server.verifications.dispatch import Dispatcher
from tests.support.loops import run_async
from tests.support.services import services_of


def test_a_process_that_answers_is_alive_whatever_its_database_does(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_: Database, *_viewer: object) -> None:
        raise OperationalError("SELECT 1", {}, Exception("connection refused"))

    monkeypatch.setattr(Database, "read", away)
    response = client.get("/healthz")

    assert response.status_code == 200
    assert response.json() == {"status": "ok", "version": version("finishline-server")}


@pytest.fixture
def look(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """Asks /readyz with a broker that answers and a loop that runs, both only pretended; every
    question is asked anew.
    """
    monkeypatch.setattr(Dispatcher, "ask_broker", lambda _: None)
    monkeypatch.setattr(Dispatcher, "is_running", True)
    dispatcher = services_of(client).of(Dispatcher)
    dispatcher._round_ended_at = time.monotonic()
    for _, kept in services_of(client).of(Readiness)._checks:
        kept._keep_seconds = 0.0
        kept._limit_seconds = 60.0
    return lambda: client.get("/readyz")


def found(answer: Any, name: str) -> dict[str, Any]:
    """One check of an answer."""
    (check,) = [check for check in answer.json()["checks"] if check["name"] == name]
    return dict(check)


def test_a_server_that_works_is_ready(look: Callable[[], Any]) -> None:
    answer = look()

    assert (answer.status_code, answer.json()["status"]) == (200, "ready"), answer.text
    needed = {check["name"]: check["needed"] for check in answer.json()["checks"]}
    assert needed == {
        "database": True,
        "artifacts": True,
        "broker": False,
        "dispatch": False,
        "clock": False,
        "queue": False,
        "definitions": False,
    }


def test_a_database_that_is_away_makes_it_not_ready_and_names_no_host(
    look: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(_: Database, *_viewer: object) -> None:
        raise OperationalError("SELECT 1", {}, Exception("connection to db.internal refused"))

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


def test_a_database_at_another_revision_makes_it_not_ready(
    look: Callable[[], Any], database: Database
) -> None:
    with database.write() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '0001'"))
    answer = look()

    assert answer.status_code == 503
    assert "0001" in found(answer, "database")["detail"]


def test_a_database_that_cannot_be_written_makes_it_not_ready(
    look: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A file system that is read-only: for whoever is root no mode of the file stands for it.
    monkeypatch.setattr(os, "access", lambda _path, mode: mode != os.W_OK)
    answer = look()

    assert answer.status_code == 503
    assert "database is read-only" in found(answer, "database")["detail"]


@pytest.mark.processes
def test_a_postgresql_that_cannot_be_written_or_has_another_time_is_told(
    postgresql_url: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    revision = newest_revision()
    for setting, words in (("off", "answers"), ("on", "database is read-only")):
        database = Database(f"{postgresql_url}&options=-cdefault_transaction_read_only%3D{setting}")
        try:
            said = check_database(database, revision).detail
        except UnwellError as error:
            said = str(error)
        database.close()
        assert words in said

    database = Database(postgresql_url)
    full = "DO $$ BEGIN RAISE EXCEPTION 'no room' USING ERRCODE = 'disk_full'; END $$"
    with pytest.raises(OperationalError), database.write() as session:
        session.execute(text(full))
    with monkeypatch.context() as patched:
        patched.setattr(checks, "GROW", full)
        with pytest.raises(UnwellError, match="disk is full"):
            check_database(database, revision)
    assert database.was_full
    assert "answers" in check_database(database, revision).detail
    assert not database.was_full

    dispatcher = Dispatcher(database, Silent(), settings)  # type: ignore[arg-type]
    hour = timedelta(hours=1)
    for ahead, state, words in (
        (hour, "degraded", "3600 s ahead of"),
        (-hour, "degraded", "3600 s behind"),
        (timedelta(), "ok", "same time"),
    ):
        monkeypatch.setattr(dispatch, "utc_now", lambda ahead=ahead: utc_now() + ahead)
        dispatcher.run_once()
        told = check_clock(dispatcher)
        assert told.state == state
        assert words in told.detail
    database.close()


class Silent:
    """A broker that nothing is sent to."""

    def close(self) -> None:
        """Nothing to close."""


def test_a_folder_that_takes_no_file_makes_it_not_ready(
    look: Callable[[], Any], settings: Settings
) -> None:
    shutil.rmtree(settings.artifacts_dir / "incoming")
    answer = look()

    assert answer.status_code == 503
    assert found(answer, "artifacts")["state"] == "failing"


def test_a_probe_leaves_no_file(
    look: Callable[[], Any], stored_files: Callable[[], list[str]]
) -> None:
    assert look().status_code == 200
    assert stored_files() == []


def test_a_bucket_that_refuses_and_a_disk_with_little_room_are_told(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing:
        def check(self) -> None:
            raise UnavailableError("no such bucket")

    with pytest.raises(UnavailableError):
        check_artifacts(ArtifactStore(settings.artifacts_dir, Refusing()), settings)  # type: ignore[arg-type]
    usage = shutil.disk_usage(settings.artifacts_dir)
    little = usage._replace(free=settings.max_request_bytes - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: little)
    said = check_artifacts(ArtifactStore(settings.artifacts_dir), settings)

    assert said.state == "degraded"
    assert said.figures["artifacts_free_bytes"][1] == settings.max_request_bytes - 1


def test_without_a_broker_or_a_loop_submissions_are_taken_all_the_same(
    look: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Dispatcher) -> None:
        raise ConnectionError("refused")

    monkeypatch.setattr(Dispatcher, "ask_broker", refuse)
    monkeypatch.setattr(Dispatcher, "is_running", False)
    answer = look()

    assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
    assert found(answer, "broker")["state"] == "degraded"
    assert found(answer, "dispatch")["state"] == "degraded"


def test_a_loop_whose_last_round_is_long_ago_is_told() -> None:
    class Hanging:
        is_running = True
        seconds_since_round = 31.0

    assert check_dispatch(Hanging()).state == "degraded"  # type: ignore[arg-type]


def test_the_dispatcher_knows_when_its_last_round_was(
    database: Database, settings: Settings
) -> None:
    dispatcher = Dispatcher(database, Silent(), settings)  # type: ignore[arg-type]
    assert (dispatcher.is_running, dispatcher.seconds_since_round) == (False, None)
    dispatcher.start()
    limit = time.monotonic() + 20
    while dispatcher.seconds_since_round is None and time.monotonic() < limit:
        time.sleep(0.005)
    assert dispatcher.is_running
    assert 0 <= (dispatcher.seconds_since_round or -1) < 20
    dispatcher.stop()
    assert not dispatcher.is_running


@pytest.mark.parametrize(("state", "expected"), [("idle", "degraded"), ("busy", "ok")])
def test_an_attempt_that_waits_beside_an_idle_worker_is_told(
    state: str, expected: str, replay: Any, look: Callable[[], Any], database: Database
) -> None:
    replay.change(replay.attempt_id, created_at=utc_now() - timedelta(seconds=300))
    with database.write() as session:
        session.add(seen_worker(state))
    check = found(look(), "queue")

    assert check["state"] == expected
    assert re.search(r"\b3[0-5]\d s\b", check["detail"])


def seen_worker(state: str) -> WorkerRow:
    """A worker that said hello a moment ago."""
    now = utc_now()
    return WorkerRow(
        name="w-1",
        hardware_class="cpu-test",
        state=state,
        system={},
        first_seen_at=now,
        last_seen_at=now,
        confirmed_at=now,
    )


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """What a hanging question waits for; set at the end in any case."""
    event = threading.Event()
    yield event
    event.set()


def test_a_question_that_hangs_is_answered_in_time_and_asked_once(
    released: threading.Event,
) -> None:
    asked: list[str] = []

    def hang() -> Said:
        asked.append("hang")
        released.wait(60)
        return Said("late")

    def count() -> Said:
        asked.append("count")
        return Said("well")

    async def look_often() -> Any:
        readiness = Readiness(
            [Check("database", hang, needed=True), Check("broker", count, needed=False)],
            keep_seconds=0.0,
            limit_seconds=0.05,
        )
        readiness._checks[1][1]._limit_seconds = 60.0  # It does answer, however busy a machine is.
        began = time.monotonic()
        looks = [await readiness.look() for _ in range(3)]
        seconds = time.monotonic() - began
        return readiness, looks, seconds

    readiness, looks, seconds = run_async(look_often())

    assert seconds < 10
    assert [finding.state for finding in looks[-1]] == ["failing", "ok"]
    assert looks[-1][0].detail == "No response within 0.05 s."
    assert not readiness.is_ready(looks[-1])
    assert sorted(asked) == ["count", "count", "count", "hang"]


def test_the_whole_server_answers_while_its_database_hangs(
    look: Callable[[], Any],
    client: TestClient,
    released: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hang(_: Database, *_viewer: object) -> None:
        released.wait(60)
        raise OperationalError("SELECT 1", {}, Exception("released"))

    monkeypatch.setattr(Database, "read", hang)
    services_of(client).of(Readiness)._limit_seconds = 0.05
    services_of(client).of(CachedFigures)._limit_seconds = 0.05
    for _, kept in services_of(client).of(Readiness)._checks:
        kept._limit_seconds = 0.05
    answer = look()

    assert answer.status_code == 503
    assert found(answer, "database")["detail"] == "No response within 0.05 s."
    assert client.get("/healthz").status_code == 200
    assert "finishline_figures_ok 0.0" in client.get("/metrics").text


def test_a_process_told_to_stop_says_so_before_it_does() -> None:
    stopped: list[int] = []
    over = threading.Event()

    def stop(number: int, _frame: Any) -> None:
        stopped.append(number)
        over.set()

    before = signal.signal(signal.SIGTERM, stop)
    try:
        readiness = Readiness([])
        with drained_before_stop(readiness, drain_seconds=3600):
            assert readiness.is_ready([])
            signal.raise_signal(signal.SIGTERM)
            assert not readiness.is_ready([])
            assert stopped == []
            signal.raise_signal(signal.SIGTERM)
            assert stopped == [signal.SIGTERM]
            timers = [each for each in threading.enumerate() if isinstance(each, threading.Timer)]
            [waiting] = [timer for timer in timers if timer.interval == 3600]
        waiting.join(20)
        assert not waiting.is_alive()
        with drained_before_stop(Readiness([]), drain_seconds=0.01):
            over.clear()
            signal.raise_signal(signal.SIGTERM)
            assert over.wait(20)
        assert signal.getsignal(signal.SIGTERM) is stop
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_draining_process_is_503(look: Callable[[], Any], client: TestClient) -> None:
    services_of(client).of(Readiness).is_draining = True
    answer = look()

    assert (answer.status_code, answer.json()["status"]) == (503, "draining")
