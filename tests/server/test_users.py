"""Users and organisations: kept by admins, and ended at once."""

from functools import partial

import pytest

from server.base.database import utc_now
from server.base.models import User
from tests.support.admin import run_admin
from tests.support.boards import rows_of
from tests.support.both_databases import on_both_databases
from tests.support.pages import ORIGIN, sign_in

USERS = "/api/v1/users"
ORGANISATIONS = "/api/v1/organisations"
ME = "/api/v1/me"


@pytest.fixture
def as_ada(client, ada):
    def send(method, path, **more):
        return client.request(method, path, headers=ada.headers, **more)

    return send


@on_both_databases
def test_users_are_made_found_and_changed_and_each_change_is_logged(as_ada, client, alice):
    assert as_ada("POST", ORGANISATIONS, json={"name": "Example Labs"}).status_code == 201
    body = {"name": "Carol C", "organisation": "Example Labs", "email": "carol@labs.example"}
    made = as_ada("POST", USERS, json=body)
    assert made.status_code == 201, made.text
    assert (made.json()["role"], made.json()["tokens"]) == ("submitter", 0)
    # Whatever is left out stays, and null takes away.
    one = f"{USERS}/Carol%20C"
    assert as_ada("PATCH", one, json={"role": "organiser"}).json()["email"] == "carol@labs.example"
    changed = as_ada("PATCH", one, json={"organisation": None, "email": "c@labs.example"}).json()
    assert (changed["organisation"], changed["role"]) == (None, "organiser")
    as_ada("PATCH", f"{USERS}/alice", json={"organisation": "Example Labs"})
    assert as_ada("PATCH", f"{USERS}/alice", json={"organisation": "Example Labs"}).is_success

    assert as_ada("GET", one).json() == changed
    me = client.get(ME, headers=alice.headers).json()
    assert (me["organisation"], me["email"]) == ("Example Labs", None)
    listed = as_ada("GET", USERS).json()
    assert [user["name"] for user in listed["users"]] == ["Carol C", "ada", "alice"]
    page = as_ada("GET", USERS, params={"limit": 1, "after": "Carol C"}).json()
    assert ([user["name"] for user in page["users"]], page["next_after"]) == (["ada"], "ada")
    found = as_ada("GET", USERS, params={"q": "LABS.ex"}).json()["users"]
    assert [user["name"] for user in found] == ["Carol C"]
    assert as_ada("GET", ORGANISATIONS).json()["organisations"][0]["users"] == 1

    records = as_ada("GET", "/api/v1/audit").json()["records"]
    assert [(r["action"], r["subject_kind"], r["subject_id"]) for r in records] == [
        ("user.update", "user", "alice"),
        ("user.update", "user", "Carol C"),
        ("user.update", "user", "Carol C"),
        ("user.create", "user", "Carol C"),
        ("organisation.create", "organisation", "1"),
    ]
    assert records[1]["before"] == {"organisation_id": 1, "has_email": True}
    assert records[1]["after"] == {"organisation_id": None, "has_email": True}
    assert records[3]["after"] == {
        "name": "Carol C", "role": "submitter", "organisation_id": 1, "has_email": True,
    }  # fmt: skip
    # The log forgets nothing, so it learns no address.
    assert "labs.example" not in str(records)


def test_an_organiser_approves_users_and_the_log_says_so(as_ada, client, alice, olivia):
    def approve(name, *, known):
        path = f"{USERS}/{name}/known"
        return client.put(path, json={"known": known}, headers=olivia.headers)

    approved = approve("alice", known=True).json()
    assert approve("alice", known=True).json() == approved
    assert approved["known_at"] is not None
    assert as_ada("GET", f"{USERS}/alice").json() == approved
    assert approve("alice", known=False).json() == approved | {"known_at": None}
    assert approve("nobody", known=True).status_code == 404

    records = as_ada("GET", "/api/v1/audit").json()["records"]
    assert [(each["action"], each["actor"], each["subject_id"]) for each in records] == [
        ("user.disapprove", "olivia", "alice"),
        ("user.approve", "olivia", "alice"),
    ]


