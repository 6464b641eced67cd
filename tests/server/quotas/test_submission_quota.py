"""So many submissions in 24 hours: counted from what is stored, exact under concurrency."""

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

from sqlalchemy import select

from server.base.database import utc_now
from server.base.models import Submission
from tests.support.both_databases import database_url, on_sqlite  # noqa: F401

HOUR = timedelta(hours=1)


def age(database, hours):
    """Make the submissions so old, the oldest first."""
    with database.write() as session:
        rows = session.scalars(select(Submission).order_by(Submission.submitted_at))
        for row, old in zip(rows, hours, strict=True):
            row.submitted_at = utc_now() - old * HOUR


def test_the_quota_is_full_says_when_there_is_room_and_keeps_nothing(
    digits_submission, submit, database, client, alice, bob, olivia, row_counts, stored_files
):
    first = submit(digits_submission, key="one")
    assert [submit(digits_submission).status_code for _ in range(2)] == [201, 201]
    age(database, [20.0, 10.0, 1.0])
    before, files = row_counts(), stored_files()
    refused = submit(digits_submission)

    assert refused.status_code == 429
    assert 4 * 3600 - 60 <= int(refused.headers["Retry-After"]) <= 4 * 3600
    detail = refused.json()["detail"]
    assert "You have made 3 submissions in 24 hours, 3 are allowed." in detail
    mine = client.get("/api/v1/me/quota", headers=alice.headers).json()["quotas"][0]
    left = datetime.fromisoformat(mine["room_at"]) - utc_now()
    assert timedelta(hours=3.9) < left <= timedelta(hours=4)
    assert f"{mine['room_at'][:10]} {mine['room_at'][11:19]} UTC" in detail
    assert (row_counts(), stored_files()) == (before, files)
    scraped = client.get("/metrics").text
    assert 'finishline_quota_refusals_total{measure="submissions_per_day"} 1.0' in scraped

    # What was answered before is answered again; others, and who is an organiser, go on.
    again = submit(digits_submission, key="one")
    assert (again.status_code, again.json()["id"]) == (201, first.json()["id"])
    assert submit(digits_submission, by=bob).status_code == 201
    assert submit(digits_submission, by=olivia).status_code == 201
    with database.write() as session:
        session.get_one(Submission, first.json()["id"]).submitted_at -= 5 * HOUR
    assert submit(digits_submission).status_code == 201
    assert submit(digits_submission).status_code == 429


@on_sqlite
def test_archives_count_for_nobody(digits_submission, submit, database, client, alice):
    assert submit(digits_submission).status_code == 201
    with database.write() as session:
        for row in session.scalars(select(Submission)):
            row.evidence = "published"
    assert client.get("/api/v1/me/quota", headers=alice.headers).json()["quotas"][0]["used"] == 0


@on_sqlite
def test_quota_of_nothing_is_refused(digits_submission, submit, client, olivia):
    body = {"submissions_per_day": 0, "reason": "the course is over"}
    client.put("/api/v1/quotas/alice", json=body, headers=olivia.headers).raise_for_status()
    assert submit(digits_submission).status_code == 403


def test_concurrent_requests_get_no_more_than_is_allowed(digits_submission, submit, database):
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: submit(digits_submission), range(8)))
    assert sorted(answer.status_code for answer in answers) == [201] * 3 + [429] * 5
    with database.read() as session:
        assert len(session.scalars(select(Submission.id)).all()) == 3
