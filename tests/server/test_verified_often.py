"""A submission that was verified many times is read as lightly as one that was verified once.

Each read of it reads its verifications, so what each of them brings along is multiplied by them,
and by the requests at work.
"""

import gc
import re
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import insert

from server.base.database import Database
from server.base.models import Attempt, Submission, Verification
from tests.support.pages import BROWSER, words_of
from tests.support.statements import statements_of

# More than a page shows with their reasons.
MANY = 14
# More than there are threads that may each hold their last.
READS = 12


@pytest.fixture
def verified(
    replay: Any, make_report: Callable[..., Any], database: Database
) -> tuple[str, list[str]]:
    """A submission with one published verification and many later ones; their ids in order."""
    assert replay.report(replay.claim().json(), make_report(replay.seeds())).status_code == 200
    with database.write() as session:
        first = session.get_one(Verification, replay.verification_id)
        row, attempt = (
            {column.key: getattr(one, column.key) for column in type(one).__table__.c}
            for one in (first, first.attempts[0])
        )
        for number in range(MANY):
            asked = first.created_at + timedelta(hours=number + 1)
            session.execute(
                insert(Verification), [row | {"id": f"again-{number}", "created_at": asked}]
            )
            session.execute(
                insert(Attempt),
                [
                    attempt
                    | {"id": f"try-{number}", "verification_id": f"again-{number}"}
                    | {"token_sha256": None}
                ],
            )
    return replay.submission_id, [first.id, *(f"again-{number}" for number in range(MANY))]


def test_a_submission_is_read_without_what_is_long_of_its_verifications(
    verified: tuple[str, list[str]], client: TestClient, database: Database
) -> None:
    submission_id, ids = verified
    with statements_of(database) as sent:
        shown = client.get(f"/api/v1/submissions/{submission_id}").json()

    assert [each["id"] for each in shown["verifications"]] == ids
    long = ("verifications.control_points", "verifications.reasons", "FROM attempts")
    assert not [statement for statement in sent if any(part in statement for part in long)]


def test_reading_a_submission_leaves_none_of_its_verifications_behind(
    verified: tuple[str, list[str]], client: TestClient
) -> None:
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


def test_a_page_has_the_latest_verdicts_and_the_published_one_and_names_the_others(
    verified: tuple[str, list[str]], client: TestClient, database: Database
) -> None:
    submission_id, ids = verified
    with statements_of(database) as sent:
        page = client.get(f"/submissions/{submission_id}", headers=BROWSER).text

    full = re.findall(r'<span><a class="mono" href="/verifications/([^"]+)">', page)
    assert full == [*reversed(ids[-10:]), ids[0]]
    assert all(f'href="/verifications/{each}"' in page for each in ids)
    assert f"{len(ids) - 3} earlier" in words_of(page)
    assert page.count("waits for a decision. ") == 3
    assert f"{MANY - 3} earlier verdicts wait for a decision too." in words_of(page)
    assert not [statement for statement in sent if "verifications.control_points" in statement]
    assert len([statement for statement in sent if "verifications.reasons" in statement]) == 1


def test_a_list_of_verifications_reads_the_long_of_those_it_shows_at_once(
    verified: tuple[str, list[str]], client: TestClient, database: Database
) -> None:
    _, ids = verified
    with statements_of(database) as sent:
        shown = client.get("/api/v1/verifications?limit=3").json()["verifications"]

    assert [each["id"] for each in shown] == list(reversed(ids[-3:]))
    assert all(each["control_points"] and each["reasons"] and each["attempts"] for each in shown)
    for long in ("verifications.control_points", "verifications.reasons", "FROM attempts"):
        assert len([statement for statement in sent if long in statement]) == 1
