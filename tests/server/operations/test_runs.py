"""Every run of a benchmark as a flat record."""

import re
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from fastapi.testclient import TestClient

from server.operations import runs
from tests.server.conftest import SubmissionParts

HOSTILE = '</script>"\\\n%0d%0aLink: <x>; rel="next"\U0001f3c1'

pytestmark = pytest.mark.usefixtures("shown_claims")


@pytest.fixture(params=["sqlite_url", pytest.param("postgresql_url", marks=pytest.mark.processes)])
def database_url(request: pytest.FixtureRequest) -> str:
    """Both databases."""
    url: str = request.getfixturevalue(request.param)
    return url


def export(client: TestClient, **query: Any) -> Any:
    answer = client.get("/api/v1/benchmarks/digits/runs.json", params=query)
    assert answer.status_code == 200, answer.text
    return answer


def test_pages_hold_every_run_once_whatever_is_submitted_meanwhile(
    client: TestClient,
    digits_submission: SubmissionParts,
    submit: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runs, "RUNS_AT_ONCE", 2)
    assert export(client).json() == {"benchmark": "digits", "next_cursor": None, "runs": []}
    made = [submit(digits_submission).json()["id"] for _ in range(3)]
    expected = [(each, index) for each in reversed(made) for index in range(3)]

    whole = export(client)
    assert "Link" not in whole.headers
    assert [(run["submission_id"], run["run"]) for run in whole.json()["runs"]] == expected

    answer, seen = export(client, limit=4), []
    while True:
        page = answer.json()
        assert len(page["runs"]) <= 4
        seen += [(run["submission_id"], run["run"]) for run in page["runs"]]
        submit(digits_submission)
        if page["next_cursor"] is None:
            break
        [address] = re.findall(r'^<(.*)>; rel="next"$', answer.headers["Link"])
        assert f"cursor={page['next_cursor']}" in address
        assert "limit=4" in address
        answer = client.get(address)
    assert seen == expected
    assert client.get("/api/v1/benchmarks/cifar10/runs.json").json()["runs"] == []


def test_a_record_says_all_about_its_run_and_nothing_written_breaks_it(
    client: TestClient, digits_submission: SubmissionParts, submit: Callable[..., Any]
) -> None:
    digits_submission.claim |= {"model": HOSTILE, "framework": HOSTILE, "notes": HOSTILE}
    digits_submission.claim["system"]["name"] = HOSTILE
    submitted = submit(digits_submission)
    assert submitted.status_code == 201, submitted.text
    made = submitted.json()
    answer = export(client)

    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    run = orjson.loads(answer.content)["runs"][1]
    source = made["runs"][1]
    assert run == {
        **{name: made[name] for name in (
            "benchmark", "benchmark_version", "benchmark_sha256", "division", "submitter",
            "submitted_at", "submitted_on", "archive", "status", "system",
        )},
        "withdrawn": False,
        **{name: source[name] for name in ("seed", "batch_size", "reached", "log_sha256")},
        "submission_id": made["id"],
        "run": 1,
        "model": HOSTILE,
        "framework": HOSTILE,
        "parameter_setting": [{"name": "batch_size", "value": 64.0}],
        "evaluations": [
            {
                "measure": "top1Accuracy",
                "value": 98.1,  # The last of eight epochs is the first that reaches 97.5.
                "seconds": source["tta_seconds"],
                "epoch": 8.0,
            }
        ],
    }  # fmt: skip
    assert run["seed"] == 101
    assert run["system"]["name"] == HOSTILE


def test_what_is_no_place_or_size_is_refused(client: TestClient) -> None:
    for benchmark, query, status in (
        ("no-such", {}, 404),
        ("digits", {"limit": 0}, 422),
        ("digits", {"limit": 1001}, 422),
        ("digits", {"cursor": "1.abc"}, 422),
        ("digits", {"cursor": "1.abc.\u0663"}, 422),
        ("digits", {"cursor": "99999999999999999.z.99999"}, 200),
    ):
        answer = client.get(f"/api/v1/benchmarks/{benchmark}/runs.json", params=query)
        assert answer.status_code == status, query
