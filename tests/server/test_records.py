"""The records of a board, found among the few that matter, are those among all of it."""

from datetime import UTC, date, datetime, timedelta
from random import Random

import pytest
from sqlalchemy import delete, insert, select

from server.base.models import PublishedResult, RunRow, Submission
from server.boards import records as queries
from server.boards.records import Contender, _find_records, lowest_records, record_history
from tests.support.both_databases import database_url  # noqa: F401
from tests.support.build import SOURCE

DAY = datetime(2026, 11, 1, 12, tzinfo=UTC)


@pytest.fixture
def fill(digits_submission, submit, database):
    """Puts so many submissions in the place of all others; returns the times of their runs."""
    sent = submit(digits_submission).json()["id"]
    with database.read() as session:
        like = {
            c.key: getattr(session.get(Submission, sent), c.key) for c in Submission.__table__.c
        }

    def put(random, count):
        rows = [like | own_figures(random, f"r{number:02}") for number in range(count)]
        facts = [
            PublishedResult(submission_id=row["id"], published_on=row.pop("day"), source=SOURCE)
            for row in rows
        ]
        runs = {row["id"]: times_of(random, row["tta_seconds"]) for row in rows}
        with database.write() as session:
            session.execute(delete(RunRow))
            session.execute(delete(PublishedResult))
            session.execute(delete(Submission))
            session.execute(insert(Submission), rows)
            session.add_all(facts)
            session.execute(
                insert(RunRow),
                [
                    {"submission_id": name, "index": index, "file": "a", "log_sha256": ""}
                    | {"log_bytes": 1, "reached": True, "tta_seconds": seconds, "curve": []}
                    for name, times in runs.items()
                    for index, seconds in enumerate(times)
                ],
            )
        return runs

    return put


def own_figures(random, name):
    """Days and moments that meet, times that are equal, and some that can hold nothing."""
    moment = DAY + timedelta(hours=random.randrange(0, 100, 6))
    named_day = date(2026, 11, random.randint(1, 6)) if random.random() < 0.4 else None
    return {
        "id": name,
        "idempotency_key": None,
        "division": random.choice(("closed", "closed", "open")),
        "status": random.choice(("claimed", "verified", "verified", "rejected", "inconclusive")),
        "evidence": "published",
        "eligible": random.random() < 0.9,
        "withdrawn_at": DAY if random.random() < 0.1 else None,
        "embargoed": random.random() < 0.1,
        "tta_seconds": random.choice((None, 40.0, 50.0, 50.0, 51.0, 60.0, 70.0, 80.0, 90.0)),
        "submitted_at": moment,
        "day": named_day,
        "result": {"raw_tta_seconds": None},
    }


def times_of(random, seconds):
    spread = random.choice((0.001, 0.1))
    count = random.choice((1, 2, 5)) if seconds else 0
    return [(seconds or 0.0) * random.lognormvariate(0.0, spread) for _ in range(count)]


def among_all(database, runs, division):
    """The rule, given everything that is not withdrawn or hidden."""
    with database.write() as session:
        rows = session.scalars(select(Submission).where(Submission.division == division)).all()
        return record_history(
            Contender(
                row.id,
                (row.published_on or row.submitted_at).isoformat(),
                row.tta_seconds,
                runs[row.id],
            )
            for row in rows
            if row.withdrawn_at is None and not row.embargoed
            if row.eligible and row.status in ("claimed", "verified") and row.tta_seconds
        )


def test_records_found_among_those_that_matter_are_the_records_among_all(fill, database, digits):
    found = shown = 0
    for seed in range(25):
        random = Random(seed)
        runs = fill(random, random.choice((1, 5, 30, 30)))
        with database.read() as session:
            records = _find_records(session, digits, version=seed)
            lowest = lowest_records(records).get("published")
        for division in records.divisions:
            history = among_all(database, runs, division.division)
            others = {
                "submitter",
                "display_name",
                "model",
                "hardware",
                "status",
                "evidence",
                "check",
            }
            own = [r.model_dump(exclude=others) for r in division.records]
            assert own == [vars(r) for r in history.records], seed
            assert [(r.submission_id, r.holder, r.p_value) for r in division.not_records] == [
                (r.submission_id, r.holder, r.p_value) for r in history.not_records
            ], seed
            # What a page of all benchmarks shows is the lowest of these.
            if history.records:
                assert lowest is not None
                assert lowest.records[-1].tta_seconds <= history.records[-1].tta_seconds
                assert division.holder == history.records[-1].submission_id
                shown += lowest == division
            found += len(history.records) + len(history.not_records)
    assert found > 50
    assert shown > 10


def test_records_are_derived_once_a_version_and_again_after_a_submission(
    digits_submission, publish, client, monkeypatch
):
    derived = []

    find = queries._find_records

    def counting(session, benchmark, version):
        derived.append(benchmark.benchmark_id)
        return find(session, benchmark, version)

    monkeypatch.setattr(queries, "_find_records", counting)
    submission_id = publish(digits_submission)
    for _ in range(3):
        assert client.get("/").status_code == 200
    # The list of records is made from what the page has found.
    listed = client.get("/api/v1/benchmarks/digits/records").json()["divisions"]
    assert submission_id in {record["submission_id"] for d in listed for record in d["records"]}
    assert derived == ["digits"]

    digits_submission.claim["model"] = "another one"
    publish(digits_submission)
    client.get("/")
    assert derived == ["digits", "digits"]
