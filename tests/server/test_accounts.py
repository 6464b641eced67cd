"""Tokens and accounts: made once, shown once, ended at once, and when they were last used."""

import hashlib
import re
import threading
from datetime import datetime, timedelta
from html import unescape

import pytest

from server.base.database import utc_now
from server.base.errors import NotSignedInError
from server.base.models import Token
from server.pages import console_people
from server.people import tokens as tokens_room
from server.people.accounts import find_token
from server.people.callers import caller_of
from server.people.tokens import OwnTokenCreate
from tests.server.test_console import Console, error_of
from tests.server.test_submission_pages import judged
from tests.server.test_users import on_both_databases

TOKENS = "/api/v1/tokens"


def test_me_tells_user_and_role(client, alice, olivia):
    me = client.get("/api/v1/me", headers=alice.headers).json()
    assert me == {
        "user": "alice", "display_name": None, "organisation": None, "email": None,
        "highest_role": "submitter",
        "token_id": me["token_id"], "label": None, "role": "submitter", "expires_at": None,
    }  # fmt: skip
    assert client.get("/api/v1/me", headers=olivia.headers).json()["role"] == "organiser"
    assert client.get("/api/v1/me").status_code == 401


def test_a_token_is_shown_once_and_kept_as_a_hash(client, ada, olivia, database):
    assert client.post("/api/v1/users", json={"name": "carol"}, headers=ada.headers).is_success
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


def test_a_revoked_token_is_refused_from_then_on(client, alice, olivia):
    listed = client.get(TOKENS, headers=olivia.headers).json()["tokens"]
    token_id = next(token["id"] for token in listed if token["user"] == "alice")

    for ended in ([token_id], []):  # Revoking twice changes nothing.
        gone = client.delete(f"{TOKENS}/{token_id}", headers=olivia.headers)
        assert (gone.status_code, gone.json()) == (200, {"revoked": ended})
    response = client.get("/api/v1/me", headers=alice.headers)
    assert response.status_code == 401
    assert "revoked" in response.json()["detail"]
    assert client.get("/api/v1/me", headers=olivia.headers).status_code == 200


@pytest.mark.parametrize(("token", "status"), [("999", 404), ("x", 422), (2**40, 422)])
def test_a_token_that_is_not_there_cannot_be_revoked(client, olivia, token, status):
    assert client.delete(f"{TOKENS}/{token}", headers=olivia.headers).status_code == status


def test_an_organiser_makes_and_ends_tokens_of_submitters_and_workers_alone(
    client, ada, olivia, alice, make_person
):
    make_person("otto", "organiser")
    for role, by_olivia in (
        ("submitter", 201),
        ("worker", 201),
        ("organiser", 403),
        ("admin", 403),
    ):
        new = {"name": f"new {role}", "role": role}
        assert client.post("/api/v1/users", json=new, headers=ada.headers).status_code == 201
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
            ended = client.delete(f"{TOKENS}/{token['id']}", headers=olivia.headers)
            assert ended.status_code == (403 if theirs else 200), token


def test_admins_end_anybodys_token_and_organisers_their_own_beside(
    client, ada, olivia, make_person
):
    make_person("otto", "organiser")
    every = client.get(TOKENS, headers=ada.headers).json()["tokens"]
    ids = {token["user"]: token["id"] for token in every}
    body = {"user": "ada", "role": "submitter"}
    ids["ada as submitter"] = client.post(TOKENS, json=body, headers=ada.headers).json()["id"]
    for person, whose, status in (
        (olivia, "ada as submitter", 403),
        (ada, "otto", 200),
        (olivia, "olivia", 200),
        (ada, "ada", 200),
    ):
        address = f"{TOKENS}/{ids[whose]}"
        assert client.delete(address, headers=person.headers).status_code == status, whose
    assert client.get(TOKENS, headers=olivia.headers).status_code == 401


