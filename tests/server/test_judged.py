"""A verdict that was reached on other figures than are shown says so."""

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server.base.database import Database
from server.base.models import RunRow
from server.base.services import Services
from server.submissions.rescoring import Choice, rescore_submissions
from tests.server.conftest import curve_of
from tests.support.services import services_of


def test_a_verdict_tells_when_scoring_again_changes_what_it_stood_on(
    replay: Any, client: TestClient, database: Database, make_report: Callable[..., Any]
) -> None:
    services: Services = services_of(client)
    # As scored by a rule that is corrected later: the first run took a second longer.
    with database.write() as session:
        run = session.query(RunRow).filter_by(submission_id=replay.submission_id, index=0).one()
        right, run.tta_seconds = run.tta_seconds, run.tta_seconds + 1
    replay.report(replay.claim().json(), make_report(replay.seeds()))
    address = f"/submissions/{replay.submission_id}"
    judged = client.get(f"/api/v1{address}").json()
    assert judged["judged_on"] is None
    assert "Judged on figures" not in client.get(address).text

    assert len(rescore_submissions(services, Choice(), print).changed) == 1
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


@pytest.mark.parametrize(("last", "told"), [(98.1, True), (97.5, False)])
def test_a_verdict_says_that_its_epochs_are_read_off_where_they_are_not_whole(
    last: float,
    told: bool,
    digits_submission: Any,
    make_log: Callable[..., bytes],
    make_report: Callable[..., Any],
    request: pytest.FixtureRequest,
    client: TestClient,
) -> None:
    """A curve crosses 97.5 % before its evaluation at 98.1 %, and at the one that is exactly it."""
    curve = [14.8, 45.8, 73.0, 85.5, 90.8, 95.6, 97.4, last]
    for seed, name in enumerate(digits_submission.logs):
        digits_submission.logs[name] = make_log(seed, name=name, qualities=curve_of(seed, curve))
    replay = request.getfixturevalue("replay")
    page = f"/verifications/{replay.verification_id}"
    assert "Epochs of a verdict" not in client.get(page).text

    replay.report(replay.claim().json(), make_report(replay.seeds(), qualities=curve))

    epochs = [reason["numbers"] for reason in replay.view()["reasons"] if reason["numbers"]]
    assert any("claimed_mean_epochs" in numbers for numbers in epochs)
    assert ("Epochs of a verdict are read off" in client.get(page).text) == told
