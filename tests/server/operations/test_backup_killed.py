"""A backup or a restore that is killed in the middle: each is there whole or not at all.

The middle is made sure of by a pipe in the place of a log or a key: whoever reads it waits there.
"""

import os
import signal
import subprocess
import sys

import pytest

from server.base.errors import NotFoundError
from server.base.places import SOURCE
from server.commands.check import check_server
from server.operations.backup import back_up, restore
from tests.support.copies import settings_of, unserved
from tests.support.processes import wait_for
from tests.support.services import services_of

pytestmark = pytest.mark.nightly


@pytest.fixture
def served(client, digits_submission, submit):
    """A server with a submission."""
    assert submit(digits_submission).status_code == 201
    return client


def admin(settings, *arguments):
    """A command of an administrator, as a process of its own."""
    environment = os.environ | {
        "FINISHLINE_DATABASE_URL": settings.database_url,
        "FINISHLINE_ARTIFACTS_DIR": str(settings.artifacts_dir),
    }
    command = [sys.executable, "-m", "finishline.cli.main", "admin", *arguments]
    return subprocess.Popen(command, env=environment, cwd=SOURCE, stdout=subprocess.DEVNULL)


def make_pipe(path):
    """Put a pipe in a file's place: whoever reads it waits until somebody writes. Its content."""
    content = path.read_bytes()
    path.unlink()
    os.mkfifo(path)
    return content


def reader_of(path):
    """The writing end of a pipe, None while nobody reads it."""
    try:
        return os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None


def kill(process):
    process.send_signal(signal.SIGKILL)
    assert process.wait(timeout=20) == -signal.SIGKILL


def test_a_backup_that_is_killed_is_none_and_the_next_one_is_whole(served, settings, tmp_path):
    root = tmp_path / "backups"
    fresh = settings_of(tmp_path / "fresh", f"sqlite:///{tmp_path / 'fresh' / 'finishline.db'}")
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


def test_a_restore_that_is_killed_leaves_an_empty_server(served, tmp_path):
    root = tmp_path / "backups"
    fresh = settings_of(tmp_path / "fresh", f"sqlite:///{tmp_path / 'fresh' / 'finishline.db'}")
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