def test_no_token_goes_beyond_its_users_role(client, ada, olivia, walter):
    for person in (ada, olivia):
        body = {"user": "walter", "role": "submitter"}
        beyond = client.post(TOKENS, json=body, headers=person.headers)
        assert beyond.status_code == 409
        assert "walter is worker" in beyond.json()["detail"]


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
        ({"user": "x", "role": "worker", "label": "a\nb"}, "body.label"),
        ({"user": "x", "role": "worker", "expires_in_days": 0}, "body.expires_in_days"),
        ({"user": "x", "role": "worker", "expires_in_days": -1}, "body.expires_in_days"),
        ({"user": "x", "role": "worker", "expires_in_days": 1e9}, "body.expires_in_days"),
        ({"user": "x", "role": "worker", "scopes": ["work"]}, "body.scopes"),
    ],
)
def test_a_bad_body_is_422_and_makes_no_token(body, field, client, olivia):
    response = client.post(TOKENS, json=body, headers=olivia.headers)

    headers = olivia.headers | {"Content-Type": "application/json"}
    no_json = client.post(TOKENS, content=b'{"user": ', headers=headers)
    assert (no_json.status_code, "JSON" in no_json.json()["detail"]) == (422, True)
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["problems"][0]["field"] == field
    assert len(client.get(TOKENS, headers=olivia.headers).json()["tokens"]) == 1


__all__ = ["judged"]  # A fixture.


ACCOUNT = "/account"


USERS = "/console/users"


@pytest.fixture
def alices(client, alice):
    """The browser of a submitter."""
    return Console(client, alice)


@pytest.fixture
def adas(client, ada):
    """The browser of an admin."""
    return Console(client, ada)


def secret_in(page):
    """The token that a page shows, once."""
    found = re.findall(r"fl_[\w-]{43}", page)
    assert len(found) == 1
    return str(found[0])


def me(client, secret):
    return client.get("/api/v1/me", headers={"Authorization": f"Bearer {secret}"})


def navigation(page):
    """Where the console's own links lead."""
    links = page[page.index('class="console-nav"') :].split("</nav>")[0]
    return re.findall(r'href="([^"]+)"', links)


def test_everybody_makes_and_revokes_their_own_tokens(alices, client, alice):
    page = alices.get(ACCOUNT).text
    assert navigation(page) == [ACCOUNT]
    for field, wrong in (("expires_in_days", "0"), ("label", "x" * 101), ("role", "king")):
        fields = {"label": "nightly"} | {field: wrong}
        answer = alices.post(f"{ACCOUNT}/tokens", **fields)
        assert (answer.status_code, error_of(answer.text, field) is None) == (422, False)
        assert f'value="{fields["label"]}"' in answer.text
    assert alices.post(f"{ACCOUNT}/tokens", role="organiser").status_code == 403

    page = alices.done(f"{ACCOUNT}/tokens", label="<b>nightly")
    secret = secret_in(page)
    nightly = me(client, secret).json()
    assert (nightly["user"], nightly["role"], nightly["label"]) == (
        "alice",
        "submitter",
        "<b>nightly",
    )
    assert ("<b>nightly" in page, "&lt;b&gt;nightly" in page) == (False, True)
    alices.done(f"{ACCOUNT}/tokens/{nightly['token_id']}/revoke")
    assert (me(client, secret).status_code, me(client, alice.secret).status_code) == (401, 200)
    assert alices.post(f"{ACCOUNT}/tokens/999/revoke").status_code == 404


def test_revoking_the_token_of_a_session_signs_out(alices, client, alice):
    number = me(client, alice.secret).json()["token_id"]
    alices.post(f"{ACCOUNT}/tokens/{number}/revoke")
    assert client.get(ACCOUNT, follow_redirects=False).status_code == 303


