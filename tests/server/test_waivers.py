"""Waivers: a rule that one submission may break, by an organiser, with a reason that is shown."""

import io

import pyarrow.parquet
import pytest

from finishline.cli.bundles import check_bundle, keys_in
from finishline.cli.commands.proof import waiver_lines
from server.base.models import Submission
from server.submissions.rescoring import rescore_submissions
from tests.support.boards import rows_of
from tests.support.pages import ORIGIN, sign_in
from tests.support.services import services_of

BOARD = "/api/v1/leaderboards/digits"
WHY = "one run of this system costs a month"


@pytest.fixture
def short(digits_submission, submit, olivia):
    """A published result of two runs, where digits wants three."""
    digits_submission.form = {"archive": "true"}
    digits_submission.claim |= {"organisation": "Ex & Co", "submitted_on": "2018-04-20"}
    digits_submission.claim["runs"] = ["run_0.log", "run_1.log"]
    del digits_submission.logs["run_2.log"]
    made = submit(digits_submission, by=olivia)
    assert made.status_code == 201, made.text
    assert [each["code"] for each in made.json()["result"]["violations"]] == ["too_few_runs"]
    return str(made.json()["id"])


@pytest.fixture
def waive(client, olivia):
    def post(submission_id, rule, *, back=False, by=olivia):
        path = f"/api/v1/submissions/{submission_id}/waivers"
        if back:
            json = {"reason": "a third run came"}
            return client.post(f"{path}/{rule}/revocation", json=json, headers=by.headers)
        return client.post(path, json={"rule": rule, "reason": WHY}, headers=by.headers)

    return post


def why_unranked(client):
    (entry,) = rows_of(client.get(BOARD).json())
    return None if entry["unranked_reason"] is None else str(entry["unranked_reason"])


def test_a_waived_rule_no_longer_keeps_a_result_off_the_ranking_and_stands_beside_it(
    short, waive, client
):
    assert why_unranked(client) == "breaks a rule of the benchmark"
    waived = waive(short, "too_few_runs")
    assert waived.status_code == 200, waived.text
    assert waived.json()["result"]["eligible"] is True
    assert [each["code"] for each in waived.json()["result"]["violations"]] == ["too_few_runs"]

    assert why_unranked(client) != "breaks a rule of the benchmark"
    (entry,) = rows_of(client.get(BOARD).json())
    (told,) = entry["waivers"]
    assert (told["rule"], told["reason"], told["by"]) == ("too_few_runs", WHY, "olivia")
    table = pyarrow.parquet.read_table(io.BytesIO(client.get(f"{BOARD}.parquet").content))
    assert table["waivers"].to_pylist()[0][0]["reason"] == WHY
    assert "waived: too few runs" in client.get("/benchmarks/digits").text
    page = client.get(f"/submissions/{short}").text
    assert WHY in page
    assert "These rules are broken" not in page


def test_a_waiver_outlives_a_rescoring_and_ends_by_its_revocation(short, waive, client, olivia):
    waive(short, "too_few_runs")
    summary = rescore_submissions(services_of(client), progress=print)
    assert (summary.unchanged, summary.changed, summary.failed) == (1, [], [])

    assert waive(short, "too_few_runs", back=True).json()["waivers"] == []
    assert why_unranked(client) == "breaks a rule of the benchmark"
    log = client.get("/api/v1/audit", headers=olivia.headers).json()["records"]
    told = {each["action"]: each for each in log if each["subject_id"] == short}
    assert told["submission.waive"]["reason"] == WHY
    assert told["submission.waive"]["after"]["consequence"] == "the row may rank"
    assert told["submission.revoke-waiver"]["reason"] == "a third run came"
    assert "too_few_runs" in told["submission.revoke-waiver"]["after"]["consequence"]


def test_a_proof_names_the_rules_that_were_waived_at_its_verdict(
    replay, database, make_report, olivia, ada
):
    waivers = [{"rule": "no_seed", "reason": WHY, "by": "olivia", "at": "2026-11-24"}]
    with database.write() as session:
        session.get_one(Submission, replay.submission_id).waivers = waivers
    replay.report(replay.claim().json(), make_report(replay.seeds()))
    proof = f"/api/v1/verifications/{replay.verification_id}/proof"
    content = replay.client.get(proof).content
    keys = keys_in(replay.client.get("/api/v1/keys").json())
    checked = check_bundle(content, keys)
    assert checked.failed == []
    assert checked.document["submission"]["waivers"] == waivers
    assert [str(line) for line in waiver_lines(checked.document)] == [
        f"Waived by olivia: no_seed. {WHY}"
    ]
    path = "/api/v1/users/olivia/erasure"
    erased = replay.client.post(path, json={"name": "olivia"}, headers=ada.headers).json()["name"]
    checked = check_bundle(replay.client.get(proof).content, keys)
    assert checked.failed == []
    assert checked.document["submission"]["waivers"] == [waivers[0] | {"by": erased}]


def test_only_an_organiser_waives_and_only_a_rule_of_the_list_that_is_broken(short, waive, alice):
    untrue = waive(short, "same_log")
    assert (untrue.status_code, "'converges_too_fast'" in untrue.text) == (422, True)
    other = waive(short, "no_seed")
    assert other.status_code == 409
    assert "it breaks too_few_runs" in other.json()["detail"]
    assert waive(short, "too_few_runs", back=True).status_code == 404
    assert waive(short, "too_few_runs").status_code == 200
    assert waive(short, "too_few_runs").status_code == 409
    assert waive("none", "too_few_runs").status_code == 404


def test_an_organiser_waives_on_the_page_and_takes_it_back_there(short, client, olivia):
    page = f"/submissions/{short}"
    assert "Waive a rule" not in client.get(f"{page}?tab=history").text
    sign_in(client, olivia)
    assert "fewer runs than" in client.get(f"{page}?tab=history").text
    form = {"rule": "too_few_runs", "reason": WHY}
    for waived in (1, 0):
        answer = client.post(f"{page}/waive", data=form, headers=ORIGIN, follow_redirects=False)
        assert answer.status_code == 303, answer.text
        assert len(client.get(f"/api/v1{page}").json()["waivers"]) == waived
    wrong = client.post(f"{page}/waive", data=form | {"rule": "same_log"}, headers=ORIGIN)
    assert (wrong.status_code, "Nothing was changed. Rule" in wrong.text) == (422, True)
