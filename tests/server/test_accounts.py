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
from tests.support.build import Person

__all__ = ["judged"]  # A fixture.
ME, MINE, TOKENS = "/api/v1/me", "/api/v1/me/tokens", "/api/v1/tokens"
ACCOUNT, USERS = "/account", "/console/users"


def holder_of(made, client):
    """Who has a token that was made."""
    assert made.status_code == 201, made.text
    return Person(made.json()["user"], made.json()["token"], client)


def make(person, **body):
    return holder_of(person.post(MINE, body), person.client)


def number_of(person):
    return person.get(ME).json()["token_id"]


def status_of(person):
    return person.get(ME).status_code


def test_me_tells_user_and_role(client, alice, olivia):
    me = alice.get(ME).json()
    assert me == {
        "user": "alice", "display_name": None, "organisation": None, "email": None,
        "highest_role": "submitter",
        "token_id": me["token_id"], "label": None, "role": "submitter", "expires_at": None,
    }  # fmt: skip
    assert olivia.get(ME).json()["role"] == "organiser"
    assert client.get(ME).status_code == 401


def test_a_token_is_shown_once_and_kept_as_a_hash(client, ada, olivia, database):
    assert ada.post("/api/v1/users", {"name": "carol"}).is_success
    body = {"user": "carol", "role": "submitter", "expires_in_days": 90}
    response = olivia.post(TOKENS, body)

    made = response.json()
    assert re.fullmatch(r"fl_.{37,}", made["token"])
    left = datetime.fromisoformat(made["expires_at"]) - utc_now()
    assert timedelta(days=89.9) < left <= timedelta(days=90)
    me = holder_of(response, client).get(ME).json()
    assert (me["user"], me["role"], me["expires_at"]) == ("carol", "submitter", made["expires_at"])
    listed = olivia.get(TOKENS)
    assert made["token"] not in listed.text
    assert [token["user"] for token in listed.json()["tokens"]] == ["carol", "olivia"]
    with database.read() as session:
        kept = session.get_one(Token, made["id"])
        assert kept.token_sha256 == hashlib.sha256(made["token"].encode()).hexdigest()


@pytest.mark.parametrize(("token", "status"), [("999", 404), ("x", 422), (2**40, 422)])
def test_a_token_that_is_not_there_cannot_be_revoked(olivia, token, status):
    assert olivia.delete(f"{TOKENS}/{token}").status_code == status


def test_organiser_keeps_tokens_of_submitters_and_workers(ada, olivia, alice, walter, make_person):
    make_person("otto", "organiser")
    walters = {"user": "walter", "role": "submitter"}
    for person in (ada, olivia):
        beyond = person.post(TOKENS, walters)
        assert (beyond.status_code, "walter is worker" in beyond.json()["detail"]) == (409, True)
    roles = {"submitter": 201, "worker": 201, "organiser": 403, "admin": 403}
    for role, by_olivia in roles.items():
        body = {"user": f"new {role}", "role": role}
        assert ada.post("/api/v1/users", {"name": f"new {role}", "role": role}).is_success
        assert olivia.post(TOKENS, body).status_code == by_olivia
        assert ada.post(TOKENS, body).status_code == 201
    # Nor does one act in the name of an organiser or admin: not even as a submitter.
    for name in ("otto", "ada"):
        body = {"user": name, "role": "submitter"}
        assert olivia.post(TOKENS, body).status_code == 403
    assert olivia.post(TOKENS, body | {"user": "olivia"}).status_code == 201

    every = ada.get(TOKENS).json()["tokens"]
    seen = olivia.get(TOKENS).json()["tokens"]
    assert {t["user"] for t in every} >= {"ada", "otto", "alice", "olivia", "new admin"}
    assert {t["user"] for t in seen} == {"alice", "olivia", "walter", "new submitter", "new worker"}
    only = olivia.get(TOKENS, params={"user": "alice"}).json()["tokens"]
    assert [t["user"] for t in only] == ["alice"]
    for token in every:
        theirs = token["user"] in ("ada", "otto", "new admin", "new organiser")
        if token["user"] != "olivia":
            ended = olivia.delete(f"{TOKENS}/{token['id']}")
            assert ended.status_code == (403 if theirs else 200), token


