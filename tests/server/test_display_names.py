"""Display names: shown wherever the submitter's name is, and never like that of another."""

import pytest

from tests.support.boards import rows_of
from tests.support.pages import ORIGIN

ME = "/api/v1/me"
SHOWN = "Alice O'Neill"


def rename(client, person, name):
    return client.patch(ME, json={"display_name": name}, headers=person.headers)


@pytest.fixture
def submitted(client, alice, digits_submission, submit):
    """Id of a submission by alice, who is shown as SHOWN."""
    assert rename(client, alice, SHOWN).json()["display_name"] == SHOWN
    return str(submit(digits_submission, by=alice).json()["id"])


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
    "name",
    [
        "bob",
        "Вob",  # A Cyrillic letter.
        "b0b ",
        "Bob\u202eecila",
        "Bob  Smith",
        "Carol (bob)",
        "ﬁnn",
        "former-3",
        "Roberta",
        "roberta",
    ],
)
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
