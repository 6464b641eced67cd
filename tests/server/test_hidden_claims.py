"""Seeds, curves and logs of a claim are its owner's and the organisers' until its first verdict."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server.base.database import Database, utc_now
from server.base.models import Submission
from server.base.viewer import ANYBODY, ORGANISER
from server.verifications.event_stream import Position, read_news
from server.verifications.overdue import expire_leases
from tests.server.test_embargo_everywhere import addresses
from tests.support.services import services_of

# Figures that stand in no other place: seeds, and a quality of a curve.
SEEDS = (770_001_111, 770_002_222, 770_003_333)
QUALITY = 91.2345678


@pytest.fixture
def claim(
    digits_submission: Any, make_log: Callable[..., bytes], submit: Callable[..., Any], alice: Any
) -> dict[str, Any]:
    """A claim of alice's whose seeds and curve can be told from all others."""
    curve = [40.0, 80.0, QUALITY, 94.0, 96.0, 96.5, 97.0, 98.1]
    digits_submission.logs = {
        f"run_{index}.log": make_log(
            seed,
            name=f"run_{index}.log",
            qualities=[quality + index / 1000 * (quality < 98) for quality in curve],
        )
        for index, seed in enumerate(SEEDS)
    }
    view: dict[str, Any] = submit(digits_submission, by=alice, as_is=True).json()
    return view


def known(claim: dict[str, Any], verification_id: str) -> dict[str, str]:
    return {
        "benchmark_id": "digits",
        "submission_id": claim["id"],
        "public": claim["id"],
        "verification_id": verification_id,
        "rerun": verification_id,
        "waiting": verification_id,
        "duel": verification_id,
        "index": "0",
        "name": "walter-1",
        "name:path": "walter-1",
        "path:path": "rules.md",
        "page": "rules",
        "file": "style.css",
        "calibration_id": "none",
        "version": "1",
    }


def secrets(claim: dict[str, Any]) -> tuple[str, ...]:
    """What tells of the runs: a seed, a log's hash, a quality of a curve."""
    hashes = [run["log_sha256"] for run in claim["runs"]]
    return (*map(str, SEEDS), *hashes, str(QUALITY)[:8])


@pytest.fixture
def verification_id(claim: dict[str, Any], client: TestClient, olivia: Any) -> str:
    address = f"/api/v1/submissions/{claim['id']}/verifications"
    return str(client.post(address, headers=olivia.headers).json()["id"])


def test_no_address_tells_strangers_the_runs_of_a_claim_and_its_owner_and_organisers_read_them(
    claim: dict[str, Any],
    verification_id: str,
    client: TestClient,
    alice: Any,
    bob: Any,
    walter: Any,
    olivia: Any,
) -> None:
    found: dict[str, set[str]] = {"alice": set(), "olivia": set()}
    for path, address in addresses(client, known(claim, verification_id)):
        if path.endswith("/events") or path.startswith(("/console", "/static")):
            continue
        for who in ({}, bob.headers, walter.headers):
            answer = client.get(address, headers={"Accept": "text/html, */*"} | who)
            assert answer.status_code < 500, address
            for word in secrets(claim):
                assert word not in answer.text, f"{address} tells {word}"
        for person in (alice, olivia):
            text = client.get(address, headers=person.headers).text
            if any(word in text for word in secrets(claim)):
                found[person.name].add(path)
    for name, paths in found.items():
        assert paths >= {
            "/api/v1/submissions/{submission_id}",
            "/api/v1/submissions/{submission_id}/runs",
            "/api/v1/submissions/{submission_id}/runs/{index}/curve",
            "/api/v1/submissions/{submission_id}/runs/{index}/log",
        }, name