@on_both_databases
def test_a_new_name_is_like_that_of_no_user_and_no_organisation(as_ada, alice):
    def told(path, name):
        answer = as_ada("POST", path, json={"name": name})
        return answer.status_code, answer.json().get("detail", "")

    organisation = partial(told, ORGANISATIONS)

    assert organisation("Example Labs")[0] == 201
    for like in ("Alice", "alісе", "a1ice", "EXAMPLE LABS", "Ехample Labs"):
        owner = "'alice'" if like[0] in "Aa" else "'Example Labs'"
        for status, detail in (told(USERS, like), organisation(like)):
            assert (status, owner in detail) == (409, True), (like, detail)
    for wrong in (" carol", "carol ", "ｃarol"):
        status, detail = told(USERS, wrong)
        assert (status, "carol" in detail) == (422, True), wrong
    assert organisation("ｃarol")[0] == 422
    assert organisation("Straße Labs")[0] == 201
    status, detail = organisation("STRASSE LABS")
    assert (status, "'Straße Labs'" in detail) == (409, True)
    assert [user["name"] for user in as_ada("GET", USERS).json()["users"]] == ["ada", "alice"]


def test_a_name_has_few_marks_on_a_character(as_ada):
    answer = as_ada("POST", USERS, json={"name": "ca" + "\u0301" * 80 + "rol", "role": "worker"})
    assert (answer.status_code, "2 marks" in answer.text) == (422, True)
    accepted = as_ada("POST", USERS, json={"name": "Vi\u1ec7t", "role": "worker"})
    assert accepted.status_code == 201


@pytest.mark.parametrize(
    "name",
    ["report check", "Report-Check", "server.admin", "server.phases", "Finishline", "Finish1ine",
     "cross_check", "SERVER", "\u0455erver.admin"],
)  # fmt: skip
def test_nobody_takes_a_name_of_the_server(as_ada, client, alice, name):
    refused = [
        as_ada("POST", USERS, json={"name": name, "role": "submitter"}),
        as_ada("POST", ORGANISATIONS, json={"name": name}),
        client.patch("/api/v1/me", json={"display_name": name}, headers=alice.headers),
    ]
    for answer in refused:
        assert answer.status_code == 422, answer.text
        assert "kept for the server" in answer.text


def test_users_of_the_server_get_no_token(as_ada, client, ada, database, settings):
    """Whoever holds a token of `reference` could withdraw the first holder of each board."""
    with database.write() as session:
        session.add(User(name="reference", role="submitter", created_at=utc_now()))
    sign_in(client, ada)
    forms = {
        "tokens": {"user": "reference", "role": "submitter"},
        "users/reference": {"display_name": "Somebody", "role": "submitter"},
        "users/reference/disable": {},
        "users/reference/erase": {"erased_name": "reference"},
    }
    before = as_ada("GET", f"{USERS}/reference").json()
    one = f"{USERS}/reference"
    for answer in (
        as_ada("POST", "/api/v1/tokens", json={"user": "reference", "role": "submitter"}),
        as_ada("PATCH", one, json={"disabled": True}),
        as_ada("PATCH", one, json={"display_name": "Somebody", "role": "admin"}),
        as_ada("PUT", f"{one}/known", json={"known": False}),
        as_ada("POST", f"{one}/erasure", json={"name": "reference"}),
        *(
            client.post(f"/console/{path}", data=form, headers=ORIGIN)
            for path, form in forms.items()
        ),
    ):
        assert (answer.status_code, "the server itself" in answer.text) == (409, True), answer.text
    command = ("token", "--user", "reference", "--role", "admin")
    said = run_admin({"FINISHLINE_DATABASE_URL": settings.database_url}, *command)
    assert (said.code, "the server itself" in said.err) == (1, True), said
    assert as_ada("GET", one).json() == before


def test_a_disabled_users_tokens_and_sessions_end_at_once(as_ada, client, olivia):
    sign_in(client, olivia)
    assert client.get("/console", follow_redirects=False).status_code == 200
    as_ada("PATCH", f"{USERS}/olivia", json={"disabled": True})

    refused = client.get("/api/v1/audit", headers=olivia.headers)
    assert (refused.status_code, "disabled" in refused.json()["detail"]) == (401, True)
    assert client.get("/console", follow_redirects=False).status_code == 303
    form = client.post("/console/verify", headers=ORIGIN)
    assert form.status_code == 401
    for body in ({"user": "olivia", "role": "submitter"}, {"user": "olivia", "role": "worker"}):
        assert as_ada("POST", "/api/v1/tokens", json=body).status_code == 409
    assert as_ada("PATCH", f"{USERS}/olivia", json={"disabled": False}).is_success
    assert client.get("/api/v1/audit", headers=olivia.headers).status_code == 200
    # The browser stays out: its session is gone.
    assert client.get("/console", follow_redirects=False).status_code == 303


def test_a_disabled_user_stays_so_since_the_same_moment_whatever_else_is_changed(as_ada, bob):
    def change(**asked):
        return as_ada("PATCH", f"{USERS}/bob", json=asked).json()["disabled_at"]

    since = change(disabled=True)
    assert since is not None
    assert change(email="bob@example.org") == since
    assert change(disabled=True, role="worker") == since
    assert change(disabled=False) is None
    assert change(email=None) is None


