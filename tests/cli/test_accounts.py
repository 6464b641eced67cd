"""`finishline account` and `finishline admin`, against a stand-in for the server."""

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Finishline, StandIn

MADE = {
    "id": 7, "user": "ann", "role": "submitter", "scopes": ["submit"], "label": "nightly",
    "expires_at": "2026-12-21T18:00:59+01:00", "revoked_at": None, "last_used_at": None,
}  # fmt: skip
USER = {
    "name": "ann lee", "role": "organiser", "organisation": "Example Labs", "email": None,
    "tokens": 2, "last_used_at": None, "disabled_at": None,
}  # fmt: skip


def body_of(asked: Any) -> Any:
    return json.loads(asked.body)


def test_own_tokens_are_shown_made_rotated_and_revoked(
    finishline: "Finishline", standin: "StandIn"
) -> None:
    me = {"user": "ann", "organisation": "Example Labs", "highest_role": "organiser",
          "token_id": 7, "label": None, "role": "submitter", "scopes": ["read"],
          "expires_at": None}  # fmt: skip
    standin.answer("GET /api/v1/me", me)
    standin.answer("GET /api/v1/me/tokens", {"tokens": [MADE]})
    standin.answer("POST /api/v1/me/tokens", MADE | {"token": "fl_x"}, status=201)
    standin.answer("POST /api/v1/me/tokens/7/rotate", MADE | {"token": "fl_y"}, status=201)
    standin.answer("DELETE /api/v1/me/tokens/8", {"revoked": [8]})

    shown = finishline("account", "show").out
    assert "ann, Example Labs" in shown
    assert "role submitter; your account allows up to organiser" in shown
    listed = finishline("account", "tokens").out
    assert ("nightly" in listed, "2026-12-21 17:00" in listed) == (True, True)
    made = finishline("account", "make", "--scope", "submit", "--scope", "read", "--days", "0.5")
    assert made.out.splitlines()[0] == "fl_x"
    assert body_of(standin.asked[-1]) == {"scopes": ["submit", "read"], "expires_in_days": 0.5}
    # Without an id it is the token that asks.
    rotated = finishline("account", "rotate", "--overlap-hours", "2", "--token", "fl_a")
    assert rotated.out.splitlines()[0] == "fl_y"
    assert body_of(standin.asked[-1]) == {"overlap_hours": 2.0}
    assert finishline("account", "revoke", "8", "--json").json() == {"revoked": [8]}


def test_an_admin_keeps_users_over_every_page_of_them(
    finishline: "Finishline", standin: "StandIn"
) -> None:
    standin.answer("GET /api/v1/users", {"users": [USER], "next_after": "ann lee"})
    standin.answer("GET /api/v1/users", {"users": [USER | {"name": "bob"}], "next_after": None})
    standin.answer("POST /api/v1/users", USER, status=201)
    standin.answer("PATCH /api/v1/users/ann%20lee", USER | {"disabled_at": "2026-01-01T00:00:00Z"})

    listed = finishline("admin", "user", "list", "--json").json()["users"]
    assert [user["name"] for user in listed] == ["ann lee", "bob"]
    assert "after=ann+lee" in standin.asked[1].path
    added = finishline("admin", "user", "add", "ann lee", "--organisation", "Example Labs")
    assert ("ann lee" in added.out, "enabled" in added.out) == (True, True)
    assert body_of(standin.asked[-1]) == {
        "name": "ann lee", "role": "submitter", "organisation": "Example Labs", "email": None,
    }  # fmt: skip
    for arguments, sent in (
        (("set", "ann lee", "--role", "admin", "--no-email"), {"role": "admin", "email": None}),
        (("set", "ann lee", "--no-organisation"), {"organisation": None}),
        (("disable", "ann lee"), {"disabled": True}),
        (("enable", "ann lee"), {"disabled": False}),
    ):
        ran = finishline("admin", "user", *arguments)
        assert (ran.code, body_of(standin.asked[-1])) == (0, sent)
        assert "disabled" in ran.out
    asked = len(standin.asked)
    nothing = finishline("admin", "user", "set", "ann lee")
    assert (nothing.code, "--role" in nothing.err) == (2, True)
    assert len(standin.asked) == asked


def test_an_admin_keeps_organisations_and_tokens(
    finishline: "Finishline", standin: "StandIn"
) -> None:
    standin.answer("GET /api/v1/organisations", {"organisations": [{"name": "Labs", "users": 3}]})
    standin.answer("POST /api/v1/organisations", {"id": 1, "name": "Labs", "users": 0}, status=201)
    standin.answer("GET /api/v1/tokens", {"tokens": [MADE]})
    standin.answer("POST /api/v1/tokens", MADE | {"token": "fl_x"}, status=201)
    standin.answer("POST /api/v1/tokens/7/rotate", MADE | {"token": "fl_y"}, status=201)
    standin.answer("DELETE /api/v1/tokens/7", {"revoked": [7, 9, 12]})

    assert "Labs" in finishline("admin", "organisation", "list").out
    assert finishline("admin", "organisation", "add", "Labs").code == 0
    assert body_of(standin.asked[-1]) == {"name": "Labs"}
    assert "fl_" not in finishline("admin", "token", "list", "--user", "ann").out
    assert standin.asked[-1].path == "/api/v1/tokens?user=ann"
    finishline("admin", "token", "make", "ann", "--role", "worker", "--scope", "work")
    assert body_of(standin.asked[-1]) == {"user": "ann", "role": "worker", "scopes": ["work"]}
    rotated = finishline("admin", "token", "rotate", "7", "--days", "30")
    assert rotated.out.splitlines()[0] == "fl_y"
    assert body_of(standin.asked[-1]) == {"overlap_hours": 0.0, "expires_in_days": 30.0}
    assert finishline("admin", "token", "revoke", "7").out == (
        "Token 7 is revoked.\nAlso revoked: 2 tokens made with it or rotated from it: 9, 12.\n"
    )


@pytest.mark.parametrize(
    ("status", "code"), [(401, 5), (403, 5), (404, 6), (409, 1), (422, 1), (503, 4)]
)
def test_a_refusal_is_told_with_its_exit_code(
    status: int, code: int, finishline: "Finishline", standin: "StandIn"
) -> None:
    standin.refuse("PATCH /api/v1/users/ann", status, "Not so.")
    ran = finishline("admin", "user", "disable", "ann")
    assert (ran.code, "Not so." in ran.err, ran.out) == (code, True, "")