def test_the_curve_of_an_own_seed_is_not_told_while_its_claim_is_hidden(
    replay: Any, client: TestClient, alice: Any, bob: Any, olivia: Any
) -> None:
    own = replay.view()["own_runs"]
    assert own > 0
    told = [
        {"sequence": n, "run": run, "kind": "evaluation", "epoch": 1.0, "samples": 1152,
         "seconds": 0.1, "quality": quality}
        for n, (run, quality) in enumerate([(own, 55.4321), (own - 1, QUALITY)])
    ]  # fmt: skip
    assert replay.post(replay.claim().json(), told).status_code == 200
    race = f"/api/v1/verifications/{replay.verification_id}/race"

    def seen(headers: dict[str, str]) -> list[float]:
        runs = client.get(race, headers=headers).json()["runs"]
        return [point["quality"] for run in runs for point in run["evaluations"]]

    assert seen({}) == seen(bob.headers) == [55.4321]
    assert seen(alice.headers) == seen(olivia.headers) == [QUALITY, 55.4321]
    for viewer, qualities in ((ANYBODY, [55.4321, None]), (ORGANISER, [55.4321, QUALITY])):
        services = services_of(client)
        news = read_news(services, viewer, replay.verification_id, Position())
        assert [event["quality"] for _, event in news.replay] == qualities
    assert str(QUALITY)[:5] not in client.get("/").text
    replay.change(replay.attempt_id, lease_expires_at=utc_now() - timedelta(seconds=1))
    with replay.database.write() as session:
        assert expire_leases(session) == 1
    for address in (f"/verifications/{replay.verification_id}", race.removesuffix("/race")):
        assert str(QUALITY)[:5] not in client.get(address).text


def test_figures_are_shown_meanwhile_with_the_day_of_the_rest(
    claim: dict[str, Any], client: TestClient
) -> None:
    view = client.get(f"/api/v1/submissions/{claim['id']}").json()

    assert view["result"] == claim["result"]
    assert [run["tta_seconds"] for run in view["runs"]] == [
        run["tta_seconds"] for run in claim["runs"]
    ]
    assert view["hidden_until"] > (utc_now() + timedelta(days=29)).isoformat()
    answer = client.get(f"/api/v1/submissions/{claim['id']}/runs/0/log")
    assert answer.status_code == 404
    assert "until its first verdict, or until" in answer.json()["detail"]
    board = client.get("/api/v1/leaderboards/digits").json()
    assert [entry["submission_id"] for entry in board["entries"]] == [claim["id"]]


def test_after_30_days_the_runs_are_everybodys(
    claim: dict[str, Any], client: TestClient, database: Database
) -> None:
    with database.write() as session:
        submission = session.get_one(Submission, claim["id"])
        assert submission.revealed_at == submission.submitted_at + timedelta(days=30)
        submission.revealed_at = utc_now()

    view = client.get(f"/api/v1/submissions/{claim['id']}").json()

    assert (view["runs"], view["hidden_until"]) == (claim["runs"], None)
    assert client.get(f"/api/v1/submissions/{claim['id']}/runs/0/log").status_code == 200


def test_the_first_verdict_shows_the_runs(
    replay: Any, make_report: Callable[..., Any], client: TestClient
) -> None:
    address = f"/api/v1/submissions/{replay.submission_id}"
    assert client.get(f"{address}/runs/0/curve").status_code == 404

    replay.report(replay.claim().json(), make_report(replay.seeds()))

    assert client.get(f"{address}/runs/0/curve").status_code == 200
    assert client.get(address).json()["hidden_until"] is None


def test_a_verification_that_ends_without_a_verdict_opens_no_seeds_of_a_hidden_claim(
    claim: dict[str, Any], verification_id: str, client: TestClient, olivia: Any
) -> None:
    address = f"/api/v1/verifications/{verification_id}"
    client.post(f"{address}/cancel", json={"reason": "wrong class"}, headers=olivia.headers)

    view = client.get(address).json()

    assert view["state"] == "cancelled"
    assert view["seeds"] is None


def test_an_archive_is_hidden_from_nobody(
    digits_submission: Any, client: TestClient, submit: Callable[..., Any], olivia: Any
) -> None:
    digits_submission.form = {"archive": "true"}
    view = submit(digits_submission, by=olivia).json()

    assert client.get(f"/api/v1/submissions/{view['id']}").json()["runs"] == view["runs"]


def test_through_a_lens_hidden_curves_give_no_time_and_the_board_says_why(
    claim: dict[str, Any], client: TestClient, alice: Any
) -> None:
    asked = "/api/v1/leaderboards/digits?target=95"
    for headers in ({}, alice.headers):
        (entry,) = client.get(asked, headers=headers).json()["entries"]
        assert (entry["submission_id"], entry["tta_seconds"]) == (claim["id"], None)
        assert entry["unranked_reason"] == "its curves are hidden until its first verdict"
