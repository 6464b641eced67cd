"""Tokens: made once, shown once, ended at once; and who am I."""

import hashlib
from datetime import datetime, timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from server.database import Database, utc_now
from server.models import Token, User

TOKENS = "/api/v1/tokens"


def test_me_tells_user_and_role(client: TestClient, alice: Any, olivia: Any) -> None:
    assert client.get("/api/v1/me", headers=alice.headers).json() == {
        "user": "alice",
        "role": "submitter",
    }
    assert client.get("/api/v1/me", headers=olivia.headers).json()["role"] == "organiser"
    assert client.get("/api/v1/me").status_code == 401


def test_a_token_is_shown_once_and_kept_as_a_hash(
    client: TestClient, olivia: Any, database: Database
) -> None:
    body = {"user": "carol", "role": "submitter", "expires_in_days": 90}
    response = client.post(TOKENS, json=body, headers=olivia.headers)

    assert response.status_code == 201
    made = response.json()
    assert made["token"].startswith("fl_")
    assert len(made["token"]) >= 40
    left = datetime.fromisoformat(made["expires_at"]) - utc_now()
    assert timedelta(days=89.9) < left <= timedelta(days=90)
    headers = {"Authorization": f"Bearer {made['token']}"}
    me = client.get("/api/v1/me", headers=headers).json()
    assert me == {"user": "carol", "role": "submitter"}
    listed = client.get(TOKENS, headers=olivia.headers)
    assert made["token"] not in listed.text
    assert [token["user"] for token in listed.json()["tokens"]] == ["carol", "olivia"]
    with database.read() as session:
        kept = session.get_one(Token, made["id"])
        assert kept.token_sha256 == hashlib.sha256(made["token"].encode()).hexdigest()


def test_a_user_may_have_several_tokens(
    client: TestClient, olivia: Any, database: Database
) -> None:
    for role in ("submitter", "worker"):
        client.post(TOKENS, json={"user": "carol", "role": role}, headers=olivia.headers)

    with database.read() as session:
        assert sorted(session.scalars(select(User.name))) == ["carol", "olivia"]


def test_a_revoked_token_is_refused_from_then_on(
    client: TestClient, alice: Any, olivia: Any
) -> None:
    listed = client.get(TOKENS, headers=olivia.headers).json()["tokens"]
    token_id = next(token["id"] for token in listed if token["user"] == "alice")

    for _ in range(2):  # Revoking twice changes nothing.
        gone = client.delete(f"{TOKENS}/{token_id}", headers=olivia.headers)
        assert gone.status_code == 204
    response = client.get("/api/v1/me", headers=alice.headers)
    assert response.status_code == 401
    assert "revoked" in response.json()["detail"]
    assert client.get("/api/v1/me", headers=olivia.headers).status_code == 200


def test_a_token_that_is_not_there_cannot_be_revoked(client: TestClient, olivia: Any) -> None:
    assert client.delete(f"{TOKENS}/999", headers=olivia.headers).status_code == 404
    assert client.delete(f"{TOKENS}/x", headers=olivia.headers).status_code == 422
    assert client.delete(f"{TOKENS}/{2**40}", headers=olivia.headers).status_code == 422


@pytest.mark.parametrize("method", ["get", "post", "delete"])
def test_only_organisers_see_make_or_end_tokens(
    method: str, client: TestClient, alice: Any, walter: Any
) -> None:
    address = f"{TOKENS}/1" if method == "delete" else TOKENS
    body = {"json": {"user": "x", "role": "organiser"}} if method == "post" else {}
    call = getattr(client, method)

    assert call(address, **body).status_code == 401
    for person in (alice, walter):
        response = call(address, headers=person.headers, **body)
        assert response.status_code == 403
        assert "organiser" in response.json()["detail"]


def test_an_admin_may_do_what_an_organiser_may_and_no_organiser_makes_one(
    client: TestClient, ada: Any, olivia: Any
) -> None:
    for person in (ada, olivia):
        assert client.get("/api/v1/audit", headers=person.headers).status_code == 200
        made = client.post(TOKENS, json={"user": "x", "role": "worker"}, headers=person.headers)
        assert made.status_code == 201
    refused = client.post(TOKENS, json={"user": "x", "role": "admin"}, headers=olivia.headers)
    assert refused.status_code in (403, 422)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"role": "submitter"}, "body.user"),
        ({"user": "", "role": "submitter"}, "body.user"),
        ({"user": "x" * 101, "role": "submitter"}, "body.user"),
        ({"user": "a\nb", "role": "submitter"}, "body.user"),
        ({"user": "a\n", "role": "submitter"}, "body.user"),
        ({"user": "a\0", "role": "submitter"}, "body.user"),
        ({"user": "=cmd()", "role": "submitter"}, "body.user"),
        ({"user": "x", "role": "admin"}, "body.role"),
        ({"user": "x", "role": "worker", "expires_in_days": 0}, "body.expires_in_days"),
        ({"user": "x", "role": "worker", "expires_in_days": -1}, "body.expires_in_days"),
        ({"user": "x", "role": "worker", "expires_in_days": 1e9}, "body.expires_in_days"),
        ({"user": "x", "role": "worker", "scope": "all"}, "body.scope"),
    ],
)
def test_a_bad_body_is_422_and_makes_no_token(
    body: dict[str, Any], field: str, client: TestClient, olivia: Any
) -> None:
    response = client.post(TOKENS, json=body, headers=olivia.headers)

    assert response.status_code == 422
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["problems"][0]["field"] == field
    assert len(client.get(TOKENS, headers=olivia.headers).json()["tokens"]) == 1


def test_a_body_that_is_no_json_is_422(client: TestClient, olivia: Any) -> None:
    headers = olivia.headers | {"Content-Type": "application/json"}
    response = client.post(TOKENS, content=b'{"user": ', headers=headers)

    assert response.status_code == 422
    assert "JSON" in response.json()["detail"]
