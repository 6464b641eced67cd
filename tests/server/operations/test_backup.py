"""A backup and what is made of it: the same server, its tokens and its key, or nothing changed."""

import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading

import pytest
from sqlalchemy import func, select

from finishline.rules.errors import RuleError
from server.base.artifacts import ArtifactStore
from server.base.errors import ConflictError, ContentError, NotFoundError
from server.base.models import Token
from server.base.places import SOURCE
from server.base.schema import migrate
from server.base.signing import load_signer
from server.commands.check import check_server
from server.operations.backup import back_up, restore
from server.people.accounts import create_token
from tests.server.conftest import list_stored_files, postgresql_database
from tests.support.admin import environment_of
from tests.support.both_databases import on_both_databases
from tests.support.copies import answers, serving, settings_of, unserved
from tests.support.processes import wait_for
from tests.support.services import services_of


@pytest.fixture
def another_postgresql_url(postgresql):
    with postgresql_database(postgresql) as url:
        yield url


@pytest.fixture
def fresh(request, database_url, tmp_path):
    url = f"sqlite:///{tmp_path / 'fresh' / 'finishline.db'}"
    if database_url.startswith("postgresql"):
        url = request.getfixturevalue("another_postgresql_url")
    return settings_of(tmp_path / "fresh", url)


@pytest.fixture
def served(replay, client, olivia, settings):
    """A server with a verified submission, and an organiser who is signed in at the console."""
    assert replay.finish()["outcome"] == "verified"
    form = {"token": olivia.secret}
    client.post("/console/sign-in", data=form, headers={"Origin": "http://testserver"})
    client.browser = dict(client.cookies)
    assert client.get("/account", follow_redirects=False).status_code == 200
    client.cookies.clear()  # What is compared are answers to anybody.
    return client


@on_both_databases
def test_a_restored_server_is_the_same_and_takes_the_old_token(served, fresh, tmp_path, alice):
    services = services_of(served)
    expected = answers(served)
    path, _ = back_up(services, tmp_path / "backups")
    for private, mode in ((path, "700"), (path / "signing-key.pem", "600")):
        assert oct(private.stat().st_mode)[-3:] == mode

    with unserved(fresh) as empty:
        restore(empty, path)
    assert oct(fresh.signing_key_path.stat().st_mode)[-3:] == "600"
    with serving(fresh) as second:
        assert answers(second) == expected
        second.cookies.update(served.browser)
        assert second.get("/account", follow_redirects=False).status_code == 303
        second.cookies.clear()
        me = second.get("/api/v1/me", headers=alice.headers)
        assert (me.status_code, me.json()["user"]) == (200, "alice")
        assert second.get("/api/v1/keys").json() == served.get("/api/v1/keys").json()
        assert check_server(services_of(second), files=True, proofs=True).faults == []


def test_backup_of_sqlite_does_not_go_into_postgresql(served, another_postgresql_url, tmp_path):
    back_up(services_of(served), tmp_path / "backups")
    settings = settings_of(tmp_path / "moved", another_postgresql_url)
    with unserved(settings) as empty, pytest.raises(ConflictError, match="is of sqlite, expected"):
        restore(empty, tmp_path / "backups")


@on_both_databases
def test_what_is_there_is_not_replaced(served, tmp_path, digits_submission, submit):
    services = services_of(served)
    back_up(services, tmp_path / "backups")
    submit(digits_submission)
    expected = answers(served)
    with pytest.raises(ConflictError, match=r"has rows in .* and [0-9]+ more, .* replaces nothing"):
        restore(services, tmp_path / "backups")
    assert answers(served) == expected


def test_a_backup_is_as_its_own_key_signed_it(served, fresh, tmp_path):
    path, manifest = back_up(services_of(served), tmp_path / "backups")
    listed = change(path / "manifest.json", manifest.made_at.encode(), b"2020-01-01T00:00:00+00:00")
    told = refuse_restore(fresh, tmp_path / "backups", RuleError)
    assert "changed, or another key signed it" in told

    (path / "manifest.json").write_bytes(listed)
    said = []
    with unserved(fresh) as empty:
        restore(empty, tmp_path / "backups", say=said.append)
    key_id = served.get("/api/v1/keys").json()["keys"][0]["id"]
    assert f"Signed by key {key_id}: is it the one that you noted of your server?" in said
    other = settings_of(tmp_path / "other", f"sqlite:///{tmp_path / 'other' / 'finishline.db'}")
    load_signer(other.signing_key_path)
    with unserved(other) as empty, pytest.raises(ConflictError, match="another key than the"):
        restore(empty, tmp_path / "backups")


