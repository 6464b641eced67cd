"""A token ends with the one it was made with and with the one it was rotated from."""

import threading
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server.base.database import Database
from server.base.errors import NotSignedInError
from server.people import token_issue
from server.people.accounts import find_token, holder_of
from server.people.dependencies import Caller, caller_of
from tests.server.test_account_pages import ACCOUNT, secret_in
from tests.server.test_console import Console
from tests.server.test_users import database_url, on_both_databases

__all__ = ["database_url"]  # A fixture.
ME, MINE, TOKENS = "/api/v1/me", "/api/v1/me/tokens", "/api/v1/tokens"


class Tokens:
    """Makes, rotates and revokes tokens, each named by its secret."""

    def __init__(self, client: TestClient) -> None:
        self._client = client

    def status(self, secret: str) -> int:
        return self._ask("GET", ME, secret).status_code

    def number(self, secret: str) -> int:
        return int(self._ask("GET", ME, secret).json()["token_id"])

    def make(self, by: str) -> str:
        return str(self._ask("POST", MINE, by, json={}).json()["token"])

    def give(self, by: str, user: str) -> str:
        body = {"user": user, "role": "submitter"}
        return str(self._ask("POST", TOKENS, by, json=body).json()["token"])

    def rotate(self, token: str, by: str, address: str = MINE, overlap: int = 0) -> str:
        path = f"{address}/{self.number(token)}/rotate"
        answer = self._ask("POST", path, by, json={"overlap_hours": overlap})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["token"])

    def revoke(self, number: int, by: str) -> list[int]:
        answer = self._ask("DELETE", f"{TOKENS}/{number}", by)
        assert answer.status_code == 200, answer.text
        return list(answer.json()["revoked"])

    def _ask(self, method: str, path: str, secret: str, **more: Any) -> Any:
        headers = {"Authorization": f"Bearer {secret}"}
        return self._client.request(method, path, headers=headers, **more)


@pytest.fixture
def tokens(client: TestClient) -> Tokens:
    return Tokens(client)


@on_both_databases
def test_a_revoked_token_takes_all_that_descend_from_it(tokens: Tokens, ada: Any) -> None:
    stolen = tokens.make(ada.secret)
    beside = tokens.make(ada.secret)
    child = tokens.make(stolen)
    grandchild = tokens.make(child)
    friends = tokens.give(stolen, "friend")
    friends_own = tokens.make(friends)
    line = [stolen, child, grandchild, friends, friends_own]
    numbers = [tokens.number(each) for each in line]

    assert tokens.revoke(numbers[0], by=ada.secret) == sorted(numbers)
    assert [tokens.status(each) for each in line] == [401] * len(line)
    assert (tokens.status(beside), tokens.status(ada.secret)) == (200, 200)


def test_a_rotation_saves_neither_a_child_nor_the_children_of_its_maker(
    tokens: Tokens, ada: Any
) -> None:
    stolen = tokens.make(ada.secret)
    child = tokens.rotate(tokens.make(stolen), by=stolen)
    early = tokens.make(stolen)
    fresh = tokens.rotate(stolen, by=stolen)
    assert [tokens.status(each) for each in (stolen, child, early, fresh)] == [401, 200, 200, 200]
    ended = [tokens.number(each) for each in (early, child, fresh)]

    assert tokens.revoke(tokens.number(fresh), by=ada.secret) == sorted(ended)
    assert [tokens.status(each) for each in (child, early, fresh)] == [401] * 3


def test_the_token_that_took_over_ends_with_the_one_it_took_over_from(
    tokens: Tokens, ada: Any
) -> None:
    old = tokens.make(ada.secret)
    number = tokens.number(old)
    fresh = tokens.rotate(old, by=old)

    assert tokens.revoke(number, by=ada.secret) == [number + 1]
    assert tokens.status(fresh) == 401


def test_a_token_that_an_organiser_rotated_for_somebody_ends_with_the_organisers(
    tokens: Tokens, ada: Any, alice: Any
) -> None:
    """The secret of the fresh one was shown to the holder of the organiser's."""
    stolen = tokens.make(ada.secret)
    shown = tokens.rotate(alice.secret, by=stolen, address=TOKENS, overlap=24)

    tokens.revoke(tokens.number(stolen), by=ada.secret)
    assert (tokens.status(shown), tokens.status(alice.secret)) == (401, 200)


def test_a_token_made_in_a_browser_ends_with_the_token_that_signed_in(
    client: TestClient, tokens: Tokens, alice: Any, olivia: Any
) -> None:
    console = Console(client, alice)
    made = secret_in(console.done(f"{ACCOUNT}/tokens", scopes_read="on"))
    client.cookies.clear()
    numbers = [tokens.number(each) for each in (alice.secret, made)]

    assert tokens.revoke(numbers[0], by=olivia.secret) == numbers
    assert tokens.status(made) == 401


def test_the_page_and_the_audit_log_say_which_tokens_ended_together(
    client: TestClient, tokens: Tokens, olivia: Any
) -> None:
    first = tokens.make(olivia.secret)
    number = tokens.number(first)
    tokens.make(first)
    page = Console(client, olivia).done(f"{ACCOUNT}/tokens/{number}/revoke")

    assert f"also revoked: 1 made with it or rotated from it: {number + 1}." in page
    records = client.get("/api/v1/audit", headers=olivia.headers).json()["records"][:2]
    told = [(r["subject_id"], r["after"].get("revoked_with")) for r in records]
    assert told == [(str(number + 1), number), (str(number), None)]


@on_both_databases
def test_a_token_that_is_made_while_its_maker_is_revoked_ends_too(
    client: TestClient, tokens: Tokens, database: Database, alice: Any
) -> None:
    caller = _caller(database, alice.secret)
    made, revoked = threading.Event(), list[int]()

    def revoke() -> None:
        made.wait(10)
        with database.write() as session:
            revoked.extend(token_issue.revoke_own_token(session, caller, caller.token_id))

    thread = threading.Thread(target=revoke)
    thread.start()
    with database.write() as session:
        fresh = token_issue.make_own_token(session, caller, token_issue.Wanted("submitter"))
        made.set()
        thread.join(0.3)  # It waits for this transaction.
        secret, number = fresh.secret, fresh.token.id
    thread.join(10)
    assert revoked == [caller.token_id, number]
    assert tokens.status(secret) == 401

    # The other way round: the token was good when the request came, and no more.
    with database.write() as session, pytest.raises(NotSignedInError, match="was revoked"):
        token_issue.make_own_token(session, caller, token_issue.Wanted("submitter"))


def _caller(database: Database, secret: str) -> Caller:
    with database.read() as session:
        return caller_of(holder_of(find_token(session, secret)))


def test_a_workers_token_makes_none_and_is_rotated_by_an_organiser(
    client: TestClient, tokens: Tokens, walter: Any, olivia: Any
) -> None:
    number = tokens.number(walter.secret)
    assert client.get(ME, headers=walter.headers).json()["scopes"] == ["read", "work"]
    for path in (MINE, f"{MINE}/{number}/rotate"):
        assert client.post(path, json={}, headers=walter.headers).status_code == 403
    asked = {"user": "walter", "role": "worker", "scopes": ["work", "tokens"]}
    assert client.post(TOKENS, json=asked, headers=olivia.headers).status_code == 422

    fresh = tokens.rotate(walter.secret, by=olivia.secret, address=TOKENS)
    assert tokens.status(fresh) == 200
