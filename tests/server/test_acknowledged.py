"""Acknowledged means stored: while a server is killed, with people writing."""

import hashlib

import pytest
from sqlalchemy import select

from server.base.database import Database
from server.base.models import RunRow, Submission
from server.base.visibility import ORGANISER
from tests.support.submitters import ServerProcess, Submitters

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(240)]

KILLS = 2
BETWEEN = 12


def make_submitters(server, submission, *, clients):
    """Clients who send variants of a submission, with a token made as an operator makes one."""
    token = server.run_admin("token", "--user", "ada", "--role", "submitter")["token"]
    return Submitters(server, token, submission.claim, submission.logs, clients=clients)


def assert_all_there_once(database, server, sent):
    """Every acknowledged submission is stored once, with its logs by hash, and no other."""
    with database.read(ORGANISER) as session:  # Runs of a claim are hidden from others.
        stored = {
            key: submission_id
            for submission_id, key in session.execute(
                select(Submission.id, Submission.idempotency_key)
            )
        }
        logs = {}
        for submission_id, sha256 in session.execute(
            select(RunRow.submission_id, RunRow.log_sha256)
        ):
            logs.setdefault(submission_id, set()).add(sha256)
    assert stored == {key: submission_id for key, (submission_id, _) in sent.acknowledged.items()}
    for submission_id, hashes in sent.acknowledged.values():
        assert logs[submission_id] == hashes
        for sha256 in hashes:
            content = (server.artifacts / sha256[:2] / sha256).read_bytes()
            assert hashlib.sha256(content).hexdigest() == sha256


def test_what_was_acknowledged_outlives_a_killed_server_and_is_there_once(
    sqlite_url, tmp_path, digits_submission
):
    server = ServerProcess(sqlite_url, tmp_path)
    submitters = make_submitters(server, digits_submission, clients=8)
    try:
        server.start()
        submitters.start()
        for _ in range(KILLS):
            submitters.wait_for_more(BETWEEN)
            server.kill()
            server.start()
        submitters.wait_for_more(BETWEEN)
        submitters.finish()
    finally:
        server.stop()
    database = Database(sqlite_url)
    assert len(submitters.acknowledged) >= (KILLS + 1) * BETWEEN
    assert_all_there_once(database, server, submitters)
    database.close()
