"""Storage that outlasts a loss of power, a full disk, an absent database and writers at once."""

import errno
import io
import os
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from psycopg.errors import DiskFull
from sqlalchemy import text
from sqlalchemy.exc import InternalError, OperationalError, ProgrammingError

import server.app
from server.app import create_app
from server.base.artifacts import ArtifactStore
from server.base.database import Database
from server.people.accounts import create_token
from tests.server.conftest import list_stored_files
from tests.support.boards import rows_of


@pytest.fixture
def store(tmp_path):
    return ArtifactStore(tmp_path / "artifacts")


@pytest.fixture
def written(monkeypatch):
    """What is written to the disk and moved, in order: (what, number of the file)."""
    steps = []
    sync, replace = os.fsync, Path.replace

    def note_sync(number):
        sync(number)
        steps.append(("synced", os.fstat(number).st_ino))

    def note_move(path, target):
        steps.append(("moved", path.stat().st_ino))
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(Path, "replace", note_move)
    return steps


def test_a_store_makes_private_folders_and_changes_no_other(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    (tmp_path / "link").symlink_to(shared)
    store = ArtifactStore(tmp_path / "link")

    assert shared.stat().st_mode & 0o777 == 0o755
    assert store.incoming.stat().st_mode & 0o777 == 0o700
    fresh = ArtifactStore(tmp_path / "deep" / "artifacts")
    assert fresh.folder.stat().st_mode & 0o777 == 0o700


def staged_of(store, *contents):
    return [store.stage(io.BytesIO(content)) for content in contents]


def test_what_is_kept_is_read_as_it_came_and_once(store):
    long = os.urandom(300_000)
    for _ in range(2):
        staged = staged_of(store, b"same", b"same", long)
        store.settle(staged)
        store.keep(staged)

    assert [store.path_of(each.sha256).read_bytes() for each in staged] == [b"same", b"same", long]
    assert list(store.incoming.iterdir()) == []


def test_a_submission_is_on_the_disk_before_it_is_committed(
    digits_submission, submit, stored_files, settings, database, written, monkeypatch
):
    locked = []
    write = database.write

    @contextmanager
    def watched():
        locked.append(len(written))
        with write() as session:
            yield session
            locked.append(len(written))

    monkeypatch.setattr(database, "write", watched)
    assert submit(digits_submission).status_code == 201

    *_, start, end = locked  # The use of the token is written before.
    paths = [settings.artifacts_dir / path for path in stored_files()]
    files = {path.stat().st_ino for path in paths}
    folders = {path.parent.stat().st_ino for path in paths} | {settings.artifacts_dir.stat().st_ino}
    assert len(files) == 4
    # While others wait for the database, the disk writes the names of folders alone.
    assert set(written[:start]) == {("synced", each) for each in files}
    assert set(written[start : start + 4]) == {("moved", each) for each in files}
    assert set(written[start + 4 :]) == {("synced", each) for each in folders}
    assert end == len(written)


def test_sqlite_writes_every_commit_to_the_disk(database):
    with database.write() as session:
        pragma = session.connection().exec_driver_sql("PRAGMA synchronous")

        assert pragma.scalar() == 2  # FULL, by the documentation of SQLite.


def test_a_file_nobody_wants_is_swept_after_a_while(store, monkeypatch):
    old, young = staged_of(store, b"old", b"young")
    long_ago = time.time() - 7200
    os.utime(old.path, (long_ago, long_ago))
    store.sweep(older_than_seconds=3600)

    assert list(store.incoming.iterdir()) == [young.path]
    gone = store.incoming / "gone"  # while others are swept
    monkeypatch.setattr(Path, "iterdir", lambda _folder: iter([gone]))
    store.sweep(older_than_seconds=0)
    assert not gone.exists()


def test_a_start_that_fails_leaves_no_connection_open(settings, monkeypatch):
    opened = []

    def open_database(*arguments, **options):
        opened.append(Database(*arguments, **options))
        return opened[-1]

    def broken(*_, **__):
        raise OSError(errno.EIO, "a broken disk")

    monkeypatch.setattr(server.app, "Database", open_database)
    monkeypatch.setattr(ArtifactStore, "sweep", broken)

    with pytest.raises(OSError, match="a broken disk"):
        create_app(settings, dispatch=False)
    [database] = opened
    assert database.engine.pool.checkedin() == 0


@pytest.mark.parametrize(
    ("number", "status"),
    [(errno.ENOSPC, 507), (errno.EDQUOT, 507), (errno.EFBIG, 507), (errno.EIO, 500)],
)
def test_a_full_disk_refuses_a_submission_and_keeps_nothing_of_it(
    number, status, digits_submission, submit, client, settings, monkeypatch
):
    def fail(*_):
        raise OSError(number, "no room")

    client._transport.raise_server_exceptions = False
    with monkeypatch.context() as patched:
        patched.setattr(ArtifactStore, "keep", fail)
        refused = submit(digits_submission, key="once")

    assert refused.status_code == status
    if status == 507:
        assert refused.json()["title"] == "Insufficient storage"
        assert refused.headers["Retry-After"] == "60"
        assert list_stored_files(settings) == []
    assert rows_of(client.get("/api/v1/leaderboards/digits").json()) == []
    assert submit(digits_submission, key="once").status_code == 201


@pytest.fixture
def ask_when(olivia, monkeypatch):
    def ask(error):
        def fail(_, *_viewer):
            raise error

        monkeypatch.setattr(Database, "read", fail)
        return olivia.get("/api/v1/verifications")

    return ask


def test_a_database_without_room_is_a_full_disk(ask_when, database):
    if database.is_sqlite:
        with database.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA max_page_count = 1")
            with pytest.raises(OperationalError) as caught:
                connection.exec_driver_sql("CREATE TABLE filler AS SELECT zeroblob(9000000) AS x")
        cause = caught.value.orig
    else:
        cause = DiskFull("could not extend file")

    answer = ask_when(OperationalError("INSERT", {}, cause))

    assert (answer.status_code, answer.json()["title"]) == (507, "Insufficient storage")
    assert answer.headers["Retry-After"] == "60"


@pytest.mark.parametrize(
    ("error", "sqlstate", "status"),
    [
        (OperationalError, None, 503),  # A database that is away.
        (InternalError, "25006", 503),  # read_only_sql_transaction: a standby.
        (ProgrammingError, "42P01", 503),  # undefined_table: a failover to an empty database.
        (ProgrammingError, "42601", 500),  # syntax_error: a mistake of ours.
    ],
)
def test_wrong_database_is_told_in_one_line(error, sqlstate, status, ask_when, caplog):
    cause = Exception("the words of the database")
    cause.sqlstate = sqlstate

    answer = ask_when(error("UPDATE", {}, cause))
    (line,) = [line for line in caplog.records if line.name == "server.base.error_answers"]

    assert answer.status_code == status
    assert answer.headers["Content-Type"] == "application/problem+json"
    if status == 503:
        assert answer.headers["Retry-After"] == "1"
        assert "the words of the database" in line.getMessage()
        assert line.exc_info is None
    else:
        assert line.exc_info is not None


def test_lost_log_is_told_by_its_hash(digits_submission, submit, client, settings, caplog):
    address = f"/api/v1/submissions/{submit(digits_submission).json()['id']}"
    sha256 = client.get(address).json()["runs"][1]["log_sha256"]
    (settings.artifacts_dir / sha256[:2] / sha256).unlink()
    answer = client.get(f"{address}/runs/1/log")
    (line,) = [line for line in caplog.records if line.name == "server.base.error_answers"]

    assert (answer.status_code, answer.json()["title"]) == (500, "Lost file")
    assert sha256 in answer.json()["detail"]
    assert sha256 in line.getMessage()
    assert line.exc_info is None


@pytest.mark.nightly
def test_locked_table_is_not_waited_for(postgresql_url, settings, digits_submission, monkeypatch):
    monkeypatch.setattr(server.app, "LOCK_SECONDS", 0.2)
    database = Database(postgresql_url)
    with database.write() as session:
        token = create_token(session, user_name="alice", role="submitter", expires_in=None)
    app = create_app(settings.model_copy(update={"database_url": postgresql_url}), dispatch=False)

    def send():
        return client.post(
            "/api/v1/submissions",
            files=digits_submission.files(),
            headers={"Authorization": f"Bearer {token.secret}", "Idempotency-Key": "once"},
        )

    with TestClient(app) as client:
        with database.write() as holder:
            holder.execute(text("LOCK TABLE submissions IN ACCESS EXCLUSIVE MODE"))
            refused = send(), client.get("/api/v1/submissions")
        taken = send()
    database.close()

    for answer in refused:
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert taken.status_code == 201
