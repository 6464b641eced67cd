"""Submissions under an embargo: hidden until the date in answers of every kind."""

import threading
from datetime import timedelta

from fastapi.testclient import TestClient
from sqlalchemy import update

from server.app import create_app
from server.base.database import utc_now
from server.base.models import BenchmarkPhases
from server.benchmarks.phase_watch import PhaseWatch
from server.benchmarks.phases import due_embargoes, lift_embargo
from tests.support.every_address import (
    CANARY,
    addresses,
    ask,
    carol,
    hidden,
    organisations,
    text_of,
    told,
)
from tests.support.services import services_of

__all__ = ["carol", "hidden", "organisations"]

BOARD = "/api/v1/leaderboards/digits"


HOUR = timedelta(hours=1)


def shown(client):
    """What is on the board."""
    return {entry["submission_id"] for entry in client.get(BOARD).json()["entries"]}


def test_when_the_date_passes_the_results_appear_and_the_board_has_another_version(
    embargo, submit, digits_submission, client, database, settings
):
    before = submit(digits_submission).json()["id"]
    embargo(HOUR)
    hidden = submit(digits_submission).json()["id"]
    watch = services_of(client).of(PhaseWatch)
    watch.look_once()
    first = client.get(BOARD)
    assert shown(client) == {before}
    assert client.get(BOARD, headers={"If-None-Match": first.headers["etag"]}).status_code == 304
    # What was published before the embargo stays; the counts give the hidden one away no more.
    assert client.get("/api/v1/benchmarks/digits").json()["submissions"] == 1
    with TestClient(create_app(settings, dispatch=False)) as other:
        assert shown(other) == {before}
        with database.write() as session:
            session.execute(update(BenchmarkPhases).values(embargo_until=utc_now()))
        services_of(other).of(PhaseWatch).look_once()
        assert shown(other) == {before, hidden}
        assert shown(client) == {before, hidden}
        assert client.get(BOARD).json()["version"] > first.json()["version"]
        version = client.get(BOARD).json()["version"]
        watch.look_once()
        assert client.get(BOARD).json()["version"] == version
    assert client.get(f"/api/v1/submissions/{hidden}").json()["under_embargo"] is False
    # What was shown once is not hidden again.
    embargo(HOUR)
    watch.look_once()
    assert shown(client) == {before, hidden}


def test_an_embargo_that_is_taken_away_is_over_at_once_and_one_moved_holds_on(
    embargo, submit, digits_submission, client
):
    embargo(HOUR)
    hidden = submit(digits_submission).json()["id"]
    embargo(2 * HOUR)
    services_of(client).of(PhaseWatch).look_once()
    assert shown(client) == set()
    embargo(None)
    assert shown(client) == {hidden}


def test_what_its_owner_reads_first_is_kept_for_nobody_else(
    embargo, submit, digits_submission, client, alice, olivia
):
    embargo(HOUR)
    hidden = submit(digits_submission).json()["id"]
    for person in (alice, olivia):
        client.post("/api/v1/submissions", headers=person.headers)
        assert client.get(f"/submissions/{hidden}", headers=person.headers).status_code == 200
        for address in (BOARD, "/benchmarks/digits", "/", "/feed.atom"):
            assert hidden not in client.get(address, headers=person.headers).text, address
            assert hidden not in client.get(address).text, address
    asked = client.post(f"/api/v1/submissions/{hidden}/verifications", headers=olivia.headers)
    race = client.get(f"/api/v1/verifications/{asked.json()['id']}/race", headers=alice.headers)
    assert race.json()["ghosts"][0]["submission_id"] == hidden
    for headers in (olivia.headers, {}):
        records = client.get("/api/v1/benchmarks/digits/records", headers=headers).json()
        assert records["divisions"][0]["records"] == []


def test_a_stranger_cannot_tell_a_hidden_submission_from_none(
    embargo, submit, digits_submission, client, bob
):
    embargo(HOUR)
    hidden = submit(digits_submission).json()["id"]
    for path in ("/api/v1/submissions/{}", "/submissions/{}", "/api/v1/submissions/{}/runs"):
        found = client.get(path.format(hidden), headers=bob.headers).json()["detail"]
        missing = client.get(path.format("nothing"), headers=bob.headers).json()["detail"]
        assert found == missing.replace("nothing", hidden)
    for asked, body in (("withdrawal", {"reason": "mine"}), ("verifications", {})):
        address = f"/api/v1/submissions/{hidden}/{asked}"
        refused = client.post(address, json=body, headers=bob.headers)
        assert refused.status_code == 404, asked
        assert f"There is no submission {hidden!r};" in refused.json()["detail"], asked


def test_only_an_embargo_that_is_over_is_lifted(
    embargo, submit, digits_submission, client, database
):
    embargo(HOUR)
    hidden = submit(digits_submission).json()["id"]
    with database.write() as session:
        until = session.query(BenchmarkPhases).one().embargo_until
        assert until is not None
        before = until - timedelta(seconds=1)
        assert due_embargoes(session, before) == []
        assert lift_embargo(session, "digits", before) == 0
        assert due_embargoes(session, until) == ["digits"]
        assert lift_embargo(session, "digits", until) == 1
        assert due_embargoes(session, until) == []
    assert shown(client) == {hidden}


