"""/api/v1/me/quota and /api/v1/quotas: read by whom, set by whom, written down."""

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from server.base.database import Database, utc_now
from server.base.models import Organisation, User

MINE = "/api/v1/me/quota"
ALL = "/api/v1/quotas"
ALICE = f"{ALL}/user/alice"


def put(client: TestClient, address: str, person: Any, **body: Any) -> Any:
    return client.put(address, json={"reason": "a course"} | body, headers=person.headers)


def allowed(view: dict[str, Any]) -> dict[str, Any]:
    return {use["measure"]: use["allowed"] for use in view["quotas"]}


def test_everybody_reads_their_own_and_what_holds_on_benchmarks(
    client: TestClient, alice: Any, olivia: Any, digits_submission: Any, submit: Callable[..., Any]
) -> None:
    submit(digits_submission)
    put(client, f"{ALL}/benchmark/digits", olivia, submissions_per_day=7)
    mine = client.get(MINE, headers=alice.headers).json()

    assert (mine["subject_kind"], mine["subject"]) == ("user", "alice")
    assert mine["quotas"] == [
        {"measure": "submissions_per_day", "allowed": 3, "used": 1.0, "reserved": 0.0,
         "room_at": None},
        {"measure": "gpu_seconds_per_month", "allowed": 1500, "used": 0.0, "reserved": 0.0,
         "room_at": None},
    ]  # fmt: skip
    (benchmark,) = mine["benchmarks"]
    assert (benchmark["subject"], allowed(benchmark)) == (
        "digits",
        {"submissions_per_day": 7, "gpu_seconds_per_month": None},
    )
    assert benchmark["quotas"][0]["used"] == 1
    assert client.get(MINE).status_code == 401


def test_an_organiser_sets_lifts_and_takes_back_a_quota_and_says_why(
    client: TestClient, alice: Any, olivia: Any
) -> None:
    view = put(client, ALICE, olivia, submissions_per_day=5, gpu_seconds_per_month="unlimited")
    assert view.status_code == 200
    assert allowed(view.json()) == {"submissions_per_day": 5, "gpu_seconds_per_month": None}
    listed = client.get(ALL, headers=olivia.headers).json()
    assert listed["defaults"] == {"submissions_per_day": 3, "gpu_seconds_per_month": 1500}
    assert [(row["subject"], row["measure"], row["amount"]) for row in listed["quotas"]] == [
        ("alice", "gpu_seconds_per_month", None),
        ("alice", "submissions_per_day", 5),
    ]
    back = put(client, ALICE, olivia, gpu_seconds_per_month="default", reason="it is over")
    assert allowed(back.json()) == {"submissions_per_day": 5, "gpu_seconds_per_month": 1500}
    assert allowed(client.get(ALICE, headers=olivia.headers).json()) == allowed(back.json())
    records = client.get("/api/v1/audit", headers=olivia.headers).json()["records"]
    assert [(r["action"], r["subject_id"], r["reason"]) for r in records[:2]] == [
        ("quota.set", "alice", "it is over"),
        ("quota.set", "alice", "a course"),
    ]
    assert records[0]["before"]["gpu_seconds_per_month"] == "unlimited"
    assert records[0]["after"]["gpu_seconds_per_month"] == "default"


def test_nobody_else_sets_or_reads_them(client: TestClient, alice: Any, walter: Any) -> None:
    for headers, status in ((alice.headers, 403), (walter.headers, 403), ({}, 401)):
        assert client.get(ALL, headers=headers).status_code == status
        assert client.get(ALICE, headers=headers).status_code == status
        body = {"reason": "mine", "submissions_per_day": "unlimited"}
        assert client.put(ALICE, json=body, headers=headers).status_code == status


def test_what_is_not_there_has_no_quota(client: TestClient, olivia: Any) -> None:
    for address in (f"{ALL}/user/nobody", f"{ALL}/benchmark/nothing", f"{ALL}/organisation/none"):
        assert client.get(address, headers=olivia.headers).status_code == 404
        assert put(client, address, olivia, submissions_per_day=1).status_code == 404
    assert client.get(f"{ALL}/planet/earth", headers=olivia.headers).status_code == 422


@pytest.mark.parametrize(
    "body",
    [
        {"submissions_per_day": -1},
        {"submissions_per_day": 1.5},
        {"submissions_per_day": "many"},
        {"submissions_per_day": "5"},
        {"submissions_per_day": True},
        {"submissions_per_day": 10**13},
        {"reason": " "},
        {"hours": 1},
    ],
)
def test_a_bad_body_is_422_and_sets_nothing(
    body: dict[str, Any], client: TestClient, alice: Any, olivia: Any
) -> None:
    assert put(client, ALICE, olivia, **body).status_code == 422
    assert client.get(ALL, headers=olivia.headers).json()["quotas"] == []


def test_members_of_an_organisation_have_its_quota_unless_they_have_their_own(
    client: TestClient, alice: Any, bob: Any, olivia: Any, database: Database
) -> None:
    with database.write() as session:
        university = Organisation(name="university", created_at=utc_now())
        for user in session.scalars(select(User).where(User.name.in_(("alice", "bob")))):
            user.organisation = university
    put(client, f"{ALL}/organisation/university", olivia, submissions_per_day=9)
    put(client, ALICE, olivia, submissions_per_day=1)
    seen = [client.get(MINE, headers=person.headers).json() for person in (alice, bob, olivia)]
    assert [allowed(view)["submissions_per_day"] for view in seen] == [1, 9, 3]