def test_admins_end_anybodys_token_and_organisers_their_own_beside(ada, olivia, make_person):
    make_person("otto", "organiser")
    ids = {token["user"]: token["id"] for token in ada.get(TOKENS).json()["tokens"]}
    body = {"user": "ada", "role": "submitter"}
    ids["ada as submitter"] = ada.post(TOKENS, body).json()["id"]
    for person, whose, status in (
        (olivia, "ada as submitter", 403), (ada, "otto", 200), (olivia, "olivia", 200),
        (ada, "ada", 200),
    ):  # fmt: skip
        assert person.delete(f"{TOKENS}/{ids[whose]}").status_code == status, whose
    assert status_of(olivia) == 401


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"role": "submitter"}, "body.user"),
        *(
            ({"user": name, "role": "submitter"}, "body.user")
            for name in ("", "x" * 101, "a\nb", "a\n", "a\0", "=cmd()", ".x")
        ),
        ({"user": "x", "role": "king"}, "body.role"),
        ({"user": "x", "role": "worker", "label": "a\nb"}, "body.label"),
        *(
            ({"user": "x", "role": "worker", "expires_in_days": days}, "body.expires_in_days")
            for days in (0, -1, 1e9)
        ),
        ({"user": "x", "role": "worker", "scopes": ["work"]}, "body.scopes"),
    ],
)
def test_a_bad_body_is_422_and_makes_no_token(body, field, client, olivia):
    response = olivia.post(TOKENS, body)

    headers = olivia.headers | {"Content-Type": "application/json"}
    no_json = client.post(TOKENS, content=b'{"user": ', headers=headers)
    assert (no_json.status_code, "JSON" in no_json.json()["detail"]) == (422, True)
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["problems"][0]["field"] == field
    assert len(olivia.get(TOKENS).json()["tokens"]) == 1


def secret_in(page):
    (found,) = re.findall(r"fl_[\w-]{43}", page)
    return found


def navigation(page):
    links = page[page.index('class="console-nav"') :].split("</nav>")[0]
    return re.findall(r'href="([^"]+)"', links)


def test_everybody_makes_and_revokes_their_own_tokens(client, alice):
    console = Console(client, alice)
    assert navigation(console.get(ACCOUNT).text) == [ACCOUNT]
    for field, wrong in (("expires_in_days", "0"), ("label", "x" * 101), ("role", "king")):
        fields = {"label": "nightly"} | {field: wrong}
        answer = console.post(f"{ACCOUNT}/tokens", **fields)
        assert (answer.status_code, error_of(answer.text, field) is None) == (422, False)
        assert f'value="{fields["label"]}"' in answer.text
    assert console.post(f"{ACCOUNT}/tokens", role="organiser").status_code == 403

    page = console.done(f"{ACCOUNT}/tokens", label="<b>nightly")
    nightly = Person("alice", secret_in(page), client)
    shown = nightly.get(ME).json()
    told = ("alice", "submitter", "<b>nightly")
    assert (shown["user"], shown["role"], shown["label"]) == told
    assert ("<b>nightly" in page, "&lt;b&gt;nightly" in page) == (False, True)
    console.done(f"{ACCOUNT}/tokens/{shown['token_id']}/revoke")
    assert (status_of(nightly), status_of(alice)) == (401, 200)
    assert console.post(f"{ACCOUNT}/tokens/999/revoke").status_code == 404
    # The token of the session signs out.
    console.post(f"{ACCOUNT}/tokens/{number_of(alice)}/revoke")
    assert client.get(ACCOUNT, follow_redirects=False).status_code == 303


