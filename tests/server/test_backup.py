"""A backup and what is made of it: the same server, its tokens and its key, or nothing changed."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, select

from server.backups.places import PostgresqlPlace
from server.backups.restore import restore
from server.backups.service import Choice, back_up
from server.database import Database
from server.errors import ConflictError, ContentError, NotFoundError
from server.integrity.commands import check_server
from server.models import ConsoleSession, Submission
from server.settings import Settings
from tests.server.conftest import SubmissionParts, postgresql_database
from tests.support.copies import answers, parts_of, serving, settings_of, unserved
from tests.support.processes import wait_for


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.processes)])
def database_url(request: pytest.FixtureRequest) -> str:
    """Each test backs up either database."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def another_postgresql_url(postgresql: Engine) -> Iterator[str]:
    """A second database, without a table."""
    with postgresql_database(postgresql) as url:
        yield url


@pytest.fixture
def fresh(request: pytest.FixtureRequest, database_url: str, tmp_path: Path) -> Settings:
    """Settings of a host where there is nothing yet."""
    url = f"sqlite:///{tmp_path / 'fresh' / 'finishline.db'}"
    if database_url.startswith("postgresql"):
        url = request.getfixturevalue("another_postgresql_url")
    return settings_of(tmp_path / "fresh", url)


@pytest.fixture
def served(
    replay: Any,
    make_report: Callable[..., Any],
    client: TestClient,
    olivia: Any,
    settings: Settings,
) -> TestClient:
    """A server with a verified submission, and an organiser who is signed in at the console."""
    claimed = replay.claim().json()
    assert replay.report(claimed, make_report(replay.seeds())).json()["outcome"] == "verified"
    form = {"token": olivia.secret}
    client.post("/console/sign-in", data=form, headers={"Origin": "http://testserver"})
    client.cookies.clear()  # What is compared are answers to anybody.
    return client


def sessions_in(database: Database) -> int:
    with database.read() as session:
        return len(session.scalars(select(ConsoleSession)).all())


def submissions_in(settings: Settings) -> int:
    database = Database(settings.database_url)
    with database.read() as session:
        count = len(session.scalars(select(Submission.id)).all())
    database.close()
    return count


def test_a_restored_server_is_the_same_and_takes_the_old_token(
    served: TestClient, fresh: Settings, tmp_path: Path, alice: Any
) -> None:
    parts = parts_of(served)
    expected = answers(served)
    assert sessions_in(parts.database) == 1
    path, _ = back_up(parts, tmp_path / "backups", Choice())
    assert {oct(each.stat().st_mode)[-3:] for each in path.rglob("*") if each.is_file()} == {"600"}
    assert oct(path.stat().st_mode)[-3:] == "700"

    with unserved(fresh) as empty:
        restore(empty, tmp_path / "backups")
    assert oct(fresh.signing_key_path.stat().st_mode)[-3:] == "600"
    with serving(fresh) as second:
        assert answers(second) == expected
        assert sessions_in(parts_of(second).database) == 0
        me = second.get("/api/v1/me", headers=alice.headers)
        assert (me.status_code, me.json()["user"]) == (200, "alice")
        assert second.get("/api/v1/keys").json() == served.get("/api/v1/keys").json()
        assert check_server(parts_of(second), files=True, proofs=True).faults == []


@pytest.mark.processes
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_tables_of_sqlite_go_into_postgresql_with_the_tokens(
    served: TestClient, another_postgresql_url: str, tmp_path: Path, alice: Any
) -> None:
    path, manifest = back_up(parts_of(served), tmp_path / "backups", Choice(tables=True))
    assert (manifest.content, (path / "tables" / "tokens.csv").is_file()) == ("tables", True)
    expected = answers(served)
    settings = settings_of(tmp_path / "moved", another_postgresql_url)
    with unserved(settings) as empty:
        restore(empty, tmp_path / "backups")
    with serving(settings) as second:
        assert answers(second) == expected
        assert second.get("/api/v1/me", headers=alice.headers).status_code == 200


def test_a_second_backup_copies_only_what_is_new(
    served: TestClient,
    tmp_path: Path,
    digits_submission: SubmissionParts,
    submit: Callable[..., Any],
) -> None:
    root, said = tmp_path / "backups", list[str]()
    first, _ = back_up(parts_of(served), root, Choice(), said.append)
    before = {path: path.stat().st_ino for path in root.glob("logs/*/*")}
    submit(digits_submission)  # The same claim, and three trainings of their own.
    (tmp_path / "backups" / ".finishline-x.partial-killed").mkdir()
    second = back_up_a_second_later(served, root, said)

    assert said == [f"logs: 4, of which 4 are new in {root / 'logs'}",
                    f"logs: 7, of which 3 are new in {root / 'logs'}"]  # fmt: skip
    after = {path: path.stat().st_ino for path in root.glob("logs/*/*")}
    assert len(after) == 7
    assert before.items() < after.items()
    assert sorted(each.name for each in root.iterdir()) == [
        ".lock", first.name, second.name, "last.json", "logs",
    ]  # fmt: skip