def test_an_admin_keeps_users_and_organisations(adas, client, alice, bob):
    assert navigation(adas.get("/console").text) == [
        "/console",
        "/console/submissions",
        "/console/phases",
        "/console/workers",
        USERS,
        "/console/audit",
        ACCOUNT,
    ]
    wrong = adas.post(USERS, name="", role="submitter", email="nowhere")
    assert error_of(wrong.text, "name") == "This field is required."
    assert error_of(wrong.text, "email") is not None
    blank = adas.post("/console/organisations", organisation_name=" ")
    assert error_of(blank.text, "organisation_name") == "This field is required."
    adas.done("/console/organisations", organisation_name="R&D <Labs>")
    assert adas.post("/console/organisations", organisation_name="R&D <Labs>").status_code == 409
    page = adas.done(USERS, name="carol c", role="organiser", organisation="R&D <Labs>")
    assert "<h1>carol c</h1>" in page
    assert adas.post(USERS, name="carol c", role="organiser").status_code == 409

    page = adas.get(USERS).text
    assert "R&D <Labs>" not in page
    assert re.findall(r'href="/console/users/([^"]+)"', page) == [
        "ada",
        "alice",
        "bob",
        "carol%20c",
    ]
    found = adas.get(USERS, q="LIC").text
    assert re.findall(r'href="/console/users/([^"]+)"', found) == ["alice"]
    assert "0 matches" in adas.get(USERS, q="%").text

    alices = f"{USERS}/alice"
    changed = adas.done(alices, role="organiser", organisation="R&D <Labs>", email="a@b.example")
    assert unescape(re.findall(r"<dt>Organisation</dt><dd>(.*?)</dd>", changed)[0]) == "R&D <Labs>"
    told = me(client, alice.secret).json()
    assert (told["highest_role"], told["email"]) == ("organiser", "a@b.example")
    adas.done(alices, role="submitter", organisation="", email="")
    told = me(client, alice.secret).json()
    assert (told["highest_role"], told["organisation"], told["email"]) == ("submitter", None, None)
    adas.done(f"{alices}/disable")
    assert me(client, alice.secret).status_code == 401
    assert me(client, bob.secret).status_code == 200
    adas.done(f"{alices}/enable")
    assert me(client, alice.secret).status_code == 200
    assert adas.post(f"{USERS}/ada/disable").status_code == 409
    assert adas.get(f"{USERS}/nobody").status_code == 404


def test_users_are_paged_by_name(adas, make_person):
    for number in range(101):
        make_person(f"user {number:03}", "submitter")
    first = adas.get(USERS, q="user").text
    assert first.count('href="/console/users/user') == 100
    more = unescape(re.findall(r'class="next" href="([^"]+)"', first)[0])
    assert re.findall(r'href="/console/users/(user[^"]+)"', adas.get(more).text) == ["user%20100"]


def test_ones_own_submissions_go_on_where_a_page_ends_and_say_what_was_verified(
    judged, alices, monkeypatch, submit, digits_submission, bob
):
    first = judged(hardware_class="gpu-elsewhere").rpartition("/")[2]
    second, third = (submit(digits_submission).json()["id"] for _ in range(2))
    others = submit(digits_submission, by=bob).json()["id"]
    monkeypatch.setattr(console_people, "SUBMISSIONS", 2)

    page = alices.get(ACCOUNT).text
    older = unescape(re.findall(r'<a class="next" href="([^"]+)"', page)[0])
    rest = alices.get(older).text

    shown = [
        re.findall(r'class="model"><a href="/submissions/(\w+)"', text) for text in (page, rest)
    ]
    assert shown == [[third, second], [first]]
    assert others not in page + rest
    assert page.count('<small class="soft">this session') == 1
    assert "/console/tokens" not in page
    assert ("epochs agree" in page, "epochs agree" in rest) == (False, True)
    assert 'class="next"' not in rest
    assert alices.get(ACCOUNT, before="yesterday").status_code == 422


ME = "/api/v1/me"


def last_used(client, person):
    return client.get(f"{ME}/tokens", headers=person.headers).json()["tokens"][0]["last_used_at"]


def test_a_use_is_recorded_once_a_minute(client, alice, database):
    first = last_used(client, alice)
    assert first is not None
    assert last_used(client, alice) == first

    with database.write() as session:
        session.query(Token).update({"last_used_at": utc_now() - timedelta(minutes=2)})
    assert last_used(client, alice) > first


def test_a_request_is_answered_when_its_use_cannot_be_written(client, alice, database, caplog):
    with database.write() as session:
        session.connection().exec_driver_sql(
            "CREATE TRIGGER no BEFORE UPDATE ON tokens BEGIN SELECT RAISE(ABORT, 'no room'); END"
        )
    assert last_used(client, alice) is None
    assert "no room" in caplog.text


def test_boards_note_no_use_and_a_session_uses_its_token(client, alice, database):
    def used():
        with database.read() as session:
            return session.query(Token).filter(Token.last_used_at.is_not(None)).count()

    for address in ("/api/v1/leaderboards/digits", "/benchmarks/digits"):
        assert client.get(address, headers=alice.headers).status_code == 200
    assert used() == 0
    Console(client, alice).get(ACCOUNT)
    assert used() == 1


MINE = "/api/v1/me/tokens"


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
