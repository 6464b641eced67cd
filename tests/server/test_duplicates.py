"""Duplicates, which link to an earlier submission, and rules that are waived for one."""

import io
from copy import deepcopy
from dataclasses import replace
from datetime import timedelta

import pyarrow.parquet
import pytest

from finishline.cli.bundles import check_bundle, keys_in
from finishline.cli.commands.proof import waiver_lines
from server.base.models import Submission
from server.submissions.rescoring import rescore_submissions
from tests.server.test_head_to_heads import scored_under
from tests.server.test_measured_rows import entries, verify  # noqa: F401  a fixture
from tests.support.boards import rows_of
from tests.support.build import ask_for_replay, measure, taken
from tests.support.pages import ORIGIN, sign_in
from tests.support.services import services_of

PATH = "/api/v1/submissions"
BOARD = "/api/v1/leaderboards/digits"
WHY = "one run of this system costs a month"
# It reaches the target outside the band.
SLOW = [14.8, 45.8, 60.0, 70.0, 75.0, 80.0, 85.0, 90.0, 97.9]


def view(client, submission_id):
    return client.get(f"{PATH}/{submission_id}").json()


@pytest.fixture
def change(olivia):
    def post(what, *submission_ids):
        for each in submission_ids:
            answer = olivia.post(f"{PATH}/{each}/{what}", {"reason": "-"})
            assert answer.is_success, answer.text

    return post


@pytest.fixture
def duplicate(submit, digits_submission, bob):
    """Submits what bob trained with the same settings; its id."""
    return lambda: taken(submit(digits_submission, by=bob))["id"]


def test_forged_time_is_claimed(verify, replay, submit, digits_submission, make_log, client, bob):
    verify()
    for index, name in enumerate(digits_submission.logs):
        log = make_log(index, name=name, seconds_per_epoch=0.0093)
        digits_submission.logs[name] = log
    sent = submit(digits_submission, by=bob).json()
    first, second = entries(client)

    assert (first["submission_id"], first["rank"]) == (replay.submission_id, 1)
    assert (second["submission_id"], second["rank"], second["evidence"]) == (
        sent["id"], None, "claimed",
    )  # fmt: skip
    assert second["duplicate_of"] == sent["duplicate_of"] == replay.submission_id
    assert second["unranked_reason"] == f"a duplicate of {replay.submission_id}"
    assert (second["measured_seconds"], second["pool_id"]) == (None, None)
    page = client.get(f"/submissions/{sent['id']}").text
    assert "A duplicate." in page
    assert "Not trained: the original is trained in its place." in page
    assert "The runs of its original took as many epochs." in page
    sign_in(client, bob)
    assert "Request verification" not in client.get(f"/submissions/{sent['id']}").text
    assert f'href="/submissions/{replay.submission_id}"' in page
    assert "measured" not in client.get(f"/submissions/{sent['id']}/badge.svg").text
    ran = client.get("/api/v1/leaderboards/digits.csv").text
    assert f"a duplicate of {replay.submission_id}" in ran


def test_a_duplicate_is_not_trained(replay, duplicate, client, olivia):
    sent = duplicate()
    refused = olivia.post(f"{PATH}/{sent}/verifications", {})

    assert refused.status_code == 409
    assert f"is a duplicate of {replay.submission_id}" in refused.text
    assert view(client, sent)["verifications"] == []
    sides = {"challenger": sent, "holder": replay.submission_id}
    head_to_head = olivia.post("/api/v1/head-to-heads", sides)
    assert (head_to_head.status_code, "Name that one" in head_to_head.text) == (409, True)


def test_claim_is_checked(verify, submit, digits_submission, client, bob, make_log, duplicate):
    waits = duplicate()
    verify()
    fast = deepcopy(digits_submission)
    for index, name in enumerate(fast.logs):
        fast.logs[name] = make_log(index, name=name, qualities=[60.0, 90.0, 97.9])
    contradicted = submit(fast, by=bob).json()["id"]

    assert view(client, waits)["check"] == "epochs_agree"
    assert view(client, contradicted)["check"] == "contradicted"


