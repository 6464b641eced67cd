"""One's own tokens, and tokens that end with those they come from."""

import threading
from datetime import datetime, timedelta

import pytest

from finishline.api.people import OwnTokenCreate
from server.base.database import utc_now
from server.base.errors import NotSignedInError
from server.base.models import Token
from server.people import token_issue
from server.people.accounts import find_token, holder_of
from server.people.dependencies import caller_of
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

    for wider in (
        {"role": "organiser"}, {"role": "worker"}, {"scopes": ["organise"]},
        {"expires_in_days": 10.1},
    ):  # fmt: skip
        assert make(alice.headers, **wider).status_code in (403, 422), wider
    whole = make(alice.headers)
    assert datetime.fromisoformat(whole.json()["expires_at"]) == ends_in_ten_days
    assert whole.json()["scopes"] == ["read", "submit", "tokens"]
    narrow = make(alice.headers, label="nightly", scopes=["tokens", "read"], expires_in_days=1)
    view = narrow.json()
    assert (view["user"], view["label"], view["scopes"]) == ("alice", "nightly", ["read", "tokens"])
    # What it lacks it cannot give, nor what ends later.
    for wider in ({"scopes": ["submit"]}, {"expires_in_days": 2}):
        assert make(headers_of(narrow), **wider).status_code == 403, wider
    assert headers_of(make(headers_of(narrow), scopes=["read"]))
    submits = make(alice.headers, scopes=["submit"])
    assert make(headers_of(submits)).status_code == 403
    assert client.get(MINE, headers=headers_of(submits)).status_code == 403
    mine = client.get(MINE, headers=alice.headers).json()["tokens"]
    assert len(mine) == 5
    assert view["token"] not in str(mine)


def test_an_organisers_token_makes_one_that_only_submits(client, olivia):
    made = client.post(MINE, json={"role": "submitter"}, headers=olivia.headers)

    headers = headers_of(made)
    assert client.get(ME, headers=headers).json()["highest_role"] == "organiser"
    assert client.get("/api/v1/audit", headers=headers).status_code == 403
    assert client.post(MINE, json={"role": "organiser"}, headers=headers).status_code == 403
    back = client.post(f"{MINE}/1/rotate", json={}, headers=headers)
    assert back.status_code == 403, "a narrow token turned into the wide one"


def test_a_rotated_token_ends_at_once_or_after_the_overlap(client, alice, bob, ends_in_ten_days):
    first = client.get(ME, headers=alice.headers).json()["token_id"]
    rotated = client.post(f"{MINE}/{first}/rotate", json={}, headers=alice.headers)
    second = headers_of(rotated)
    view = rotated.json()
    assert (view["rotated_from"], view["role"]) == (first, "submitter")
    assert datetime.fromisoformat(view["expires_at"]) == ends_in_ten_days
    refused = client.get(ME, headers=alice.headers)
    assert (refused.status_code, "revoked" in refused.json()["detail"]) == (401, True)
    assert client.post(f"{MINE}/{first}/rotate", json={}, headers=second).status_code == 409

    address = f"{MINE}/{view['id']}/rotate"
    assert client.post(address, json={"overlap_hours": 169}, headers=second).status_code == 422
    assert client.post(address, json={"expires_in_days": 11}, headers=second).status_code == 403
    assert client.post(address, json={}, headers=bob.headers).status_code == 404
    third = client.post(address, json={"overlap_hours": 2}, headers=second)
    assert client.get(ME, headers=headers_of(third)).status_code == 200
    old = client.get(ME, headers=second).json()
    left = datetime.fromisoformat(old["expires_at"]) - utc_now()
    assert timedelta(hours=1.9) < left <= timedelta(hours=2)


def test_a_rotation_gives_no_token_more_scopes_or_time_than_it_had(client, alice, ends_in_ten_days):
    def make(**body):
        made = client.post(MINE, json=body, headers=alice.headers)
        return made.json()["id"], headers_of(made)

    def rotate(token_id, headers, **how):
        return client.post(f"{MINE}/{token_id}/rotate", json=how, headers=headers)

    submits, _ = make(scopes=["submit"])
    _, narrow = make(scopes=["read", "tokens"])
    refused = rotate(submits, narrow)
    assert (refused.status_code, "lacks the scope submit" in refused.json()["detail"]) == (
        403,
        True,
    )
    # With alice's token, which ends in ten days, one that ends tomorrow stays so.
    short, short_headers = make(expires_in_days=1)
    fresh = rotate(short, alice.headers, overlap_hours=48).json()
    assert datetime.fromisoformat(fresh["expires_at"]) < utc_now() + timedelta(days=1)
    # Nor does the overlap make the old one last longer.
    old = client.get(ME, headers=short_headers).json()
    assert datetime.fromisoformat(old["expires_at"]) < utc_now() + timedelta(days=1)


