"""Submissions under an embargo: hidden until the date in answers of every kind."""

from datetime import timedelta

from fastapi.testclient import TestClient
from sqlalchemy import update

from server.app import create_app
from server.base.database import utc_now
from server.base.models import BenchmarkPhases
from server.benchmarks.in_force import PhaseWatch
from tests.support.boards import rows_of
from tests.support.services import services_of

BOARD = "/api/v1/leaderboards/digits"
HOUR = timedelta(hours=1)


def shown(client):
    """What is on the board."""
    return {entry["submission_id"] for entry in rows_of(client.get(BOARD).json())}


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
    # What was shown once is not hidden again. One that is moved holds on, and one that is taken
    # away is over at once.
    embargo(HOUR)
    later = submit(digits_submission).json()["id"]
    embargo(2 * HOUR)
    watch.look_once()
    assert shown(client) == {before, hidden}
    embargo(None)
    assert shown(client) == {before, hidden, later}


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