def test_oldest_duplicate_takes_over_runs(verify, replay, client, olivia, change, duplicate):
    verify()
    (before,) = entries(client)
    heir, other = (duplicate() for _ in range(2))
    change("withdrawal", replay.submission_id)

    first, second = entries(client)
    assert (first["submission_id"], first["rank"]) == (heir, 1)
    assert first["measured_seconds"] == before["measured_seconds"]
    assert first["verification_id"] == before["verification_id"] is not None
    assert (second["submission_id"], second["duplicate_of"]) == (other, heir)
    replay.ask_again(olivia, heir)
    assert replay.cancel(olivia).is_success
    assert entries(client) == [first, second]


def test_one_that_comes_back_is_a_duplicate(verify, replay, client, bob, change, duplicate):
    verify()
    heir = duplicate()
    change("withdrawal", replay.submission_id)
    change("reinstatement", replay.submission_id)
    found = view(client, replay.submission_id)
    assert (found["duplicate_of"], found["evidence"], found["rank"]) == (heir, "claimed", None)
    page = client.get(f"/submissions/{replay.submission_id}").text
    assert "an earlier submission" not in page
    assert ">a later submission</a> by bob, which took its place while it was withdrawn." in page
    badge = client.get(f"/submissions/{replay.submission_id}/badge.json").json()
    assert "measured" not in badge["message"]
    third = view(client, duplicate())
    assert (third["duplicate_of"], third["check"]) == (heir, "epochs_agree")


def test_other_code_is_no_duplicate(verify, replay, submit, digits_submission, bob, database):
    verify()
    own = replace(digits_submission, claim=digits_submission.claim | {"trained_with": "own"})
    assert submit(own, by=bob).json()["duplicate_of"] is None
    with database.write() as session:
        scored_under(session, replay.submission_id, 'clock = "mlperf"', 'clock = "speedrun"')
    assert submit(digits_submission, by=bob).json()["duplicate_of"] is None


def test_a_rerun_that_waits_for_a_decision_judges_no_duplicate(verify, replay, client, duplicate):
    verify()
    heir = duplicate()
    verify(replay.submission_id, qualities=SLOW)
    assert entries(client)[0]["rank"] == 1
    assert view(client, heir)["check"] == "epochs_agree"


@pytest.mark.parametrize("is_rerun", [True, False])
def test_rejecting_runs_measure_no_duplicate(is_rerun, verify, replay, client, olivia, duplicate):
    heir = duplicate()
    if is_rerun:
        verify()
        verify(replay.submission_id, qualities=SLOW)
        assert replay.decide(olivia, "publish").is_success
    else:
        verify(qualities=SLOW)

    assert view(client, replay.submission_id)["status"] == "rejected"
    found = view(client, heir)
    assert (found["duplicate_of"], found["status"], found["evidence"]) == (
        None, "verifying", "claimed",
    )  # fmt: skip


def test_one_that_comes_back_follows_a_measured_one(verify, replay, client, change, duplicate):
    verify()
    first = replay.submission_id
    change("withdrawal", first)
    later = duplicate()
    assert view(client, later)["duplicate_of"] is None
    verify(later)
    change("reinstatement", first)

    first, second = entries(client)
    assert (first["submission_id"], first["rank"]) == (later, 1)
    assert (second["duplicate_of"], second["evidence"]) == (later, "claimed")


def test_duplicate_without_its_original_is_trained(verify, replay, client, change, duplicate):
    verify()
    gone = duplicate()
    change("withdrawal", gone, replay.submission_id)
    change("reinstatement", gone)

    found = view(client, gone)
    assert (found["duplicate_of"], found["status"]) == (None, "verifying")


@pytest.mark.parametrize("how", ["withdrawal", "cancel", "rejected"])
def test_oldest_duplicate_is_trained(how, verify, replay, client, olivia, change, duplicate):
    heir, other = (duplicate() for _ in range(2))
    if how == "withdrawal":
        change(how, replay.submission_id)
    elif how == "cancel":
        assert replay.cancel(olivia).is_success
    else:
        verify(qualities=[10.0] * 9)
        assert view(client, replay.submission_id)["status"] == "rejected"

    found = view(client, heir)
    assert (found["duplicate_of"], found["status"]) == (None, "verifying")
    assert [each["state"] for each in found["verifications"]] == ["queued"]
    assert view(client, other)["duplicate_of"] == heir


