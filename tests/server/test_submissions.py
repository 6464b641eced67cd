"""POST /api/v1/submissions and what can be read of a submission afterwards."""

from collections.abc import Callable
from typing import Any

from fastapi.testclient import TestClient


def test_a_submission_is_answered_with_its_result(
    digits_submission: Any, submit: Callable[..., Any], client: TestClient
) -> None:
    response = submit(digits_submission)

    assert response.status_code == 201, response.text
    view = response.json()
    assert view["status"] == "claimed"
    assert view["submitter"] == "alice"
    assert view["result"]["reached"] == 3
    # The middle of three runs is left after dropping fastest and slowest: 8 * (0.114 + 0.004).
    assert round(view["result"]["tta_seconds"], 6) == 0.944
    assert client.get(response.headers["location"]).json() == view
