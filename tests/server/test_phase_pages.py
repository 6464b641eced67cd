"""Setting phases and withdrawing in the browser."""

import re
from collections.abc import Callable
from typing import Any

from fastapi.testclient import TestClient

ORIGIN = {"Origin": "http://testserver", "Accept": "text/html"}
PHASES = "/console/phases"


def sign_in(client: TestClient, person: Any) -> str:
    """The token that forms of this browser carry from then on."""
    client.post("/console/sign-in", data={"token": person.secret}, headers=ORIGIN)
    found = re.findall(r'name="csrf" value="([0-9a-f]{64})"', client.get("/console/account").text)
    return str(found[0])


def test_an_organiser_sets_dates_on_the_console(client: TestClient, olivia: Any) -> None:
    csrf = sign_in(client, olivia)
    assert "Open: it has no dates." in client.get(PHASES).text
    assert 'type="datetime-local"' in client.get(f"{PHASES}?benchmark=digits").text
    form = {
        "csrf": csrf,
        "benchmark": "digits",
        "opens_at": "2026-01-01T09:30",
        "freezes_at": "2026-01-02T00:00",
        "closes_at": "2031-01-01T00:00",
        "embargo_until": "",
        "reason": "the <first> round",
    }
    wrong = client.post(PHASES, data=form | {"closes_at": "2025-01-01T00:00"}, headers=ORIGIN)
    assert wrong.status_code == 422
    assert "must be after opens_at" in wrong.text
    assert 'value="2025-01-01T00:00"' in wrong.text
    assert "the &lt;first&gt; round" in wrong.text
    nameless = client.post(PHASES, data=form | {"benchmark": "nothing"}, headers=ORIGIN)
    assert nameless.status_code == 404
    done = client.post(PHASES, data=form, headers=ORIGIN)
    assert "digits: Open until 2031-01-01 00:00 UTC. Its rules are frozen since" in done.text
    shown = client.get(f"{PHASES}?benchmark=digits").text
    assert 'value="2026-01-01T09:30:00"' in shown
    assert "the &lt;first&gt; round" in shown
    same = {"opens_at": "2026-01-01T09:30:00", "freezes_at": "2026-01-02T00:00:00"}
    again = client.post(PHASES, data=form | same, headers=ORIGIN)
    assert again.status_code == 200  # What is sent back as it was shown undoes no freeze.
    held = client.post(PHASES, data=form | {"freezes_at": ""}, headers=ORIGIN)
    assert held.status_code == 409
    assert "frozen since 2026-01-02 00:00 UTC" in held.text
    freed = form | {"freezes_at": "", "unfreeze": "true"}
    assert (
        "digits: Open until 2031-01-01 00:00 UTC."
        in client.post(PHASES, data=freed, headers=ORIGIN).text
    )
    assert client.post(PHASES, data=form | {"csrf": "0" * 64}, headers=ORIGIN).status_code == 403


def test_a_submitter_asks_for_the_first_replay_on_the_page_and_for_no_second(
    client: TestClient, submit: Callable[..., Any], digits_submission: Any, alice: Any, bob: Any
) -> None:
    page = f"/submissions/{submit(digits_submission).json()['id']}"
    assert "Request verification" not in client.get(page).text
    assert client.post(f"{page}/verify", headers=ORIGIN).status_code == 401
    csrf = {"csrf": sign_in(client, bob)}
    assert "Request verification" not in client.get(page).text
    assert client.post(f"{page}/verify", data=csrf, headers=ORIGIN).status_code == 403
    csrf = {"csrf": sign_in(client, alice)}
    assert "Request verification" in client.get(page).text
    assert client.post(f"{page}/verify", headers=ORIGIN).status_code == 403  # No form of ours.
    asked = client.post(f"{page}/verify", data=csrf, headers=ORIGIN, follow_redirects=False)
    assert asked.status_code == 303
    assert client.get(asked.headers["location"]).status_code == 200
    assert "Request verification" not in client.get(page).text
    second = client.post(f"{page}/verify", data=csrf, headers=ORIGIN)
    assert (second.status_code, "is under way" in second.text) == (409, True)


def test_a_submitter_withdraws_on_the_page_of_a_submission_and_nobody_else_is_offered_it(
    client: TestClient, submit: Callable[..., Any], digits_submission: Any, alice: Any, bob: Any
) -> None:
    page = f"/submissions/{submit(digits_submission).json()['id']}"
    reason = {"reason": "the clock was wrong"}
    assert "Withdraw" not in client.get(page).text
    assert client.post(f"{page}/withdraw", data=reason, headers=ORIGIN).status_code == 401
    csrf = sign_in(client, bob)
    assert "Withdraw" not in client.get(page).text
    assert (
        client.post(f"{page}/withdraw", data=reason | {"csrf": csrf}, headers=ORIGIN).status_code
        == 403
    )
    csrf = sign_in(client, alice)
    assert "Withdraw this submission" in client.get(page).text
    for wrong, status in (({"csrf": csrf}, 422), (reason, 403)):
        answer = client.post(f"{page}/withdraw", data=wrong, headers=ORIGIN)
        assert answer.status_code == status
    missing = client.post(
        "/submissions/none/withdraw", data=reason | {"csrf": csrf}, headers=ORIGIN
    )
    assert missing.status_code == 404
    done = client.post(f"{page}/withdraw", data=reason | {"csrf": csrf}, headers=ORIGIN)
    assert "<b>Withdrawn</b> by alice" in done.text
    assert "the clock was wrong" in done.text
    assert "withdrawn" in client.get("/console/account").text
