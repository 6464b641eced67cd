"""Verifications: asked for, sealed, judged, called off, and published."""

from dataclasses import replace
from datetime import timedelta

import pytest

from server.base.database import utc_now
from server.base.models import RunRow
from server.submissions.rescoring import rescore_submissions
from tests.support.boards import rows_of
from tests.support.build import seal_of, send_entry
from tests.support.run_logs import curve_of
from tests.support.services import services_of


def ask(client, submission_id, person, body=None):
    return client.post(
        f"/api/v1/submissions/{submission_id}/verifications", json=body, headers=person.headers
    )


def test_an_organiser_asks_for_a_verification(digits_submission, submit, client, olivia):
    submission_id = submit(digits_submission).json()["id"]
    response = ask(client, submission_id, olivia, {"reason": "record claim"})

    assert response.status_code == 201, response.text
    view = response.json()
    assert view["submission_id"] == submission_id
    assert (view["state"], view["outcome"], view["reason"]) == ("queued", None, "record claim")
    (attempt,) = view["attempts"]
    assert (attempt["number"], attempt["state"], attempt["worker"]) == (1, "queued", None)
    target = {"metric": "top1Accuracy", "value": 97.5, "unit": "percent", "direction": "higher"}
    assert view["target"] == target | {"budget_seconds": None, "also": []}
    assert view["runs_planned"] == 3
    assert "No worker is connected" in view["waiting_for"]
    assert view["created_at"].endswith("Z")
    assert view["created_at"] > (utc_now() - timedelta(minutes=5)).isoformat()
    assert client.get(f"/api/v1/verifications/{view['id']}").json() == view
    submission = client.get(f"/api/v1/submissions/{submission_id}").json()
    assert submission["status"] == "verifying"
    assert [v["id"] for v in submission["verifications"]] == [view["id"]]


def test_a_bad_body_queues_nothing(digits_submission, submit, client, alice, olivia, row_counts):
    submission_id = submit(digits_submission).json()["id"]
    entry = send_entry(client, alice).json()["id"]
    before = row_counts()
    for body in ({"reason": 1}, {"reason": "x" * 2001}, {"why": "x"}, [1]):
        response = ask(client, submission_id, olivia, body)
        assert response.status_code == 422
        assert response.json()["problems"][0]["field"].startswith("body")
    response = ask(client, entry, olivia)
    assert response.status_code == 422
    assert "a DAWNBench entry has no hyperparameters" in response.json()["detail"]
    assert row_counts() == before


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"hyperparameters": {"dropout": 0.1}}, "no hyperparameter 'dropout'"),
        ({}, "Send it as a code submission to have it measured."),
    ],
)
def test_an_open_claim_may_not_be_verified(
    changes, expected, digits_submission, submit, client, olivia, make_log
):
    digits_submission.claim |= {"division": "open", "trained_with": "own"} | changes
    for index, name in enumerate(digits_submission.logs):
        digits_submission.logs[name] = make_log(index, name=name, division="open")
    submission_id = submit(digits_submission).json()["id"]
    response = ask(client, submission_id, olivia)

    assert response.status_code == 422
    assert expected in response.json()["detail"]
    status = client.get(f"/api/v1/submissions/{submission_id}").json()["status"]
    assert status == "claimed"


def test_the_seal_is_public_at_once_and_opened_at_the_end(replay, client, make_report, olivia):
    before = replay.view()
    assert (before["seeds"], before["nonce"], before["report"]) == (None, None, None)
    grant = replay.claim().json()
    running = replay.view()
    assert (running["seeds"], running["nonce"]) == (None, None)
    assert replay.cancel(olivia).status_code == 409
    assert replay.post(grant, []).json() == {"proceed": True, "reason": None}
    assert replay.report(grant, make_report(replay.seeds())).status_code == 200

    after = replay.view()
    assert (after["outcome"], replay.status()) == ("verified", "verified")
    assert after["seal"] == before["seal"]
    submission = client.get(f"/api/v1/submissions/{replay.submission_id}").json()
    same = {"benchmark_sha256": submission["benchmark_sha256"], "submission": replay.submission_id}
    drawn = {"runs": before["runs_planned"], "nonce": after["nonce"], "seeds": after["seeds"]}
    assert seal_of(**same, **drawn) == before["seal"]
    assert len(set(after["seeds"])) == before["runs_planned"]


def test_half_the_epochs_are_rejected(digits_submission, client, make_log, request, make_report):
    digits_submission.claim["trained_with"] = "own"
    for index, name in enumerate(list(digits_submission.logs)):
        digits_submission.logs[name] = make_log(
            index, name=name, qualities=[60.0, 90.0, 96.0, 98.1]
        )
    replay = request.getfixturevalue("replay")
    grant = replay.claim().json()
    replay.report(grant, make_report(replay.seeds()))

    view = replay.view()
    assert view["outcome"] == "rejected"
    rejecting = [reason for reason in view["reasons"] if reason["weight"] == "rejects"]
    assert "converges_faster_than_replay" in {reason["code"] for reason in rejecting}
    assert replay.status() == "rejected"
    (entry,) = rows_of(client.get("/api/v1/leaderboards/digits").json())
    assert (entry["rank"], entry["unranked_reason"]) == (None, "contradicted by its verification")