def test_a_token_of_a_higher_role_is_not_rotated_whatever_little_it_may_do(client, olivia):
    """By its role an organiser's token has places and limits that a submitter's has not."""
    little = {"role": "organiser", "scopes": ["read", "tokens"]}
    higher = client.post(MINE, json=little, headers=olivia.headers)
    lower = client.post(MINE, json={"role": "submitter"}, headers=olivia.headers)
    address = f"{MINE}/{higher.json()['id']}/rotate"
    refused = client.post(address, json={}, headers=headers_of(lower))

    assert refused.status_code == 403
    assert "is of role organiser, yours of role submitter" in refused.json()["detail"]
    assert client.get(ME, headers=headers_of(higher)).status_code == 200
    rotated = client.post(address, json={}, headers=headers_of(higher)).json()
    assert (rotated["role"], rotated["scopes"]) == ("organiser", ["read", "tokens"])


def test_without_scopes_a_token_has_those_of_the_one_held(client, olivia):
    held = client.post(MINE, json={"scopes": ["read", "tokens"]}, headers=olivia.headers)
    made = client.post(MINE, json={}, headers=headers_of(held))
    assert made.json()["scopes"] == ["read", "tokens"]
    lower = client.post(MINE, json={"role": "submitter"}, headers=headers_of(held))
    assert lower.json()["scopes"] == ["read", "tokens"]


def test_a_rotated_token_ends_as_asked_or_as_it_would_have_but_with_the_one_held(client, alice):
    def make(days):
        made = client.post(MINE, json={"expires_in_days": days}, headers=alice.headers)
        return f"{MINE}/{made.json()['id']}/rotate", headers_of(made)

    def days_after(address, headers, **how):
        answer = client.post(address, json=how, headers=headers)
        assert answer.status_code == 201, answer.text
        ends_at = answer.json()["expires_at"]
        if ends_at is None:
            return None
        left = datetime.fromisoformat(ends_at) - utc_now()
        return round(left / timedelta(days=1), 2)

    # Alice's own token does not end.
    assert days_after(make(None)[0], alice.headers) is None
    assert days_after(make(3)[0], alice.headers) == 3
    assert days_after(make(3)[0], alice.headers, expires_in_days=9) == 9
    _, two_days = make(2)
    assert days_after(make(None)[0], two_days) == 2
    assert days_after(make(3)[0], two_days) == 2
    assert days_after(make(1)[0], two_days) == 1


def test_own_tokens_are_ended_by_their_owner_alone_and_each_change_is_logged(
    client, alice, bob, olivia
):
    made = client.post(MINE, json={"label": "old laptop"}, headers=alice.headers)
    number = made.json()["id"]
    assert client.delete(f"{MINE}/{number}", headers=bob.headers).status_code == 404
    assert client.get(ME, headers=headers_of(made)).status_code == 200
    client.post(f"{MINE}/{number}/rotate", json={}, headers=alice.headers)
    for ended in ([number + 1], []):  # Revoking twice changes nothing.
        gone = client.delete(f"{MINE}/{number + 1}", headers=alice.headers)
        assert (gone.status_code, gone.json()) == (200, {"revoked": ended})
    assert client.get(ME, headers=headers_of(made)).status_code == 401

    records = client.get("/api/v1/audit", headers=olivia.headers).json()["records"]
    told = [(r["action"], r["subject_id"], r["actor"], r["after"]["label"]) for r in records]
    assert told == [
        ("token.revoke", str(number + 1), "alice", "old laptop"),
        ("token.rotate", str(number + 1), "alice", "old laptop"),
        ("token.create", str(number), "alice", "old laptop"),
    ]
    assert records[1]["after"]["rotated_from"] == number
    assert records[1]["before"]["revoked_at"] is None
    assert made.json()["token"] not in str(records)


