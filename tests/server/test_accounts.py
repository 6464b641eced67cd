"""Tokens: made once, shown once, ended at once; and who am I."""

import hashlib
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from server.base.database import Database, utc_now
from server.base.models import Token, User

TOKENS = "/api/v1/tokens"


def test_me_tells_user_and_role(client: TestClient, alice: Any, olivia: Any) -> None:
    me = client.get("/api/v1/me", headers=alice.headers).json()
    assert me == {
        "user": "alice", "organisation": None, "email": None, "highest_role": "submitter",
        "token_id": me["token_id"], "label": None, "role": "submitter",
        "scopes": ["read", "submit", "tokens"], "expires_at": None,
    }  # fmt: skip
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
    assert (me["user"], me["role"], me["expires_at"]) == ("carol", "submitter", made["expires_at"])
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

    for ended in ([token_id], []):  # Revoking twice changes nothing.
        gone = client.delete(f"{TOKENS}/{token_id}", headers=olivia.headers)
        assert (gone.status_code, gone.json()) == (200, {"revoked": ended})
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


def test_an_organiser_makes_and_ends_tokens_of_submitters_and_workers_alone(
    client: TestClient, ada: Any, olivia: Any, alice: Any, make_person: Callable[..., Any]
) -> None:
    make_person("otto", "organiser")
    for role, by_olivia in (
        ("submitter", 201),
        ("worker", 201),
        ("organiser", 403),
        ("admin", 403),
    ):
        body = {"user": f"new {role}", "role": role}
        assert client.post(TOKENS, json=body, headers=olivia.headers).status_code == by_olivia
        assert client.post(TOKENS, json=body, headers=ada.headers).status_code == 201
    # Nor does one act in the name of an organiser or admin: not even as a submitter.
    for name in ("otto", "ada"):
        body = {"user": name, "role": "submitter"}
        assert client.post(TOKENS, json=body, headers=olivia.headers).status_code == 403
    own = client.post(TOKENS, json=body | {"user": "olivia"}, headers=olivia.headers)
    assert own.status_code == 201

    every = client.get(TOKENS, headers=ada.headers).json()["tokens"]
    seen = client.get(TOKENS, headers=olivia.headers).json()["tokens"]
    assert {t["user"] for t in every} >= {"ada", "otto", "alice", "olivia", "new admin"}
    assert {t["user"] for t in seen} == {"alice", "olivia", "new submitter", "new worker"}
    only = client.get(TOKENS, params={"user": "alice"}, headers=olivia.headers).json()["tokens"]
    assert [t["user"] for t in only] == ["alice"]
    for token in every:
        theirs = token["user"] in ("ada", "otto", "new admin", "new organiser")
        if token["user"] != "olivia":
            address = f"{TOKENS}/{token['id']}"
            rotated = client.post(f"{address}/rotate", json={}, headers=olivia.headers)
            ended = client.delete(address, headers=olivia.headers)
            wanted = (403, 403) if theirs else (201, 200)
            assert (rotated.status_code, ended.status_code) == wanted, token


def test_admins_end_anybodys_token_and_organisers_their_own_beside(
    client: TestClient, ada: Any, olivia: Any, make_person: Callable[..., Any]
) -> None:
    make_person("otto", "organiser")
    every = client.get(TOKENS, headers=ada.headers).json()["tokens"]
    ids = {token["user"]: token["id"] for token in every}
    for person, whose in ((ada, "otto"), (olivia, "olivia"), (ada, "ada")):
        address = f"{TOKENS}/{ids[whose]}"
        assert client.delete(address, headers=person.headers).status_code == 200, whose
    assert client.get(TOKENS, headers=olivia.headers).status_code == 401


def test_what_takes_over_from_a_token_ends_as_told_or_as_that_would_have(
    client: TestClient, olivia: Any
) -> None:
    def rotate(**how: Any) -> float:
        body = {"user": "carol", "role": "submitter", "expires_in_days": 30}
        made = client.post(TOKENS, json=body, headers=olivia.headers).json()
        address = f"{TOKENS}/{made['id']}/rotate"
        ends_at = client.post(address, json=how, headers=olivia.headers).json()["expires_at"]
        left: timedelta = datetime.fromisoformat(ends_at) - utc_now()
        return round(left / timedelta(days=1), 2)

    assert rotate() == 30
    assert rotate(expires_in_days=7) == 7
    assert rotate(expires_in_days=60) == 60


def test_an_organiser_reaches_no_lesser_token_of_an_admin_nor_renews_their_own(
    client: TestClient, ada: Any, olivia: Any
) -> None:
    body = {"user": "ada", "role": "submitter"}
    lesser = client.post(TOKENS, json=body, headers=ada.headers).json()["id"]
    listed = client.get(TOKENS, headers=olivia.headers).json()["tokens"]
    (own,) = [token["id"] for token in listed]

    for token_id in (lesser, own):
        address = f"{TOKENS}/{token_id}/rotate"
        assert client.post(address, json={}, headers=olivia.headers).status_code == 403
    assert client.delete(f"{TOKENS}/{lesser}", headers=olivia.headers).status_code == 403


def test_no_token_goes_beyond_its_users_role_or_gives_what_its_maker_lacks(
    client: TestClient, ada: Any, olivia: Any, walter: Any, database: Database
) -> None:
    def make(person: Any, **body: Any) -> Any:
        return client.post(TOKENS, json={"user": "walter"} | body, headers=person.headers)

    for person in (ada, olivia):
        beyond = make(person, role="submitter")
        assert beyond.status_code == 409
        assert "walter is worker" in beyond.json()["detail"]
    assert make(olivia, role="worker", scopes=["submit"]).status_code == 422
    made = make(olivia, role="worker", scopes=["work"], label="node 3")
    assert (made.json()["scopes"], made.json()["label"]) == (["work"], "node 3")
    headers = {"Authorization": f"Bearer {made.json()['token']}"}
    assert client.get("/api/v1/me/tokens", headers=headers).status_code == 403

    with database.write() as session:
        for token in session.scalars(select(Token).where(Token.role.in_(("admin", "organiser")))):
            token.scopes = ["read", "organise"]
    assert make(olivia, user="carol", role="submitter").status_code == 403
    assert make(olivia, user="carol", role="submitter", scopes=["read"]).status_code == 201
    assert make(ada, user="dora", role="organiser", scopes=["read"]).status_code == 403


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
        ({"user": ".x", "role": "submitter"}, "body.user"),
        ({"user": "x", "role": "king"}, "body.role"),
        ({"user": "x", "role": "worker", "scopes": []}, "body.scopes"),
        ({"user": "x", "role": "worker", "scopes": ["fly"]}, "body.scopes.0"),
        ({"user": "x", "role": "worker", "label": "a\nb"}, "body.label"),
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
