"""Acknowledged means stored: while a server is killed, and over an update, with people writing."""

import hashlib

import pytest
from sqlalchemy import MetaData, select

from server.base.database import Database
from server.base.models import RunRow, Submission
from server.base.schema import known_revisions
from server.base.viewer import ORGANISER
from tests.support.databases import set_back
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


def shared(these, those):
    """These rows by the columns that those have too: a migration's own test holds what it moves."""
    columns = set(those[0])
    return [{name: row[name] for name in row if name in columns} for row in these]


def rows(database):
    """Every row of every table."""
    found = MetaData()
    found.reflect(database.engine)
    read = {}
    with database.engine.connect() as connection:
        for table in found.sorted_tables:
            if table.name == "alembic_version":
                continue
            ordered = select(table).order_by(*table.primary_key)
            read[table.name] = [dict(row._mapping) for row in connection.execute(ordered)]
    return read


def test_an_update_loses_nothing_while_people_submit(postgresql_url, tmp_path, digits_submission):
    server = ServerProcess(postgresql_url, tmp_path)
    database = Database(postgresql_url)
    newest = known_revisions(database)[0]
    submitters = make_submitters(server, digits_submission, clients=4)
    try:
        server.start()
        submitters.start()
        submitters.wait_for_more(BETWEEN)
        server.stop()  # From here on nobody is answered, and everybody asks again.
        set_back(database, tmp_path)  # As the release of before left it.
        before = rows(database)
        too_early = server.spawn()
        assert too_early.wait(timeout=60) != 0
        assert "server.admin migrate" in server.log()

        assert server.run_admin("migrate", "--no-backup") == {"revision": newest}

        after = rows(database)
        filled = {name for name, each in before.items() if each}
        assert {"submissions", "runs", "users", "tokens", "boards"} <= filled
        for name in filled:
            assert shared(before[name], after[name]) == shared(after[name], before[name])
        server.start()
        submitters.wait_for_more(BETWEEN)
        submitters.finish()
    finally:
        server.stop()
    assert_all_there_once(database, server, submitters)
    database.close()