TOKENS = "/api/v1/tokens"


class Tokens:
    """Makes, rotates and revokes tokens, each named by its secret."""

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

    def rotate(self, token, by, address=MINE, overlap=0):
        path = f"{address}/{self.number(token)}/rotate"
        answer = self._ask("POST", path, by, json={"overlap_hours": overlap})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["token"])

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
def test_a_revoked_token_takes_all_that_descend_from_it(tokens, ada):
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


def test_a_rotation_saves_neither_a_child_nor_the_children_of_its_maker(tokens, ada):
    stolen = tokens.make(ada.secret)
    child = tokens.rotate(tokens.make(stolen), by=stolen)
    early = tokens.make(stolen)
    fresh = tokens.rotate(stolen, by=stolen)
    assert [tokens.status(each) for each in (stolen, child, early, fresh)] == [401, 200, 200, 200]
    ended = [tokens.number(each) for each in (early, child, fresh)]

    assert tokens.revoke(tokens.number(fresh), by=ada.secret) == sorted(ended)
    assert [tokens.status(each) for each in (child, early, fresh)] == [401] * 3


def test_the_token_that_took_over_ends_with_the_one_it_took_over_from(tokens, ada):
    old = tokens.make(ada.secret)
    number = tokens.number(old)
    fresh = tokens.rotate(old, by=old)

    assert tokens.revoke(number, by=ada.secret) == [number + 1]
    assert tokens.status(fresh) == 401


def test_a_token_that_an_organiser_rotated_for_somebody_ends_with_the_organisers(
    tokens, ada, alice
):
    """The secret of the fresh one was shown to the holder of the organiser's."""
    stolen = tokens.make(ada.secret)
    shown = tokens.rotate(alice.secret, by=stolen, address=TOKENS, overlap=24)

    tokens.revoke(tokens.number(stolen), by=ada.secret)
    assert (tokens.status(shown), tokens.status(alice.secret)) == (401, 200)


def test_a_token_made_in_a_browser_ends_with_the_token_that_signed_in(
    client, tokens, alice, olivia
):
    console = Console(client, alice)
    made = secret_in(console.done(f"{ACCOUNT}/tokens", scopes_read="on"))
    client.cookies.clear()
    numbers = [tokens.number(each) for each in (alice.secret, made)]

    assert tokens.revoke(numbers[0], by=olivia.secret) == numbers
    assert tokens.status(made) == 401


def test_the_page_and_the_audit_log_say_which_tokens_ended_together(client, tokens, olivia):
    first = tokens.make(olivia.secret)
    number = tokens.number(first)
    tokens.make(first)
    page = Console(client, olivia).done(f"{ACCOUNT}/tokens/{number}/revoke")

    assert f"also revoked: 1 made with it or rotated from it: {number + 1}." in page
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
            revoked.extend(token_issue.revoke_own_token(session, caller, caller.token_id))

    thread = threading.Thread(target=revoke)
    thread.start()
    with database.write() as session:
        fresh = token_issue.make_own_token(session, caller, OwnTokenCreate(role="submitter"))
        made.set()
        thread.join(0.3)  # It waits for this transaction.
        secret, number = fresh.secret, fresh.token.id
    thread.join(10)
    assert revoked == [caller.token_id, number]
    assert tokens.status(secret) == 401

    # The other way round: the token was good when the request came, and no more.
    with database.write() as session, pytest.raises(NotSignedInError, match="was revoked"):
        token_issue.make_own_token(session, caller, OwnTokenCreate(role="submitter"))


def _caller(database, secret):
    with database.read() as session:
        return caller_of(holder_of(find_token(session, secret)))


def test_a_workers_token_makes_none_and_is_rotated_by_an_organiser(client, tokens, walter, olivia):
    number = tokens.number(walter.secret)
    assert client.get(ME, headers=walter.headers).json()["scopes"] == ["read", "work"]
    for path in (MINE, f"{MINE}/{number}/rotate"):
        assert client.post(path, json={}, headers=walter.headers).status_code == 403
    asked = {"user": "walter", "role": "worker", "scopes": ["work", "tokens"]}
    assert client.post(TOKENS, json=asked, headers=olivia.headers).status_code == 422

    fresh = tokens.rotate(walter.secret, by=olivia.secret, address=TOKENS)
    assert tokens.status(fresh) == 200
