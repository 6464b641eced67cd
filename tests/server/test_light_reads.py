"""Reads that stay light: few statements, an index alone, and no row left behind."""

import gc
import re
from collections import Counter
from datetime import timedelta

import pytest
from sqlalchemy import event, insert, select, update

from server.base.board_versions import raise_board_version
from server.base.models import Attempt, RunRow, Submission, Verification
from server.benchmarks.endpoints import count_submissions
from server.operations.metrics import read_figures
from tests.support.pages import BROWSER, words_of
from tests.support.statements import statements_of

BOARD = "/api/v1/leaderboards/digits"
MANY = 14  # More than a page shows with their reasons.
READS = 12  # More than there are threads that may each hold their last.


@pytest.fixture
def count_rows(database):
    given = 0

    def noted(_cursor, row):
        nonlocal given
        given += 1
        return row

    @event.listens_for(database.engine, "connect")
    def count(connection, _record):
        connection.row_factory = noted

    database.engine.dispose()
    return lambda: given


def test_submission_takes_few_statements(digits_submission, submit, database):
    assert submit(digits_submission).status_code == 201
    with statements_of(database) as sent:
        assert submit(digits_submission).status_code == 201

    begun = [text for text in sent if text.startswith("BEGIN")]
    assert begun == ["BEGIN", "BEGIN IMMEDIATE", "BEGIN"]
    assert len(sent) <= 30


def test_curves_are_read_once(digits_submission, submit, client, database):
    assert submit(digits_submission).status_code == 201
    client.get(f"{BOARD}?target=90")
    with statements_of(database) as sent:
        first = client.get(f"{BOARD}?target=91").json()
    assert submit(digits_submission).status_code == 201
    second = client.get(f"{BOARD}?target=91").json()

    assert not [text for text in sent if "runs.curve" in text]
    assert (first["total"], second["total"]) == (1, 2)


def test_size_of_a_board_costs_nothing(digits_submission, submit, client, database, count_rows):
    sent = submit(digits_submission).json()["id"]
    costs = {}
    for number in (300, 900):
        fill(database, sent, number)
        client.get(BOARD)
        with database.write() as session:
            session.execute(update(Submission).where(Submission.id == sent).values(model="x"))
            raise_board_version(session, "digits", submission_id=sent)
        rows = count_rows()
        with statements_of(database) as after_write:
            assert '"model":"x"' in client.get(BOARD).text
        costs[number] = len(after_write), count_rows() - rows
        with statements_of(database) as again:
            assert client.get(BOARD, headers={"Accept-Encoding": "gzip"}).status_code == 200
        assert [text for text in again if text != "BEGIN"][1:] == []
        with statements_of(database) as fresh:
            for _ in range(3):
                client.get(BOARD)
        assert fresh == []

    assert costs[300] == costs[900]
    statements, fetched = costs[900]
    assert statements <= 12  # Versions, what changed, first place, how it stands, its details.
    assert fetched < 20  # What changed, whatever the size of the board.


def fill(database, like, count):
    with database.write() as session:
        sent = session.get(Submission, like)
        columns = {c.key: getattr(sent, c.key) for c in Submission.__table__.c}
        run = session.scalars(select(RunRow).where(RunRow.submission_id == like)).first()
        of_run = {c.key: getattr(run, c.key) for c in RunRow.__table__.c if c.key != "id"}
        ids = [f"f{count}-{number}" for number in range(count)]
        own = {"idempotency_key": None, "eligible": True, "status": "claimed"}
        rows = [own | {"id": name, "tta_seconds": 10.0 + n} for n, name in enumerate(ids)]
        session.execute(insert(Submission), [columns | row for row in rows])
        for index in (0, 1):
            runs = [of_run | {"submission_id": name, "index": index} for name in ids]
            session.execute(insert(RunRow), runs)
        raise_board_version(session, "digits")


def test_curves_and_reports_are_read_only_where_they_are_shown(replay, client, database):
    replay.train()
    with statements_of(database) as sent:
        client.get("/api/v1/submissions")
        client.get("/api/v1/verifications")

    assert not [s for s in sent if "runs.curve" in s or "verifications.report" in s]