def test_an_admin_keeps_users_and_organisations(client, ada, alice, bob):
    adas = Console(client, ada)
    assert navigation(adas.get("/console").text) == [
        "/console", "/console/submissions", "/console/phases", "/console/workers", USERS,
        "/console/audit", ACCOUNT,
    ]  # fmt: skip
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
    listed = re.compile(r'href="/console/users/([^"]+)"').findall
    assert listed(page) == ["ada", "alice", "bob", "carol%20c"]
    assert listed(adas.get(USERS, q="LIC").text) == ["alice"]
    assert "0 matches" in adas.get(USERS, q="%").text

    alices = f"{USERS}/alice"
    changed = adas.done(alices, role="organiser", organisation="R&D <Labs>", email="a@b.example")
    assert unescape(re.findall(r"<dt>Organisation</dt><dd>(.*?)</dd>", changed)[0]) == "R&D <Labs>"
    told = alice.get(ME).json()
    assert (told["highest_role"], told["email"]) == ("organiser", "a@b.example")
    adas.done(alices, role="submitter", organisation="", email="")
    told = alice.get(ME).json()
    assert (told["highest_role"], told["organisation"], told["email"]) == ("submitter", None, None)
    adas.done(f"{alices}/disable")
    assert status_of(alice) == 401
    assert status_of(bob) == 200
    adas.done(f"{alices}/enable")
    assert status_of(alice) == 200
    assert adas.post(f"{USERS}/ada/disable").status_code == 409
    assert adas.get(f"{USERS}/nobody").status_code == 404


def test_users_are_paged_by_name(client, ada, make_person):
    adas = Console(client, ada)
    for number in range(101):
        make_person(f"user {number:03}", "submitter")
    first = adas.get(USERS, q="user").text
    assert first.count('href="/console/users/user') == 100
    more = unescape(re.findall(r'class="next" href="([^"]+)"', first)[0])
    assert re.findall(r'href="/console/users/(user[^"]+)"', adas.get(more).text) == ["user%20100"]


def test_ones_own_submissions_go_on_where_a_page_ends_and_say_what_was_verified(
    judged, client, alice, monkeypatch, submit, digits_submission, bob
):
    first = judged(hardware_class="gpu-elsewhere").rpartition("/")[2]
    second, third = (submit(digits_submission).json()["id"] for _ in range(2))
    others = submit(digits_submission, by=bob).json()["id"]
    monkeypatch.setattr(console_people, "SUBMISSIONS", 2)
    alices = Console(client, alice)

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


def last_used(person):
    return person.get(MINE).json()["tokens"][0]["last_used_at"]


def test_a_use_is_recorded_once_a_minute(alice, database):
    first = last_used(alice)
    assert first is not None
    assert last_used(alice) == first

    with database.write() as session:
        session.query(Token).update({"last_used_at": utc_now() - timedelta(minutes=2)})
    assert last_used(alice) > first


def test_a_request_is_answered_when_its_use_cannot_be_written(alice, database, caplog):
    with database.write() as session:
        session.connection().exec_driver_sql(
            "CREATE TRIGGER no BEFORE UPDATE ON tokens BEGIN SELECT RAISE(ABORT, 'no room'); END"
        )
    assert last_used(alice) is None
    assert "no room" in caplog.text


def test_boards_note_no_use_and_a_session_uses_its_token(client, alice, database):
    def used():
        with database.read() as session:
            return session.query(Token).filter(Token.last_used_at.is_not(None)).count()

    for address in ("/api/v1/leaderboards/digits", "/benchmarks/digits"):
        assert alice.get(address).status_code == 200
    assert used() == 0
    Console(client, alice).get(ACCOUNT)
    assert used() == 1


def test_a_token_is_made_within_the_one_held(alice, database):
    end = utc_now() + timedelta(days=10)
    with database.write() as session:
        session.query(Token).filter(Token.user.has(name="alice")).one().expires_at = end
    for wider in ({"role": "organiser"}, {"role": "worker"}, {"expires_in_days": 10.1}):
        assert alice.post(MINE, wider).status_code == 403, wider
    assert datetime.fromisoformat(alice.post(MINE, {}).json()["expires_at"]) == end
    short = make(alice, label="nightly", expires_in_days=1)
    view = short.get(ME).json()
    assert (view["user"], view["label"], view["role"]) == ("alice", "nightly", "submitter")
    assert short.post(MINE, {"expires_in_days": 2}).status_code == 403
    assert alice.post(MINE, {"scopes": ["read"]}).status_code == 422
    mine = alice.get(MINE).json()["tokens"]
    assert len(mine) == 3
    assert short.secret not in str(mine)


