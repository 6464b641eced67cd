"""Webhooks from the command line."""

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Finishline, StandIn

HOOK = {
    "id": "h1", "url": "https://hooks.example/[a]", "kinds": ["record.set"], "scope": "benchmark",
    "benchmark": "digits", "failing_since": None, "disabled_because": "It answered 410 Gone.",
}  # fmt: skip
TRY = {"at": "2030-01-01T00:00:00Z", "status": None, "milliseconds": 12.5, "answer": "",
       "error": "No answer."}  # fmt: skip
DELIVERY = {
    "id": 7, "kind": "record.set", "state": "waiting", "due_at": "2030-01-01", "tries": [TRY],
}  # fmt: skip


def test_a_webhook_is_made_and_its_secret_shown(
    finishline: "Finishline", standin: "StandIn"
) -> None:
    standin.answer("POST /api/v1/webhooks", HOOK | {"secret": "whsec_x"}, status=201)
    add = ("webhook", "add", "https://a.example", "--kind", "record.set")
    ran = finishline(*add, "--kind", "submission.verified", "--token", "fl_a")

    assert ran.code == 0
    assert ran.out.splitlines()[0] == "whsec_x"
    assert json.loads(standin.asked[0].body) == {
        "url": "https://a.example",
        "kinds": ["record.set", "submission.verified"],
        "scope": "own",
        "benchmark": None,
    }
    finishline(*add, "--benchmark", "digits")
    finishline(*add, "--all")
    scopes = [json.loads(asked.body)["scope"] for asked in standin.asked]
    assert scopes == ["own", "benchmark", "all"]
    assert finishline("webhook", "add", "https://a.example").code == 2  # No kind.


def test_webhooks_and_deliveries_are_listed(finishline: "Finishline", standin: "StandIn") -> None:
    standin.answer("GET /api/v1/webhooks", {"webhooks": [HOOK]})
    listed = finishline("webhook", "list")
    assert "https://hooks.example/[a]" in listed.out
    assert "It answered 410 Gone." in listed.out
    standin.answer("GET /api/v1/webhooks/h1/deliveries", {"deliveries": [DELIVERY]})
    sent = finishline("webhook", "deliveries", "h1", "--state", "waiting")
    assert "No answer." in sent.out
    assert standin.asked[-1].path == "/api/v1/webhooks/h1/deliveries?state=waiting&limit=50"
    standin.answers["GET /api/v1/webhooks"] = [(200, {"webhooks": []})]
    assert "No webhooks yet" in finishline("webhook", "list").out


def test_what_is_asked_of_one_webhook(finishline: "Finishline", standin: "StandIn") -> None:
    own = "/api/v1/webhooks/h1"
    standin.answer(f"POST {own}/test", DELIVERY, status=202)
    standin.answer(f"POST {own}/secret", HOOK | {"secret": "whsec_y"})
    standin.answer(f"POST {own}/enable", HOOK)
    standin.answer(f"POST {own}/deliveries/7/resend", DELIVERY, status=202)
    standin.answer(f"DELETE {own}", None, status=200)
    for words in ("test h1", "secret h1", "enable h1", "resend h1 7", "delete h1"):
        assert finishline("webhook", *words.split()).code == 0, words

    assert [asked.path.removeprefix(own) for asked in standin.asked] == [
        "/test", "/secret", "/enable", "/deliveries/7/resend", "",
    ]  # fmt: skip
    standin.refuse(f"POST {own}/test", 404, "You have no webhook 'h1'.")
    finishline("webhook", "test", "h1")
    assert finishline("webhook", "test", "h1").code == 6
