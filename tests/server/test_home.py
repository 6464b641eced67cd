"""The first page: records, what is under way, what was found; derived once a version."""

import html
import re
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server.base.models import Verification
from server.boards import records as queries

pytestmark = pytest.mark.usefixtures("claims_are_numbered")


def words_of(page: str) -> str:
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", page)))


def test_an_empty_server_says_how_to_begin(client: TestClient) -> None:
    page = client.get("/").text
    words = words_of(page)

    assert "finishline submit runs/mine" in words
    assert 'href="/docs/start"' in page
    assert "No replays running." in words
    assert "No verdict yet" in words


def test_a_replay_is_seen_from_the_queue_to_its_verdict(
    replay: Any, make_report: Callable[..., Any], client: TestClient
) -> None:
    link = f'href="/verifications/{replay.verification_id}"'
    queued = client.get("/").text
    assert link in queued
    assert "queued" in words_of(queued)
    assert "requested" in words_of(queued)

    grant = replay.claim().json()
    runs = len(replay.seeds())
    assert f"{runs} runs on walter-1" in words_of(client.get("/").text)
    event = {"sequence": 0, "run": 2, "kind": "evaluation", "epoch": 3.0, "quality": 85.5}
    assert replay.post(grant, [event]).status_code == 200
    running = client.get("/").text
    assert f"run 3 of {runs}, epoch 3, 85.5" in words_of(running)
    assert f'<progress max="{runs}" value="2"' in running

    replay.report(grant, make_report(replay.seeds()))
    ended = client.get("/").text
    assert ended.count(link) == 1
    assert "No replays running." in words_of(ended)
    assert re.search(r"(\d) of \1 replays reached top1Accuracy 97.5", words_of(ended))


def test_a_rejection_shows_the_reason_that_made_it_one(
    replay: Any, make_report: Callable[..., Any], client: TestClient
) -> None:
    never = [14.8, 45.8, 73.0, 85.5, 90.8, 91.0, 91.2, 91.3]
    replay.report(replay.claim().json(), make_report(replay.seeds(), qualities=never))

    verdict = client.get(f"/api/v1/verifications/{replay.verification_id}").json()
    assert verdict["outcome"] == "rejected"
    first = next(r["message"] for r in verdict["reasons"] if r["weight"] == "rejects")
    page = client.get("/").text
    assert first in words_of(page)
    assert "rejected" in words_of(page)

    # Where no reason has the outcome's weight one that leaves open stands for it, or the first.
    with replay.database.write() as session:
        session.get_one(Verification, replay.verification_id).outcome = "not_separable"
    page = client.get("/").text
    assert "not separable" in words_of(page)
    open_ones = [r for r in verdict["reasons"] if r["weight"] == "leaves_open"]
    assert [*open_ones, *verdict["reasons"]][0]["message"] in words_of(page)


def test_records_are_derived_once_a_version_and_again_after_a_submission(
    digits_submission: Any,
    submit: Callable[..., Any],
    client: TestClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    derived: list[str] = []

    find = queries._find_histories

    def counting(session: Any, benchmark: Any) -> Any:
        derived.append(benchmark.benchmark_id)
        return find(session, benchmark)

    monkeypatch.setattr(queries, "_find_histories", counting)
    submission_id = submit(digits_submission).json()["id"]
    for _ in range(3):
        assert f'href="/submissions/{submission_id}"' in client.get("/").text
    # The list of records is made from what the page has found.
    listed = client.get("/api/v1/benchmarks/digits/records").json()["divisions"]
    assert submission_id in {record["submission_id"] for d in listed for record in d["records"]}
    assert derived == ["digits"]

    digits_submission.claim["model"] = "another one"
    assert submit(digits_submission).status_code == 201
    client.get("/")
    assert derived == ["digits", "digits"]