def test_a_user_has_at_most_twenty_live_tokens(alice, ada):
    made = [alice.post(MINE, {}) for _ in range(20)]
    assert [answer.status_code for answer in made] == [201] * 19 + [409]
    assert "20 live tokens" in made[-1].text
    given = {"user": "alice", "role": "submitter"}
    assert ada.post("/api/v1/tokens", given).status_code == 409

    first = made[0].json()["id"]
    assert alice.delete(f"{MINE}/{first}").is_success
    assert alice.post(MINE, {}).status_code == 201


def test_an_organisers_token_makes_one_that_only_submits(olivia):
    submits = make(olivia, role="submitter")

    assert submits.get(ME).json()["highest_role"] == "organiser"
    assert submits.get("/api/v1/audit").status_code == 403
    assert submits.post(MINE, {"role": "organiser"}).status_code == 403


def test_own_tokens_are_ended_by_their_owner_alone_and_each_change_is_logged(alice, bob, olivia):
    laptop = make(alice, label="old laptop")
    number = number_of(laptop)
    assert bob.delete(f"{MINE}/{number}").status_code == 404
    assert status_of(laptop) == 200
    for ended in ([number], []):  # Revoking twice changes nothing.
        gone = alice.delete(f"{MINE}/{number}")
        assert (gone.status_code, gone.json()) == (200, {"revoked": ended})
    assert status_of(laptop) == 401

    records = olivia.get("/api/v1/audit").json()["records"]
    told = [(r["action"], r["subject_id"], r["actor"], r["after"]["user"]) for r in records]
    assert told == [
        ("token.revoke", str(number), "alice", "alice"),
        ("token.create", str(number), "alice", "alice"),
    ]
    assert records[0]["before"] == {"revoked_at": None}
    assert records[1]["after"] == {
        "user_id": 1, "user": "alice", "role": "submitter", "label": "old laptop", "made_with": 1,
    }  # fmt: skip
    assert laptop.secret not in str(records)


@on_both_databases
def test_a_revoked_token_takes_all_that_descend_from_it(client, ada, bob):
    stolen, beside = make(ada), make(ada)
    child = make(stolen)
    friends = holder_of(stolen.post(TOKENS, {"user": bob.name, "role": "submitter"}), client)
    line = [stolen, child, make(child), friends, make(friends)]
    numbers = [number_of(each) for each in line]

    assert ada.delete(f"{TOKENS}/{numbers[0]}").json() == {"revoked": sorted(numbers)}
    assert [status_of(each) for each in line] == [401] * len(line)
    assert (status_of(beside), status_of(ada)) == (200, 200)


def test_a_token_made_in_a_browser_ends_with_the_token_that_signed_in(client, alice, olivia):
    page = Console(client, alice).done(f"{ACCOUNT}/tokens", label="a browser's")
    made = Person("alice", secret_in(page), client)
    client.cookies.clear()
    numbers = [number_of(each) for each in (alice, made)]

    assert olivia.delete(f"{TOKENS}/{numbers[0]}").json() == {"revoked": numbers}
    assert status_of(made) == 401


def test_the_page_and_the_audit_log_say_which_tokens_ended_together(client, olivia):
    first = make(olivia)
    number = number_of(first)
    make(first)
    page = Console(client, olivia).done(f"{ACCOUNT}/tokens/{number}/revoke")

    assert f"also revoked: 1 made with it: {number + 1}." in page
    records = olivia.get("/api/v1/audit").json()["records"][:2]
    told = [(r["subject_id"], r["after"].get("revoked_with")) for r in records]
    assert told == [(str(number + 1), number), (str(number), None)]


@on_both_databases
def test_a_token_that_is_made_while_its_maker_is_revoked_ends_too(client, database, alice):
    caller = caller_of(find_token(database, alice.secret))
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
        late, number = Person("alice", fresh.token, client), fresh.id
    thread.join(10)
    assert revoked == [caller.token_id, number]
    assert status_of(late) == 401

    # The other way round: the token was good when the request came, and no more.
    with database.write() as session, pytest.raises(NotSignedInError, match="was revoked"):
        tokens_room.create_my_token(session, caller, OwnTokenCreate(role="submitter"))
