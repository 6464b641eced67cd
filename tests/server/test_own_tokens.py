"""One's own tokens, and tokens that end with those they come from."""

import threading
from datetime import datetime, timedelta

import pytest

from server.base.database import utc_now
from server.base.errors import NotSignedInError
from server.base.models import Token
from server.people import tokens as tokens_room
from server.people.accounts import find_token
from server.people.callers import caller_of
from server.people.tokens import OwnTokenCreate
from tests.server.test_accounts import ACCOUNT, secret_in
from tests.server.test_console import Console
from tests.server.test_users import on_both_databases

MINE = "/api/v1/me/tokens"


ME = "/api/v1/me"


def headers_of(made):
    assert made.status_code == 201, made.text
    return {"Authorization": f"Bearer {made.json()['token']}"}


@pytest.fixture
def ends_in_ten_days(database, alice):
    """When alice's token ends."""
    end = utc_now() + timedelta(days=10)
    with database.write() as session:
        session.query(Token).filter(Token.user.has(name="alice")).one().expires_at = end
    return end


def test_a_token_is_made_within_the_one_held(client, alice, ends_in_ten_days):
    def make(headers, **body):
        return client.post(MINE, json=body, headers=headers)

    for wider in ({"role": "organiser"}, {"role": "worker"}, {"expires_in_days": 10.1}):
        assert make(alice.headers, **wider).status_code == 403, wider
    whole = make(alice.headers)
    assert datetime.fromisoformat(whole.json()["expires_at"]) == ends_in_ten_days
    short = make(alice.headers, label="nightly", expires_in_days=1)
    view = short.json()
    assert (view["user"], view["label"], view["role"]) == ("alice", "nightly", "submitter")
    assert make(headers_of(short), expires_in_days=2).status_code == 403
    assert make(alice.headers, scopes=["read"]).status_code == 422
    mine = client.get(MINE, headers=alice.headers).json()["tokens"]
    assert len(mine) == 3
    assert view["token"] not in str(mine)


def test_a_user_has_at_most_twenty_live_tokens(client, alice, ada):
    made = [client.post(MINE, json={}, headers=alice.headers) for _ in range(20)]
    assert [answer.status_code for answer in made] == [201] * 19 + [409]
    assert "20 live tokens" in made[-1].text
    given = {"user": "alice", "role": "submitter"}
    assert client.post("/api/v1/tokens", json=given, headers=ada.headers).status_code == 409

    first = made[0].json()["id"]
    assert client.delete(f"{MINE}/{first}", headers=alice.headers).is_success
    assert client.post(MINE, json={}, headers=alice.headers).status_code == 201


def test_an_organisers_token_makes_one_that_only_submits(client, olivia):
    made = client.post(MINE, json={"role": "submitter"}, headers=olivia.headers)

    headers = headers_of(made)
    assert client.get(ME, headers=headers).json()["highest_role"] == "organiser"
    assert client.get("/api/v1/audit", headers=headers).status_code == 403
    assert client.post(MINE, json={"role": "organiser"}, headers=headers).status_code == 403


def test_own_tokens_are_ended_by_their_owner_alone_and_each_change_is_logged(
    client, alice, bob, olivia
):
    made = client.post(MINE, json={"label": "old laptop"}, headers=alice.headers)
    number = made.json()["id"]
    assert client.delete(f"{MINE}/{number}", headers=bob.headers).status_code == 404
    assert client.get(ME, headers=headers_of(made)).status_code == 200
    for ended in ([number], []):  # Revoking twice changes nothing.
        gone = client.delete(f"{MINE}/{number}", headers=alice.headers)
        assert (gone.status_code, gone.json()) == (200, {"revoked": ended})
    assert client.get(ME, headers=headers_of(made)).status_code == 401

    records = client.get("/api/v1/audit", headers=olivia.headers).json()["records"]
    told = [(r["action"], r["subject_id"], r["actor"], r["after"]["user"]) for r in records]
    assert told == [
        ("token.revoke", str(number), "alice", "alice"),
        ("token.create", str(number), "alice", "alice"),
    ]
    assert records[0]["before"] == {"revoked_at": None}
    assert records[1]["after"] == {
        "user_id": 1, "user": "alice", "role": "submitter", "label": "old laptop", "made_with": 1,
    }  # fmt: skip
    assert made.json()["token"] not in str(records)