def test_cancelling_ends_without_a_verdict_and_the_status_falls_back(replay, client, olivia):
    attempt_id = replay.attempt_id
    response = replay.cancel(olivia)

    assert response.status_code == 200
    view = response.json()
    assert (view["state"], view["outcome"]) == ("cancelled", None)
    assert [a["state"] for a in view["attempts"]] == ["cancelled"]
    assert len(view["seeds"]) == view["runs_planned"]  # Nobody trains them any more.
    assert replay.status() == "claimed"
    assert replay.claim(attempt_id).status_code == 409
    assert replay.cancel(olivia).status_code == 409
    assert ask(client, replay.submission_id, olivia).status_code == 201


def test_a_rejected_submission_is_not_ranked_meanwhile(replay, client, olivia):
    far_below = [10.0] * 8
    replay.finish(qualities=far_below)
    assert replay.status() == "rejected"
    ask(client, replay.submission_id, olivia)

    entry = rows_of(client.get("/api/v1/leaderboards/digits").json())[0]
    assert (entry["rank"], entry["status"]) == (None, "rejected")


def test_the_list_is_newest_first_by_state_and_without_reports(replay, client, olivia):
    replay.finish()
    second = ask(client, replay.submission_id, olivia).json()

    listed = client.get("/api/v1/verifications").json()["verifications"]
    assert [v["id"] for v in listed] == [second["id"], replay.verification_id]
    assert [v["report"] for v in listed] == [None, None]
    done = client.get("/api/v1/verifications", params={"state": "done"}).json()["verifications"]
    assert [v["id"] for v in done] == [replay.verification_id]
    one = client.get("/api/v1/verifications", params={"limit": 1}).json()["verifications"]
    assert [v["id"] for v in one] == [second["id"]]
    assert replay.status() == "verified"  # The first verdict stands until there is another.
    client.post(f"/api/v1/verifications/{second['id']}/cancellation", headers=olivia.headers)
    assert replay.status() == "verified"
    for query in ({"state": "strange"}, {"limit": 0}, {"limit": 101}):
        assert client.get("/api/v1/verifications", params=query).status_code == 422


def test_a_queued_verification_tells_what_it_waits_for(replay, hello):
    for state, sentence in (
        ("idle", "A worker is about to lease it."),
        ("busy", "Next in line; 1 of 1 worker busy."),
        ("stopping", "No worker is connected"),
    ):
        hello(state=state)
        assert sentence in replay.view()["waiting_for"]
    replay.claim()
    assert replay.view()["waiting_for"] is None


def test_a_replay_on_other_hardware_is_judged_by_its_convergence(replay, make_report):
    system = replace(make_report([]).system, hardware_class="cpu-other")
    report = make_report(replay.seeds(), system=system, seconds_per_epoch=5.0)
    replay.report(replay.claim().json(), report)

    view = replay.view()
    assert view["outcome"] == "verified"
    assert "hardware_differs" in {reason["code"] for reason in view["reasons"]}


def test_a_verdict_tells_what_was_scored_again(replay, client, database):
    services = services_of(client)
    # As scored by a rule that is corrected later: the first run took a second longer.
    with database.write() as session:
        run = session.query(RunRow).filter_by(submission_id=replay.submission_id, index=0).one()
        right, run.tta_seconds = run.tta_seconds, run.tta_seconds + 1
    replay.finish()
    address = f"/submissions/{replay.submission_id}"
    judged = client.get(f"/api/v1{address}").json()
    assert judged["judged_on"] is None
    assert "Judged on figures" not in client.get(address).text

    assert len(rescore_submissions(services, progress=print).changed) == 1
    view = client.get(f"/api/v1{address}").json()

    assert view["status"] == judged["status"] != "claimed"
    figure = {"file": "run_0.log", "field": "tta_seconds", "judged": right + 1, "now": right}
    told = view["judged_on"]
    judged = told["verification_id"], told["benchmark_sha256"], told["figures"]
    assert judged == (replay.verification_id, None, [figure])
    page = client.get(address).text
    assert "Judged on figures of" in page
    assert f"{right + 1} judged, {right} today" in page


@pytest.mark.parametrize(("last", "told"), [(98.1, True), (97.5, False)])
def test_a_verdict_says_where_epochs_end(last, told, digits_submission, make_log, request, client):
    """A curve crosses 97.5 % before its evaluation at 98.1 %, and at the one that is exactly it."""
    curve = [14.8, 45.8, 73.0, 85.5, 90.8, 95.6, 97.4, last]
    for seed, name in enumerate(digits_submission.logs):
        digits_submission.logs[name] = make_log(seed, name=name, qualities=curve_of(seed, curve))
    replay = request.getfixturevalue("replay")
    page = f"/verifications/{replay.verification_id}"
    assert "Here epochs end" not in client.get(page).text

    replay.finish(qualities=curve)

    epochs = [reason["numbers"] for reason in replay.view()["reasons"] if reason["numbers"]]
    assert any("claimed_mean_epochs" in numbers for numbers in epochs)
    assert ("Here epochs end" in client.get(page).text) == told