def test_counting_is_by_indexes_alone(submit, digits_submission, database):
    def counts(text):
        return "count(" in text and "FROM submissions" in text

    submit(digits_submission)
    with statements_of(database, counts) as sent:
        read_figures(database)
        with database.read() as session:
            assert count_submissions(session, ["digits"])["digits"].train == 1

    assert sent
    with database.engine.connect() as connection:
        for each in sent:
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {each}", each.parameters).all()
            steps = [str(row[3]) for row in plan if "USING" in row[3] and "TEMP" not in row[3]]
            (step,) = steps
            assert "USING COVERING INDEX" in step, step
            # A scrape counts the submissions of all benchmarks, at most once in five seconds.
            assert step.startswith("SEARCH") or "GROUP BY submissions.kind" in str(each), step


@pytest.fixture
def verified(replay, database):
    assert replay.train().status_code == 200
    with database.write() as session:
        first = session.get_one(Verification, replay.verification_id)
        row, attempt = (
            {column.key: getattr(one, column.key) for column in type(one).__table__.c}
            for one in (first, first.attempts[0])
        )
        for number in range(MANY):
            asked = first.created_at + timedelta(hours=number + 1)
            again = {"id": f"again-{number}", "created_at": asked, "decision": None}
            session.execute(insert(Verification), [row | again])
            tried = {"id": f"try-{number}", "verification_id": again["id"], "token_sha256": None}
            session.execute(insert(Attempt), [attempt | tried])
    return replay.submission_id, [first.id, *(f"again-{number}" for number in range(MANY))]


def test_a_submission_is_read_without_what_is_long_of_its_verifications(verified, client, database):
    submission_id, ids = verified
    with statements_of(database) as sent:
        shown = client.get(f"/api/v1/submissions/{submission_id}").json()

    assert [each["id"] for each in shown["verifications"]] == ids
    assert len(sent) <= 20
    long = ("verifications.control_points", "verifications.reasons", "FROM attempts")
    assert not [statement for statement in sent if any(part in statement for part in long)]

    # A list reads the reasons and attempts of those that it shows at once, and no band.
    with statements_of(database) as sent:
        listed = client.get("/api/v1/verifications?limit=3").json()["verifications"]
    assert [each["id"] for each in listed] == list(reversed(ids[-3:]))
    assert all(each["reasons"] and each["attempts"] for each in listed)
    assert not [statement for statement in sent if "verifications.control_points" in statement]
    assert len(sent) <= 20


def test_reading_a_submission_leaves_none_of_its_verifications_behind(verified, client):
    address = f"/api/v1/submissions/{verified[0]}"
    assert client.get(address).status_code == 200
    gc.collect()
    gc.disable()
    try:
        for _ in range(READS):
            assert client.get(address).status_code == 200
        left = Counter(type(each) for each in gc.get_objects())
    finally:
        gc.enable()

    # A thread may still hold the last that it read.
    assert left[Verification] < READS
    assert left[Attempt] + left[Submission] < READS


def test_page_has_the_latest_and_the_published_verdict(verified, client, database):
    submission_id, ids = verified
    client.get("/api/v1/benchmarks/digits/records")  # Derived from head-to-heads, once a version.
    with statements_of(database) as sent:
        page = client.get(f"/submissions/{submission_id}?tab=history", headers=BROWSER).text

    full = re.findall(r'<a class="what" href="/verifications/([^"]+)">', page)
    assert full == [*reversed(ids[-10:]), ids[0]]
    assert all(f'href="/verifications/{each}"' in page for each in ids)
    assert f"{len(ids) - 3} earlier" in words_of(page)
    assert page.count("waits for a decision. ") == 3
    assert f"{MANY - 3} earlier verdicts wait for a decision too." in words_of(page)
    assert not [statement for statement in sent if "verifications.control_points" in statement]
    assert len(sent) <= 42