def test_members_see_it_for_as_long_as_they_are_of_the_submitters_organisation(
    embargo, submit, digits_submission, client, bob, ada
):
    for name in ("Example Labs", "Other Labs"):
        client.post("/api/v1/organisations", json={"name": name}, headers=ada.headers)

    def move(name, organisation):
        change = {"organisation": organisation}
        answer = client.patch(f"/api/v1/users/{name}", json=change, headers=ada.headers)
        assert answer.status_code == 200, answer.text

    def bob_gets(method="GET", more="", **body):
        address = f"/api/v1/submissions/{hidden}{more}"
        return int(client.request(method, address, headers=bob.headers, **body).status_code)

    embargo(HOUR)
    hidden = submit(digits_submission).json()["id"]
    move("alice", "Example Labs")
    assert bob_gets() == 404
    move("bob", "Example Labs")
    assert bob_gets() == 200
    # To see is not to change: it is refused as another's, not as what is not there.
    assert bob_gets("POST", "/withdrawal", json={"reason": "not mine"}) == 403
    assert bob_gets("POST", "/verifications", json={}) == 403
    assert hidden not in client.get(BOARD, headers=bob.headers).text
    move("bob", "Other Labs")
    assert bob_gets() == 404
    # Whoever is in none shares none with others who are in none.
    move("alice", None)
    move("bob", None)
    assert bob_gets() == 404
    assert bob_gets("POST", "/withdrawal", json={"reason": "not mine"}) == 404


def test_the_browser_of_its_owner_shows_it_and_says_until_when(
    embargo, submit, digits_submission, client, alice
):
    embargo(HOUR)
    hidden = submit(digits_submission).json()["id"]
    sent = {"token": alice.secret}
    client.post("/console/sign-in", data=sent, headers={"Origin": "http://testserver"})
    page = client.get(f"/submissions/{hidden}").text
    assert "<b>Under embargo</b> until" in page
    assert client.get(f"/submissions/{hidden}?tab=runs").status_code == 200
    assert "under embargo" in client.get("/account").text


# Where its owner must find the word, so that the search can find anything at all.
FOUND_BY_OWNER = {
    "/submissions",
    "/submissions/{submission_id}/runs/{index}",
    "/verifications",
    "/search",
    "/api/v1/submissions",
    "/api/v1/submissions/{submission_id}",
    "/api/v1/submissions/{submission_id}/runs",
    "/api/v1/submissions/{submission_id}/runs/{index}/curve",
    "/api/v1/compare",
    "/api/v1/verifications/{verification_id}/race",
    "/api/v1/verifications/{verification_id}/proof",
    "/api/v1/queue",
    "/api/v1/workers/{name}",
    "/submissions/{submission_id}",
    "/verifications/{verification_id}",
    "/verifications/compare",
    "/compare",
    "/workers",
    "/workers/{name:path}",
}


# Refused without a fitting token, before anything is looked up.
TOKEN_FIRST = {"/api/v1/submissions/{submission_id}/challenge"}


def test_no_address_tells_strangers_of_what_is_under_embargo_and_its_people_read_it(
    hidden, client, alice, bob, carol, walter, olivia
):
    found = {"bob": set(), "carol": set(), "olivia": set()}
    for path, address in addresses(client, hidden):
        if path.endswith("/events") or path.startswith(("/console", "/static")):
            continue
        for who in ({}, alice.headers, walter.headers):
            answer = ask(client, address, who)
            assert answer.status_code < 500, address
            # What was asked for may be named in the refusal, as it was typed.
            text = text_of(answer) if answer.status_code < 400 else ""
            asked = {word for word in told(hidden) if word in address}
            for word in set(told(hidden)) - asked:
                assert word not in text, f"{address} tells {word}"
            if asked & {CANARY, hidden["submission_id"]} and "?" not in address:
                unseen = (401, 403, 404) if path in TOKEN_FIRST else (404,)
                assert answer.status_code in unseen, address
            assert CANARY not in text_of(answer).replace("q=zyzzyva", "").replace(
                'value="zyzzyva"', ""
            ), address
        for person in (bob, carol, olivia) if path in FOUND_BY_OWNER else ():
            if CANARY in text_of(ask(client, address, person.headers)):
                found[person.name].add(path)
    for name, paths in found.items():
        assert paths >= FOUND_BY_OWNER, (name, FOUND_BY_OWNER - paths)


def test_a_stream_of_events_is_not_opened_for_strangers(hidden, client, bob):
    address = f"/api/v1/verifications/{hidden['verification_id']}/events"
    assert client.get(address).status_code == 404
    read = []
    reader = threading.Thread(
        target=lambda: read.append(client.get(address, headers=bob.headers).text)
    )
    reader.start()
    reader.join(timeout=20)
    assert "event: end" in read[0]