def test_tokens_beyond_a_lowered_role_are_refused(as_ada, client, olivia):
    body = {"user": "olivia", "role": "submitter"}
    submits = as_ada("POST", "/api/v1/tokens", json=body).json()["token"]
    as_ada("PATCH", f"{USERS}/olivia", json={"role": "submitter"})

    refused = client.get(ME, headers=olivia.headers)
    assert refused.status_code == 401
    assert "but olivia is now submitter" in refused.json()["detail"]
    assert client.get(ME, headers={"Authorization": f"Bearer {submits}"}).status_code == 200
    as_ada("PATCH", f"{USERS}/olivia", json={"role": "organiser"})
    assert client.get(ME, headers=olivia.headers).status_code == 200


def test_the_worker_of_a_disabled_user_is_told_to_stop(replay, as_ada):
    grant = replay.claim().json()
    assert replay.post(grant, []).json()["proceed"] is True
    as_ada("PATCH", f"{USERS}/walter", json={"disabled": True})

    stopped = replay.post(grant, [])
    assert (stopped.status_code, "disabled" in stopped.json()["detail"]) == (409, True)


def test_nobody_disables_or_lowers_themselves(as_ada):
    for change in ({"role": "organiser"}, {"disabled": True}):
        assert as_ada("PATCH", f"{USERS}/ada", json=change).status_code == 409, change
    kept = {"role": "admin", "disabled": False, "email": "ada@example.org"}
    assert as_ada("PATCH", f"{USERS}/ada", json=kept).json()["email"] == "ada@example.org"


def test_what_is_missing_or_there_already_is_said(as_ada):
    nobody = as_ada("GET", f"{USERS}/nobody")
    assert nobody.status_code == 404
    assert "`finishline admin user list` lists them" in nobody.json()["detail"]
    typo = as_ada("POST", "/api/v1/tokens", json={"user": "adda", "role": "submitter"})
    assert typo.status_code == 404
    assert typo.json()["detail"] == (
        "There is no user 'adda' (did you mean 'ada'?); `finishline admin user list` lists them; "
        "an admin adds one: `finishline admin user add`."
    )
    unknown = as_ada("POST", USERS, json={"name": "x", "organisation": "Nowhere"})
    assert (unknown.status_code, "Nowhere" in unknown.json()["detail"]) == (404, True)
    for address, name in ((USERS, "twice"), (ORGANISATIONS, "Twice Labs")):
        assert as_ada("POST", address, json={"name": name}).status_code == 201
        assert as_ada("POST", address, json={"name": name}).status_code == 409


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, None),
        ({"role": "king"}, "body.role"),
        ({"role": None}, "body.role"),
        ({"email": "ada"}, "body.email"),
        ({"email": "a@b.example\n"}, "body.email"),
        ({"email": "a@b.example, c@d.example"}, "body.email"),
        ({"organisation": " Labs"}, "body.organisation"),
        ({"name": "carol"}, "body.name"),
    ],
)
def test_a_bad_change_is_422_and_changes_nothing(body, field, as_ada, alice):
    before = as_ada("GET", f"{USERS}/alice").json()
    answer = as_ada("PATCH", f"{USERS}/alice", json=body)

    assert answer.status_code == 422
    assert [problem["field"] for problem in answer.json()["problems"]] == [field][: bool(field)]
    assert as_ada("GET", f"{USERS}/alice").json() == before


def test_an_organiser_sees_the_members_of_a_course_without_their_addresses(client, olivia, ada):
    body = {"name": "stu", "email": "qwyjibo@uni.example"}
    assert client.post(USERS, json=body, headers=ada.headers).status_code == 201
    for path in (USERS, f"{USERS}/stu", f"{USERS}?q=stu"):
        assert "qwyjibo" in client.get(path, headers=ada.headers).text
        found = client.get(path, headers=olivia.headers)
        assert "stu" in found.text
        assert "qwyjibo" not in found.text
    assert client.get(f"{USERS}?q=qwyjibo", headers=olivia.headers).json()["users"] == []
    sign_in(client, olivia)
    made = client.post(
        "/api/v1/tokens", json={"user": "stu", "role": "submitter"}, headers=olivia.headers
    )
    for page in ("/console/users", "/console/users/stu"):
        text = client.get(page).text
        assert "stu" in text
        assert "qwyjibo" not in text
        assert 'method="post" action="/console/users' not in text
    # What they may do about a member: end their token.
    gone = client.delete(f"/api/v1/tokens/{made.json()['id']}", headers=olivia.headers)
    assert gone.json()["revoked"] == [made.json()["id"]]