def back_up_a_second_later(served: TestClient, root: Path, said: list[str]) -> Path:
    """Two backups within a second would have one name, and the later is refused."""

    def made() -> Path | None:
        try:
            return back_up(parts_of(served), root, Choice(), said.append)[0]
        except ConflictError:
            return None

    path: Path = wait_for(made, seconds=60, what="the next second")
    return path


def test_what_is_there_is_replaced_only_by_force_and_kept(
    served: TestClient,
    settings: Settings,
    tmp_path: Path,
    digits_submission: SubmissionParts,
    submit: Callable[..., Any],
    alice: Any,
) -> None:
    parts = parts_of(served)
    back_up(parts, tmp_path / "backups", Choice())
    expected = answers(served)
    damaged = min(settings.artifacts_dir.glob("??/*"))
    submit(digits_submission)
    with pytest.raises(ConflictError, match=r"has rows in .*submissions.*--force"):
        restore(parts, tmp_path / "backups")
    other = Database(settings.database_url)
    with other.read() as session:
        assert len(session.scalars(select(Submission.id)).all()) == 2
        with pytest.raises(ConflictError, match="stop"):
            restore(parts, tmp_path / "backups", force=True)
    other.close()

    damaged.write_bytes(b"damaged")
    said: list[str] = []
    restore(parts, tmp_path / "backups", force=True, say=said.append)
    [kept] = [line for line in said if line.startswith("What was there is kept as ")]
    assert [line for line in said if line.startswith(f"{damaged} was damaged")]
    with serving(settings) as second:
        assert answers(second) == expected
        assert second.get("/api/v1/me", headers=alice.headers).status_code == 200
    if parts.database.is_sqlite:
        old = kept.removeprefix("What was there is kept as ").split(";")[0]
        assert submissions_in(settings_of(tmp_path, f"sqlite:///{old}")) == 2


def test_a_damaged_backup_is_named_and_changes_nothing(
    served: TestClient, settings: Settings, fresh: Settings, tmp_path: Path
) -> None:
    root = tmp_path / "backups"
    with unserved(fresh) as empty, pytest.raises(NotFoundError, match="no backup in"):
        restore(empty, root)
    path, _ = back_up(parts_of(served), root, Choice())
    log = min(each for each in root.glob("logs/*/*"))
    for damaged in (log, path / "signing-key.pem", path / "logs.csv"):
        content = damaged.read_bytes()
        damaged.write_bytes(content + b" ")
        with unserved(fresh) as empty, pytest.raises(ContentError, match=damaged.name):
            restore(empty, root)
        damaged.write_bytes(content)
        assert not fresh.signing_key_path.exists()
        assert [each for each in fresh.artifacts_dir.rglob("*") if each.is_file()] == []
    with unserved(fresh) as empty, pytest.raises(NotFoundError, match=path.name):
        restore(empty, root, name="finishline-20200101T000000Z")


def test_a_backup_under_writes_has_every_log_of_every_row(
    served: TestClient,
    fresh: Settings,
    tmp_path: Path,
    digits_submission: SubmissionParts,
    submit: Callable[..., Any],
    make_log: Callable[..., bytes],
) -> None:
    stop, statuses = threading.Event(), list[int]()

    def go_on_submitting() -> None:
        while not stop.is_set():
            digits_submission.logs["run_0.log"] = make_log(1000 + len(statuses))
            statuses.append(submit(digits_submission).status_code)

    writer = threading.Thread(target=go_on_submitting)
    writer.start()
    try:
        wait_for(lambda: statuses, seconds=30, what="a first submission", pause=0.01)
        back_up(parts_of(served), tmp_path / "backups", Choice())
    finally:
        stop.set()
        writer.join()
    assert set(statuses) == {201}
    with unserved(fresh) as empty:
        restore(empty, tmp_path / "backups")
        assert check_server(empty, files=True, proofs=True).faults == []


@pytest.mark.processes
def test_a_connection_that_is_just_being_closed_is_nobody_else(another_postgresql_url: str) -> None:
    other = Database(another_postgresql_url)
    closing = threading.Timer(0.3, other.close)
    with other.engine.connect():
        pass
    closing.start()
    place = PostgresqlPlace(Database(another_postgresql_url))

    place.require_unused()

    closing.join()