def test_heir_gets_the_runs_of_a_withdrawn_original(replay, client, olivia, change, duplicate):
    heir = duplicate()
    lease = replay.claim().json()
    change("withdrawal", replay.submission_id)
    assert replay.train(lease).status_code == 200
    (own,) = view(client, heir)["verifications"]  # Asked for at the withdrawal, and not needed now.
    replay.verification_id = own["id"]
    assert replay.cancel(olivia).is_success

    (entry,) = entries(client)
    assert (entry["submission_id"], entry["measured_runs"]) == (heir, 3)


def test_the_heir_of_an_original_is_charged_like_it(submit, digits_submission, alice, bob, change):
    def reserved(person):
        uses = person.get("/api/v1/me/quota").json()["quotas"]
        return {use["measure"]: use["reserved"] for use in uses}["gpu_seconds_per_month"]

    digits_submission.claim["system"] |= {"accelerator": "T4", "accelerator_count": 1}
    original = submit(digits_submission).json()["id"]
    taken(alice.post(f"{PATH}/{original}/verifications", {}))
    submit(digits_submission, by=bob)
    seconds = reserved(alice)
    assert (seconds > 0, reserved(bob)) == (True, 0)
    change("withdrawal", original)

    assert (reserved(alice), reserved(bob)) == (0, seconds)


@pytest.mark.parametrize(
    ("rate", "is_duplicate"), [(0.0500001, True), (0.05, True), (0.0504, False)]
)
def test_settings_are_compared_and_trained_to_three_digits(
    rate, is_duplicate, submit, digits_submission, bob, olivia, database
):
    def send(rate, by=None):
        parts = deepcopy(digits_submission)
        parts.claim["division"] = "open"
        parts.logs = {name: log.replace(b"closed", b"open") for name, log in parts.logs.items()}
        parts.claim["hyperparameters"] |= {"base_learning_rate": rate}
        return taken(submit(parts, by=by))

    first = send(0.05000004)
    taken(olivia.post(f"{PATH}/{first['id']}/verifications", {}))
    second = send(rate, by=bob)

    assert second["duplicate_of"] == (first["id"] if is_duplicate else None)


def test_one_that_nobody_trains_keeps_nobody_from_being_trained(submit, digits_submission, bob):
    submit(digits_submission)
    assert submit(digits_submission, by=bob).json()["duplicate_of"] is None


@pytest.mark.parametrize("is_hidden", [False, True])
def test_the_later_of_two_in_one_pool_is_a_duplicate(
    is_hidden, embargo, submit, digits_submission, client, database, bob, olivia, walter
):
    ids = [submit(digits_submission).json()["id"]]
    embargo(timedelta(hours=1) if is_hidden else None)
    ids.append(submit(digits_submission, by=bob).json()["id"])  # Before the first is trained.
    for each in ids:
        measure(ask_for_replay(client, database, each, by=olivia, worker=walter))
    first, *others = entries(client)

    assert (first["submission_id"], first["rank"]) == (ids[0], 1)
    assert first["measured_runs"] == (3 if is_hidden else 6)
    assert [each["duplicate_of"] for each in others] == ([] if is_hidden else [ids[0]])
    own = client.get(f"{PATH}/{ids[1]}", headers=bob.headers).json()
    assert own["duplicate_of"] == (None if is_hidden else ids[0])


def test_under_an_embargo_each_has_its_own_runs_and_then_the_later_is_a_duplicate(
    embargo, submit, digits_submission, client, database, alice, bob, olivia, walter
):
    embargo(timedelta(hours=1))
    replays = []
    for person, pace in ((alice, 0.1), (bob, 0.2)):
        sent = submit(digits_submission, by=person).json()
        assert sent["duplicate_of"] is None
        asked = ask_for_replay(client, database, sent["id"], by=olivia, worker=walter)
        measure(asked, seconds_per_epoch=pace)
        replays.append(asked)
    board = rows_of(olivia.get(f"{BOARD}/preview").json())
    times = [8 * (pace * 1.01 + 0.004) for pace in (0.1, 0.2)]
    assert [each["measured_seconds"] for each in board] == pytest.approx(times)
    embargo(None)

    first, second = entries(client)
    ids = [each.submission_id for each in replays]
    assert [each["submission_id"] for each in (first, second)] == ids
    assert (first["rank"], first["measured_runs"]) == (1, 3)
    assert (second["duplicate_of"], second["evidence"]) == (ids[0], "claimed")
    assert (second["measured_seconds"], second["pool_id"]) == (None, None)
    replays[0].ask_again(olivia)
    measure(replays[0], seconds_per_epoch=0.1)
    first, _ = entries(client)
    assert (first["measured_runs"], first["measured_seconds"]) == (6, pytest.approx(times[0]))