def test_a_damaged_backup_is_named_and_changes_nothing(served, settings, fresh, tmp_path):
    root = tmp_path / "backups"
    with unserved(fresh) as empty, pytest.raises(NotFoundError, match="No backup in"):
        restore(empty, root)
    path, _ = back_up(services_of(served), root)
    log = min(path.glob("logs/*/*"))
    for damaged in (log, path / "signing-key.pem", path / "finishline.db"):
        content = damaged.read_bytes()
        damaged.write_bytes(content + b" ")
        with unserved(fresh) as empty, pytest.raises(ContentError, match=damaged.name):
            restore(empty, root)
        damaged.write_bytes(content)
        assert not fresh.signing_key_path.exists()
        assert [each for each in fresh.artifacts_dir.rglob("*") if each.is_file()] == []
    with unserved(fresh) as empty, pytest.raises(NotFoundError, match=path.name):
        restore(empty, root, name="backup-20200101T000000Z")


def change(path, old, new):
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, 1))
    return content


def refuse_restore(fresh, root, kind=ContentError):
    with unserved(fresh) as empty:
        with pytest.raises(kind) as error:
            restore(empty, root)
        assert empty.database.is_missing()
    assert not fresh.signing_key_path.exists()
    assert list_stored_files(fresh) == []
    return str(error.value)


def test_backup_of_another_schema_is_refused(served, fresh, tmp_path):
    path, manifest = back_up(services_of(served), tmp_path / "backups")
    change(path / "manifest.json", manifest.schema_revision.encode(), b"0061")

    told = refuse_restore(fresh, tmp_path / "backups", ConflictError)
    assert "schema 0061" in told
    assert (manifest.code.commit or "commit unknown") in told


def test_a_restore_reads_plain_files_that_a_backup_has_and_unpacks_nothing(served, fresh, tmp_path):
    root, outside = tmp_path / "backups", tmp_path / "outside"
    path, _ = back_up(services_of(served), root)
    key = path / "signing-key.pem"
    key.rename(outside)
    key.symlink_to(outside)
    assert "signing-key.pem: a link" in refuse_restore(fresh, root)

    key.unlink()
    shutil.copy(outside, key)
    (path / "more").write_text("unknown")
    assert "more: not a file of a backup" in refuse_restore(fresh, root)
    (path / "more").unlink()
    listed = (path / "manifest.json").read_bytes()
    for elsewhere in (str(outside), "../../outside", "logs/00/../../../../outside"):
        change(path / "manifest.json", b'"signing-key.pem"', f'"{elsewhere}"'.encode())
        assert f"{elsewhere}: not a file of a backup" in refuse_restore(fresh, root)
        (path / "manifest.json").write_bytes(listed)

    archive = tmp_path / "backups.tar"
    with tarfile.open(archive, "w") as target:
        target.add(root)
    before = sorted(tmp_path.rglob("*"))
    assert "unpacks no archive" in refuse_restore(fresh, archive)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("linked", ["", "logs", "logs/00"])
def test_a_link_in_a_backup_is_refused_and_its_goal_left_alone(served, fresh, tmp_path, linked):
    root, goal = tmp_path / "backups", tmp_path / "goal"
    path, _ = back_up(services_of(served), root)
    place = path / linked if linked else path
    if place.is_dir():
        shutil.copytree(place, goal)
        shutil.rmtree(place)
    goal.mkdir(exist_ok=True)
    goal.chmod(0o755)
    before = (sorted(goal.rglob("*")), goal.stat().st_mode)
    place.symlink_to(goal)

    assert f"{linked or path.name}: " in (told := refuse_restore(fresh, root))
    assert "a link" in told or "not a file" in told
    assert (sorted(goal.rglob("*")), goal.stat().st_mode) == before