SHOWN = "Alice O'Neill"


def rename(client, person, name):
    return client.patch(ME, json={"display_name": name}, headers=person.headers)


@pytest.fixture
def submitted(client, alice, digits_submission, submit):
    assert rename(client, alice, SHOWN).json()["display_name"] == SHOWN
    return submit(digits_submission, by=alice).json()["id"]


def test_readers_see_the_display_name_beside_the_account(submitted, client):
    board = rows_of(client.get("/api/v1/leaderboards/digits").json())[0]
    assert (board["submitter"], board["display_name"]) == ("alice", SHOWN)
    for path in (f"/api/v1/submissions/{submitted}", "/api/v1/benchmarks/digits/convergence"):
        assert f'"display_name":"{SHOWN}"' in client.get(path).text, path
    pages = (
        "/benchmarks/digits", f"/submissions/{submitted}", "/submissions", "/submitters/alice",
        f"/submissions/{submitted}?tab=scoring", "/search?q=o'neill",
    )  # fmt: skip
    for path in pages:
        assert "Alice O&#39;Neill" in client.get(path, headers=ORIGIN).text, path


def test_a_change_shows_on_every_board_at_once(submitted, client, alice, ada):
    page, board = "/benchmarks/digits", "/api/v1/leaderboards/digits"
    before = [client.get(path) for path in (page, board)]
    assert all("Neill" in answer.text for answer in before)
    by_admin = client.patch(
        "/api/v1/users/alice", json={"display_name": "Alice Mason"}, headers=ada.headers
    )
    assert by_admin.json()["display_name"] == "Alice Mason"
    for path, earlier in zip((page, board), before, strict=True):
        known = {"If-None-Match": earlier.headers["etag"]} if "etag" in earlier.headers else {}
        answer = client.get(path, headers=known)
        assert (answer.status_code, "Alice Mason" in answer.text) == (200, True), path
        assert "Neill" not in answer.text
    assert rename(client, alice, None).json()["display_name"] is None
    assert rows_of(client.get(board).json())[0]["display_name"] is None
    log = client.get("/api/v1/audit?action=user.update", headers=ada.headers).json()["records"]
    assert [(one["actor"], one["after"]["display_name"]) for one in log] == [
        ("alice", None), ("ada", "Alice Mason"), ("alice", SHOWN),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name",  # The second begins with a Cyrillic letter.
    ["bob", "Вob", "b0b ", "Bob\u202eecila", "Bob  Smith", "Carol (bob)", "ﬁnn", "former-3",
     "Roberta", "roberta"],
)  # fmt: skip
def test_nobody_can_be_shown_as_another(name, client, alice, bob):
    assert rename(client, bob, "Roberta").status_code == 200
    refused = rename(client, alice, name)
    assert refused.status_code in (409, 422), refused.text
    assert client.get(ME, headers=alice.headers).json()["display_name"] is None


def test_no_account_is_called_as_another_is_shown(client, alice, ada):
    assert rename(client, alice, "Alicé").status_code == 200  # Nearly one's own name is allowed.
    assert rename(client, alice, "Grace").status_code == 200
    answer = client.post("/api/v1/users", json={"name": "Grасe"}, headers=ada.headers)
    assert answer.status_code == 409
    assert "looks like that of a user called, 'Grace'" in answer.json()["detail"]


def test_a_display_name_is_chosen_when_joining_and_changed_on_the_account(client, olivia, bob):
    link = client.post("/api/v1/invitations", json={"uses": 2}, headers=olivia.headers).json()
    path = link["link"].removeprefix("http://testserver")
    client.cookies.clear()
    taken = client.post(path, data={"name": "carol", "display_name": "B0b"}, headers=ORIGIN)
    assert (taken.status_code, "looks like that of a user" in taken.text) == (422, True)
    joined = client.post(
        path, data={"name": "carol", "display_name": "Carol Danvers"}, headers=ORIGIN
    )
    assert "shown as Carol Danvers" in joined.text
    form = {"display_name": "Cap"}
    assert "shown as Cap<" in client.post("/account/display-name", data=form, headers=ORIGIN).text
    form["display_name"] = "bob"
    assert "There is a user" in client.post("/account/display-name", data=form, headers=ORIGIN).text
    form["display_name"] = ""
    again = client.post("/account/display-name", data=form, headers=ORIGIN).text
    assert "shown as" not in again.partition("<h2")[0]
