"""The account page of everybody and the admins' page of users, as a browser sends their forms."""

import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server.pages import console_account
from tests.server.test_console import Console, error_of, unnamed
from tests.server.test_submission_pages import judged

__all__ = ["judged"]  # A fixture.

ACCOUNT = "/console/account"
USERS = "/console/users"


@pytest.fixture
def alices(client: TestClient, alice: Any) -> Console:
    """The browser of a submitter."""
    return Console(client, alice)


@pytest.fixture
def adas(client: TestClient, ada: Any) -> Console:
    """The browser of an admin."""
    return Console(client, ada)


def secret_in(page: str) -> str:
    """The token that a page shows, once."""
    found = re.findall(r"fl_[\w-]{43}", page)
    assert len(found) == 1
    return str(found[0])


def me(client: TestClient, secret: str) -> Any:
    return client.get("/api/v1/me", headers={"Authorization": f"Bearer {secret}"})


def navigation(page: str) -> list[str]:
    """Where the console's own links lead."""
    links = page[page.index('class="console-nav"') :].split("</nav>")[0]
    return re.findall(r'href="([^"]+)"', links)


def test_everybody_makes_rotates_and_revokes_their_own_tokens(
    alices: Console, client: TestClient, alice: Any
) -> None:
    page = alices.get(ACCOUNT).text
    assert (navigation(page), unnamed(page)) == (["/console/notices", ACCOUNT], [])
    assert re.findall(r'name="scopes_(\w+)" value="on" checked', page) == [
        "read",
        "submit",
        "tokens",
    ]
    for field, wrong in (("expires_in_days", "0"), ("label", "x" * 101), ("role", "king")):
        fields = {"label": "nightly", "scopes_submit": "on"} | {field: wrong}
        answer = alices.post(f"{ACCOUNT}/tokens", **fields)
        assert (answer.status_code, error_of(answer.text, field) is None) == (422, False)
        assert f'value="{fields["label"]}"' in answer.text
    none = alices.post(f"{ACCOUNT}/tokens", label="nightly")
    assert (none.status_code, error_of(none.text, "scopes")) == (422, "This field is required.")
    assert alices.post(f"{ACCOUNT}/tokens", scopes_organise="on").status_code == 422
    assert alices.post(f"{ACCOUNT}/tokens", role="organiser", scopes_read="on").status_code == 403

    page = alices.done(f"{ACCOUNT}/tokens", label="<b>nightly", scopes_submit="on")
    nightly = me(client, secret_in(page)).json()
    assert (nightly["user"], nightly["scopes"], nightly["label"]) == (
        "alice",
        ["submit"],
        "<b>nightly",
    )
    assert ("<b>nightly" in page, "&lt;b&gt;nightly" in page) == (False, True)
    address = f"{ACCOUNT}/tokens/{nightly['token_id']}"
    fresh = secret_in(alices.done(f"{address}/rotate", overlap_hours="24"))
    assert me(client, fresh).json()["label"] == "<b>nightly"
    assert me(client, alice.secret).status_code == 200
    alices.done(f"{address}/revoke")
    assert alices.post(f"{address}/rotate").status_code == 409
    assert alices.post(f"{ACCOUNT}/tokens/999/revoke").status_code == 404


def test_a_session_goes_on_with_the_token_that_takes_over_from_its_own(
    alices: Console, client: TestClient, alice: Any
) -> None:
    number = me(client, alice.secret).json()["token_id"]
    page = alices.done(f"{ACCOUNT}/tokens/{number}/rotate", overlap_hours="0")

    assert me(client, alice.secret).status_code == 401
    assert me(client, secret_in(page)).json()["token_id"] == number + 1
    assert alices.get(ACCOUNT).status_code == 200
    # Revoking the session's own signs out.
    alices.post(f"{ACCOUNT}/tokens/{number + 1}/revoke")
    assert client.get(ACCOUNT, follow_redirects=False).status_code == 303


def test_a_token_that_only_reads_shows_pages_and_changes_nothing(
    client: TestClient, olivia: Any
) -> None:
    made = client.post("/api/v1/me/tokens", json={"scopes": ["read"]}, headers=olivia.headers)
    reader = Console(client, type("Reader", (), {"secret": made.json()["token"]}))

    for page in (ACCOUNT, "/console/tokens"):
        text = reader.get(page).text
        assert "<h1>" in text
        assert "Make the token" not in text
    assert reader.get("/console/audit").status_code == 200
    assert reader.post("/console/tokens", user="x", role="submitter").status_code == 403
    assert reader.post(f"{ACCOUNT}/tokens", scopes_read="on").status_code == 403


def test_an_admin_keeps_users_and_organisations(
    adas: Console, client: TestClient, alice: Any, bob: Any
) -> None:
    assert navigation(adas.get("/console").text)[-3:] == [USERS, "/console/notices", ACCOUNT]
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
    assert (unnamed(page), "R&D <Labs>" in page) == ([], False)
    assert re.findall(r'href="/console/users/([^"]+)"', page) == [
        "ada",
        "alice",
        "bob",
        "carol%20c",
    ]
    found = adas.get(USERS, q="LIC").text
    assert re.findall(r'href="/console/users/([^"]+)"', found) == ["alice"]
    assert "No match" in adas.get(USERS, q="%").text

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


def test_users_are_paged_by_name(adas: Console, make_person: Callable[..., Any]) -> None:
    for number in range(101):
        make_person(f"user {number:03}", "submitter")
    first = adas.get(USERS, q="user").text
    assert first.count('href="/console/users/user') == 100
    more = unescape(re.findall(r'class="next" href="([^"]+)"', first)[0])
    assert re.findall(r'href="/console/users/(user[^"]+)"', adas.get(more).text) == ["user%20100"]


def test_ones_own_submissions_go_on_where_a_page_ends_and_say_what_was_verified(
    judged: Callable[..., str],
    alices: Console,
    monkeypatch: pytest.MonkeyPatch,
    submit: Callable[..., Any],
    digits_submission: Any,
    bob: Any,
) -> None:
    first = judged(hardware_class="gpu-elsewhere").rpartition("/")[2]
    second, third = (submit(digits_submission).json()["id"] for _ in range(2))
    others = submit(digits_submission, by=bob).json()["id"]
    monkeypatch.setattr(console_account, "LATEST", 2)

    page = alices.get(ACCOUNT).text
    older = unescape(re.findall(r'<a class="next" href="([^"]+)"', page)[0])
    rest = alices.get(older).text

    shown = [re.findall(r'class="mono" href="/submissions/(\w+)"', text) for text in (page, rest)]
    assert shown == [[third, second], [first]]
    assert others not in page + rest
    assert ("epochs agree" in page, "epochs agree" in rest) == (False, True)
    assert 'class="next"' not in rest
    assert alices.get(ACCOUNT, before="yesterday").status_code == 422