@on_both_databases
def test_a_store_that_fails_leaves_the_database_as_it_was(served, fresh, tmp_path, monkeypatch):
    back_up(services_of(served), tmp_path / "backups")

    def fail(store, staged):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched, unserved(fresh) as empty:
        patched.setattr(ArtifactStore, "settle", fail)
        with pytest.raises(OSError, match="No space left"):
            restore(empty, tmp_path / "backups")
    assert not fresh.signing_key_path.exists()
    with unserved(fresh) as empty:
        restore(empty, tmp_path / "backups")
    assert len(list_stored_files(fresh)) == 4


@on_both_databases
def test_ids_go_on_after_the_last_one(served, fresh, tmp_path):
    with services_of(served).database.read() as session:
        last = session.scalar(select(func.max(Token.id)))
    back_up(services_of(served), tmp_path / "backups")
    with unserved(fresh) as empty:
        restore(empty, tmp_path / "backups")
        with empty.database.write() as session:
            made = create_token(session, user_name="new", role="submitter", expires_in=None)
            assert made.token.id == last + 1


@on_both_databases
def test_backup_under_writes_is_whole(served, fresh, tmp_path, digits_submission, submit, make_log):
    stop, statuses = threading.Event(), []

    def go_on_submitting():
        while not stop.is_set():
            digits_submission.logs["run_0.log"] = make_log(1000 + len(statuses))
            statuses.append(submit(digits_submission).status_code)

    writer = threading.Thread(target=go_on_submitting)
    writer.start()
    try:
        wait_for(lambda: statuses, seconds=30, what="a first submission", pause=0.01)
        back_up(services_of(served), tmp_path / "backups")
    finally:
        stop.set()
        writer.join()
    assert set(statuses) == {201}
    with unserved(fresh) as empty:
        restore(empty, tmp_path / "backups")
        assert check_server(empty, files=True, proofs=True).faults == []


def test_missing_client_of_postgresql_is_named(another_postgresql_url, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    settings = settings_of(tmp_path, another_postgresql_url)
    with unserved(settings) as services:
        migrate(services.database)
        with pytest.raises(RuntimeError, match=r"pg_dump is not installed.*Hint: install"):
            back_up(services, tmp_path / "backups")
    assert [each.name for each in (tmp_path / "backups").iterdir()] == [".lock"]


def admin(settings, *arguments):
    environment = os.environ | environment_of(settings)
    command = [sys.executable, "-m", "finishline.cli.main", "admin", *arguments]
    return subprocess.Popen(command, env=environment, cwd=SOURCE, stdout=subprocess.DEVNULL)


def make_pipe(path):
    """Put a pipe in a file's place: whoever reads it waits until somebody writes. Its content."""
    content = path.read_bytes()
    path.unlink()
    os.mkfifo(path)
    return content


def reader_of(path):
    try:
        return os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None


def kill(process):
    process.send_signal(signal.SIGKILL)
    assert process.wait(timeout=20) == -signal.SIGKILL


@pytest.mark.nightly
def test_a_killed_backup_is_none(served, settings, fresh, tmp_path):
    root = tmp_path / "backups"
    log = max(settings.artifacts_dir.glob("??/*"))
    content = make_pipe(log)
    process = admin(settings, "backup", str(root))
    end = wait_for(lambda: reader_of(log), seconds=60, what="the backup to read the logs")
    kill(process)
    os.close(end)
    assert [each.name for each in root.iterdir() if "partial" in each.name]
    with unserved(fresh) as empty, pytest.raises(NotFoundError):
        restore(empty, root)

    log.unlink()
    log.write_bytes(content)
    back_up(services_of(served), root)
    assert [each.name for each in root.iterdir() if "partial" in each.name] == []
    with unserved(fresh) as empty:
        restore(empty, root)
        assert check_server(empty, files=True, proofs=True).faults == []


@pytest.mark.nightly
def test_a_restore_that_is_killed_leaves_an_empty_server(served, fresh, tmp_path):
    root = tmp_path / "backups"
    back_up(services_of(served), root)
    fresh.signing_key_path.parent.mkdir()
    os.mkfifo(fresh.signing_key_path)  # A backup may hold no pipe, so the server's own key is one.
    process = admin(fresh, "restore", str(root))
    end = wait_for(lambda: reader_of(fresh.signing_key_path), seconds=60, what="the restore")
    kill(process)
    os.close(end)
    fresh.signing_key_path.unlink()
    with unserved(fresh) as empty:
        assert empty.database.is_missing()
        restore(empty, root)
        assert check_server(empty, files=True, proofs=True).faults == []