@pytest.fixture
def short(digits_submission, submit, olivia):
    digits_submission.form = {"archive": "true"}
    digits_submission.claim |= {"organisation": "Ex & Co", "submitted_on": "2018-04-20"}
    digits_submission.claim["runs"] = ["run_0.log", "run_1.log"]
    del digits_submission.logs["run_2.log"]
    made = taken(submit(digits_submission, by=olivia))
    assert [each["code"] for each in made["result"]["violations"]] == ["too_few_runs"]
    return made["id"]


def why_unranked(client):
    (entry,) = rows_of(client.get(BOARD).json())
    return entry["unranked_reason"]


def test_waived_rule_no_longer_keeps_a_result_off_the_ranking(short, client, olivia):
    def waive(rule, submission_id=short):
        form = {"rule": rule, "reason": WHY}
        return olivia.post(f"{PATH}/{submission_id}/waivers", form)

    def revoke():
        form = {"reason": "a third run came"}
        return olivia.post(f"{PATH}/{short}/waivers/too_few_runs/revocation", form)

    broken = "breaks a rule: fewer runs than the benchmark asks for"
    assert why_unranked(client) == broken
    untrue, other = waive("same_log"), waive("no_seed")
    assert (untrue.status_code, "'converges_too_fast'" in untrue.text) == (422, True)
    assert other.status_code == 409
    assert "it breaks too_few_runs" in other.json()["detail"]
    assert revoke().status_code == waive("too_few_runs", "none").status_code == 404
    waived = waive("too_few_runs")
    assert waived.status_code == 200, waived.text
    assert waive("too_few_runs").status_code == 409
    assert waived.json()["result"]["eligible"] is True
    assert [each["code"] for each in waived.json()["result"]["violations"]] == ["too_few_runs"]

    # It stands beside the result.
    (entry,) = rows_of(client.get(BOARD).json())
    assert entry["unranked_reason"] != broken
    (told,) = entry["waivers"]
    assert (told["rule"], told["reason"], told["by"]) == ("too_few_runs", WHY, "olivia")
    table = pyarrow.parquet.read_table(io.BytesIO(client.get(f"{BOARD}.parquet").content))
    assert table["waivers"].to_pylist()[0][0]["reason"] == WHY
    assert "waived: too few runs" in client.get("/benchmarks/digits").text
    page = client.get(f"/submissions/{short}").text
    assert WHY in page
    assert "These rules are broken" not in page

    # It outlives a rescoring and ends by its revocation.
    summary = rescore_submissions(services_of(client), progress=print)
    assert (summary.unchanged, summary.changed, summary.failed) == (1, [], [])
    assert revoke().json()["waivers"] == []
    assert why_unranked(client) == broken
    log = olivia.get("/api/v1/audit").json()["records"]
    told = {each["action"]: each for each in log if each["subject_id"] == short}
    assert told["submission.waive"]["reason"] == WHY
    assert told["submission.waive"]["after"]["consequence"] == "the row may rank"
    assert told["submission.revoke-waiver"]["reason"] == "a third run came"
    assert "too_few_runs" in told["submission.revoke-waiver"]["after"]["consequence"]


def test_a_proof_names_the_rules_that_were_waived_at_its_verdict(replay, database, olivia, ada):
    waivers = [{"rule": "no_seed", "reason": WHY, "by": "olivia", "at": "2026-11-24"}]
    with database.write() as session:
        session.get_one(Submission, replay.submission_id).waivers = waivers
    replay.train()
    proof = f"/api/v1/verifications/{replay.verification_id}/proof"
    content = replay.client.get(proof).content
    keys = keys_in(replay.client.get("/api/v1/keys").json())
    checked = check_bundle(content, keys)
    assert checked.failed == []
    assert checked.document["submission"]["waivers"] == waivers
    (line,) = waiver_lines(checked.document)
    assert str(line) == f"Waived by olivia: no_seed. {WHY}"
    erased = ada.post("/api/v1/users/olivia/erasure", {"name": "olivia"}).json()["name"]
    checked = check_bundle(replay.client.get(proof).content, keys)
    assert checked.failed == []
    assert checked.document["submission"]["waivers"] == [waivers[0] | {"by": erased}]


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