TOKENS = "/api/v1/tokens"


class Tokens:
    """Makes and revokes tokens, each named by its secret."""

    def __init__(self, client):
        self._client = client

    def status(self, secret):
        return self._ask("GET", ME, secret).status_code

    def number(self, secret):
        return int(self._ask("GET", ME, secret).json()["token_id"])

    def make(self, by):
        return str(self._ask("POST", MINE, by, json={}).json()["token"])

    def give(self, by, user):
        body = {"user": user, "role": "submitter"}
        return str(self._ask("POST", TOKENS, by, json=body).json()["token"])

    def revoke(self, number, by):
        answer = self._ask("DELETE", f"{TOKENS}/{number}", by)
        assert answer.status_code == 200, answer.text
        return list(answer.json()["revoked"])

    def _ask(self, method, path, secret, **more):
        headers = {"Authorization": f"Bearer {secret}"}
        return self._client.request(method, path, headers=headers, **more)


@pytest.fixture
def tokens(client):
    return Tokens(client)


@on_both_databases
def test_a_revoked_token_takes_all_that_descend_from_it(tokens, ada, bob):
    stolen = tokens.make(ada.secret)
    beside = tokens.make(ada.secret)
    child = tokens.make(stolen)
    grandchild = tokens.make(child)
    friends = tokens.give(stolen, bob.name)
    friends_own = tokens.make(friends)
    line = [stolen, child, grandchild, friends, friends_own]
    numbers = [tokens.number(each) for each in line]

    assert tokens.revoke(numbers[0], by=ada.secret) == sorted(numbers)
    assert [tokens.status(each) for each in line] == [401] * len(line)
    assert (tokens.status(beside), tokens.status(ada.secret)) == (200, 200)


def test_a_token_made_in_a_browser_ends_with_the_token_that_signed_in(
    client, tokens, alice, olivia
):
    console = Console(client, alice)
    made = secret_in(console.done(f"{ACCOUNT}/tokens", label="a browser's"))
    client.cookies.clear()
    numbers = [tokens.number(each) for each in (alice.secret, made)]

    assert tokens.revoke(numbers[0], by=olivia.secret) == numbers
    assert tokens.status(made) == 401


def test_the_page_and_the_audit_log_say_which_tokens_ended_together(client, tokens, olivia):
    first = tokens.make(olivia.secret)
    number = tokens.number(first)
    tokens.make(first)
    page = Console(client, olivia).done(f"{ACCOUNT}/tokens/{number}/revoke")

    assert f"also revoked: 1 made with it: {number + 1}." in page
    records = client.get("/api/v1/audit", headers=olivia.headers).json()["records"][:2]
    told = [(r["subject_id"], r["after"].get("revoked_with")) for r in records]
    assert told == [(str(number + 1), number), (str(number), None)]


@on_both_databases
def test_a_token_that_is_made_while_its_maker_is_revoked_ends_too(client, tokens, database, alice):
    caller = _caller(database, alice.secret)
    made, revoked = threading.Event(), list[int]()

    def revoke():
        made.wait(10)
        with database.write() as session:
            ended = tokens_room.revoke_my_token(session, caller, caller.token_id)
            revoked.extend(ended.revoked)

    thread = threading.Thread(target=revoke)
    thread.start()
    with database.write() as session:
        fresh = tokens_room.create_my_token(session, caller, OwnTokenCreate(role="submitter"))
        made.set()
        thread.join(0.3)  # It waits for this transaction.
        secret, number = fresh.token, fresh.id
    thread.join(10)
    assert revoked == [caller.token_id, number]
    assert tokens.status(secret) == 401

    # The other way round: the token was good when the request came, and no more.
    with database.write() as session, pytest.raises(NotSignedInError, match="was revoked"):
        tokens_room.create_my_token(session, caller, OwnTokenCreate(role="submitter"))


def _caller(database, secret):
    return caller_of(find_token(database, secret))
