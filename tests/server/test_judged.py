"""A verdict that was reached on other figures than are shown says so."""

from collections.abc import Callable
from typing import Any

from fastapi.testclient import TestClient

from server.database import Database
from server.dependencies import Parts
from server.models import RunRow
from server.rescoring.service import Choice, rescore_submissions


def test_a_verdict_tells_when_scoring_again_changes_what_it_stood_on(
    replay: Any, client: TestClient, database: Database, make_report: Callable[..., Any]
) -> None:
    parts: Parts = client.app.state.parts  # type: ignore[attr-defined]
    # As scored by a rule that is corrected later: the first run took a second longer.
    with database.write() as session:
        run = session.query(RunRow).filter_by(submission_id=replay.submission_id, index=0).one()
        right, run.tta_seconds = run.tta_seconds, run.tta_seconds + 1
    replay.report(replay.claim().json(), make_report(replay.seeds()))
    address = f"/submissions/{replay.submission_id}"
    judged = client.get(f"/api/v1{address}").json()
    assert judged["judged_on"] is None
    assert "Judged on figures" not in client.get(address).text

    assert len(rescore_submissions(parts, Choice(), print).changed) == 1
    view = client.get(f"/api/v1{address}").json()

    assert view["status"] == judged["status"] != "claimed"
    told = view["judged_on"]
    assert told["verification_id"] == replay.verification_id
    assert told["benchmark_sha256"] is None
    assert told["figures"] == [
        {"file": "run_0.log", "field": "tta_seconds", "judged": right + 1, "now": right}
    ]
    page = client.get(address).text
    assert "Judged on figures of" in page
    assert f"{right + 1} judged, {right} today" in page
