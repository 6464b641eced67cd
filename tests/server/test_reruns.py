"""Reruns: many at once, their cost, and that a later verdict waits for a decision."""

from dataclasses import replace

import pytest

from tests.support.boards import rows_of
from tests.support.both_databases import on_both_databases
from tests.support.pages import BROWSER, words_of
from tests.support.workers import WORKER_SYSTEM

BATCH = "/api/v1/verifications/batch"
COMPARE = "/api/v1/verifications/compare"
FAR_BELOW = [10.0] * 8


@pytest.fixture
def batch(client, olivia):
    def ask(**body):
        answer = client.post(BATCH, json={"reason": "new driver"} | body, headers=olivia.headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    return ask


def submission_of(replay):
    return replay.client.get(f"/api/v1/submissions/{replay.submission_id}").json()


@pytest.fixture
def rerun_below(replay, olivia):
    """A verified submission whose rerun was rejected; `first` is the verified one's id."""
    replay.finish()
    replay.first = replay.ask_again(olivia)
    system = replace(WORKER_SYSTEM, threads=2, software={"torch": "2.14.0", "numpy": "2"})
    replay.finish(qualities=FAR_BELOW, system=system)
    return replay


def test_the_first_verdict_is_published_by_itself(replay):
    assert submission_of(replay)["published_verification"] is None
    replay.finish()
    submission = submission_of(replay)

    assert (submission["status"], submission["pending_decisions"]) == ("verified", [])
    assert submission["published_verification"] == replay.verification_id
    assert replay.view()["decision"]["decision"] == "publish"
    assert replay.view()["published"] is True


@on_both_databases
def test_a_reruns_verdict_waits_and_changes_no_board(rerun_below, client):
    submission = submission_of(rerun_below)

    assert rerun_below.view()["outcome"] == "rejected"
    assert rerun_below.view()["decision"]["decision"] == "pending"
    assert submission["status"] == "verified"
    assert submission["published_verification"] == rerun_below.first
    assert submission["pending_decisions"] == [rerun_below.verification_id]
    decisions = [(v["published"], v["decision"]) for v in submission["verifications"]]
    assert decisions == [(True, "publish"), (False, "pending")]
    (entry,) = rows_of(client.get("/api/v1/leaderboards/digits").json())
    # Its missed runs count in the pool all the same: nobody asks again for better luck.
    assert (entry["status"], entry["rank"], entry["check"]) == ("verified", None, "epochs_agree")
    page = client.get(f"/submissions/{rerun_below.submission_id}").text
    assert f'href="/console/decide/{rerun_below.verification_id}"' in page


@on_both_databases
@pytest.mark.parametrize(
    ("decision", "status", "published"), [("publish", "rejected", 1), ("keep", "verified", 0)]
)
def test_a_decision_publishes_or_keeps(rerun_below, client, olivia, decision, status, published):
    ids = [rerun_below.first, rerun_below.verification_id]
    before = client.get(f"/api/v1/verifications/{ids[0]}").json()["report"]
    answer = rerun_below.decide(olivia, decision)
    assert answer.status_code == 200, answer.text
    assert answer.json()["decision"]["reason"] == "throttled host"
    submission = submission_of(rerun_below)

    assert (submission["status"], submission["published_verification"]) == (status, ids[published])
    assert submission["pending_decisions"] == []
    (entry,) = rows_of(client.get("/api/v1/leaderboards/digits").json())
    assert entry["status"] == status
    record = client.get("/api/v1/audit", headers=olivia.headers).json()["records"][0]
    assert (record["action"], record["actor"]) == ("verification.decide", "olivia")
    assert record["reason"] == "throttled host"
    assert record["before"] == {"status": "verified", "verification": ids[0]}
    assert record["after"].pop("consequence").startswith("the row ")
    after = {"status": status, "verification": ids[published], "decision": decision}
    assert record["after"] == after
    assert client.get(f"/api/v1/verifications/{ids[0]}").json()["report"] == before
    assert rerun_below.decide(olivia, "publish").status_code == 409


def test_the_verdict_that_was_published_last_counts(rerun_below, olivia):
    second = rerun_below.ask_again(olivia)
    rerun_below.finish()
    third, statuses = rerun_below.verification_id, []
    for published in (third, second):
        assert rerun_below.decide(olivia, "publish", published).status_code == 200
        submission = submission_of(rerun_below)
        assert submission["published_verification"] == published
        statuses.append(submission["status"])
    assert statuses == ["verified", "rejected"]


def test_only_a_verdict_that_waits_is_decided_about(replay, client, olivia):
    assert replay.decide(olivia, "publish").status_code == 409
    replay.finish()
    assert replay.decide(olivia, "keep").status_code == 409
    assert replay.decide(olivia, "keep", "nothing").status_code == 404
    replay.ask_again(olivia)
    replay.cancel(olivia)
    assert replay.decide(olivia, "publish").status_code == 409
    assert submission_of(replay)["status"] == "verified"


def test_a_bad_decision_is_422(rerun_below, client, olivia):
    address = f"/api/v1/verifications/{rerun_below.verification_id}/decision"
    for body in (
        {}, {"decision": "publish"}, {"decision": "maybe", "reason": "x"}, [1],
        {"decision": "keep", "reason": " "}, {"decision": "keep", "reason": "x", "more": 1},
    ):  # fmt: skip
        assert client.post(address, json=body, headers=olivia.headers).status_code == 422, body
    assert rerun_below.view()["decision"]["decision"] == "pending"


def test_a_bad_batch_is_422_and_queues_nothing(client, olivia, row_counts):
    before = row_counts()
    for body in (
        {}, {"submissions": ["a"]}, {"submissions": [], "reason": "x"}, {"reason": "x"},
        {"submissions": ["a"], "benchmark": "digits", "reason": "x"},
        {"submissions": ["a"], "status": "verified", "reason": "x"},
        {"benchmark": "digits", "status": "good", "reason": "x"},
        {"benchmark": "digits", "reason": ""}, {"submissions": ["a"] * 1001, "reason": "x"},
    ):  # fmt: skip
        assert client.post(BATCH, json=body, headers=olivia.headers).status_code == 422, body
    unknown = {"benchmark": "nothing", "reason": "x"}
    assert client.post(BATCH, json=unknown, headers=olivia.headers).status_code == 404
    assert row_counts() == before


@on_both_databases
def test_a_batch_skips_the_rest(replay, digits_submission, submit, batch, make_log, client, olivia):
    free = submit(digits_submission, batch_size=32).json()["id"]
    settings = {"hyperparameters": {"dropout": 0.1}}
    digits_submission.claim |= {"division": "open", "trained_with": "own"} | settings
    for index, name in enumerate(digits_submission.logs):
        digits_submission.logs[name] = make_log(index, name=name, division="open")
    strange = submit(digits_submission).json()["id"]
    view = batch(submissions=[free, strange, replay.submission_id, "nothing"])

    (queued,) = view["replays"]
    assert queued["submission_id"] == free
    verification = client.get(f"/api/v1/verifications/{queued['verification_id']}").json()
    assert (verification["state"], verification["reason"]) == ("queued", "new driver")
    why = {item["submission_id"]: item["why"] for item in view["skipped"]}
    assert why.keys() == {strange, replay.submission_id, "nothing"}
    assert replay.verification_id in why[replay.submission_id]
    assert "dropout" in why[strange]
    record = client.get("/api/v1/audit", headers=olivia.headers).json()["records"][0]
    assert (record["action"], record["reason"]) == ("verification.batch", "new driver")
    assert record["after"]["queued"] == {free: queued["verification_id"]}


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_batch_skips_a_duplicate(dry_run, replay, digits_submission, submit, batch, bob):
    duplicate = submit(digits_submission, by=bob).json()["id"]
    free = submit(digits_submission, batch_size=32).json()["id"]

    view = batch(submissions=[duplicate, free], dry_run=dry_run)

    assert [item["submission_id"] for item in view["replays"]] == [free]
    (skipped,) = view["skipped"]
    assert skipped["submission_id"] == duplicate
    assert f"is a duplicate of {replay.submission_id}" in skipped["why"]


def test_a_dry_run_says_the_cost_and_queues_nothing(replay, digits, batch, row_counts):
    replay.finish()
    before = row_counts()
    view = batch(submissions=[replay.submission_id], dry_run=True)

    assert row_counts() == before
    (item,) = view["replays"]
    assert (item["verification_id"], item["basis"]) == (None, "replays of the submission")
    # digits' 3 sealed runs; a ledger: 2.2 s to prepare, 8 epochs, pace + 4 ms.
    assert item["runs_expected"] == 3.0
    runs = len(replay.seeds())
    paces = [0.11 * (1 + 0.01 * index) for index in range(runs)]
    seconds = 3 * sum(2.2 + 8 * (pace + 0.004) for pace in paces) / runs
    assert item["seconds_expected"] == pytest.approx(seconds)
    assert view["gpu_seconds_expected"] == 0.0
    assert view["cpu_seconds_expected"] == pytest.approx(seconds)


def test_a_first_replay_is_estimated(replay, digits, digits_submission, submit, batch, make_report):
    digits_submission.claim["system"] |= {"accelerator": "G", "accelerator_count": 4}
    other = submit(digits_submission, batch_size=32).json()["id"]
    by_limit = batch(submissions=[other], dry_run=True)
    limit = 3 * digits.replay.run_limit_seconds
    assert by_limit["replays"][0]["basis"] == "run limit"
    assert by_limit["gpu_seconds_expected"] == pytest.approx(4 * limit)
    system = replace(make_report([]).system, accelerator="G", accelerator_count=2)
    replay.finish(system=system)
    by_others = batch(submissions=[other], dry_run=True)

    (item,) = by_others["replays"]
    assert (item["basis"], item["accelerators"]) == ("replays of the benchmark", 2)
    assert by_others["gpu_seconds_expected"] == pytest.approx(2 * item["seconds_expected"])
    assert by_others["cpu_seconds_expected"] == 0.0


@on_both_databases
def test_submissions_are_chosen_by_status(replay, digits_submission, submit, batch):
    replay.finish()
    claimed = submit(digits_submission, batch_size=32).json()["id"]

    def chosen(**query):
        view = batch(benchmark="digits", dry_run=True, **query)
        return sorted(item["submission_id"] for item in view["replays"])

    assert chosen() == sorted([claimed, replay.submission_id])
    assert chosen(status="verified") == [replay.submission_id]
    assert chosen(status="rejected") == []
    view = batch(benchmark="digits", status="verified")
    assert [item["submission_id"] for item in view["replays"]] == [replay.submission_id]


def test_two_verifications_are_compared_side_by_side(rerun_below, client):
    query = {"first": rerun_below.first, "second": rerun_below.verification_id}
    view = client.get(COMPARE, params=query).json()

    assert view["submission_id"] == rerun_below.submission_id
    assert [view[side]["outcome"] for side in ("first", "second")] == ["verified", "rejected"]
    assert [view[side]["published"] for side in ("first", "second")] == [True, False]
    assert {run["epochs_to_target"] for run in view["first"]["runs"]} == {8.0}
    assert {run["tta_seconds"] for run in view["second"]["runs"]} == {None}
    assert "did_not_reach" in [reason["code"] for reason in view["second"]["reasons"]]
    times = view["differences"][0]
    assert (times["figure"], times["second_mean"], times["p_value"]) == ("tta_seconds", None, None)
    sealed = [run["tta_seconds"] for run in view["first"]["runs"]]
    assert times["first_mean"] == pytest.approx(sum(sealed) / len(sealed))
    changed = ("software.torch", "2.13.0", "2.14.0"), ("threads", "1", "2")
    systems = [tuple(each.values()) for each in view["systems"]]
    assert systems == [("software.numpy", None, "2"), *changed]

    address = f"/verifications/compare?first={query['first']}&second={query['second']}"
    words = words_of(client.get(address, headers=BROWSER).text)
    assert "They disagree: verified and rejected" in words
    assert "Published: it sets the status." in words
    assert "did_not_reach" in words
    history = client.get(f"/submissions/{rerun_below.submission_id}?tab=history", headers=BROWSER)
    assert f'href="{address.replace("&", "&amp;")}"' in history.text
    same = address.replace(query["second"], query["first"])
    refused = client.get(same, headers=BROWSER)
    assert (refused.status_code, "two different verifications" in refused.text) == (422, True)


def test_only_two_of_one_submission_are_compared(replay, digits_submission, submit, batch, client):
    other = submit(digits_submission, batch_size=32).json()["id"]
    second = batch(submissions=[other])["replays"][0]["verification_id"]
    first = replay.verification_id
    for query, status in (
        ({"first": first, "second": second}, 422),
        ({"first": first, "second": first}, 422),
        ({"first": first, "second": "nothing"}, 404),
        ({"first": first}, 422),
    ):
        assert client.get(COMPARE, params=query).status_code == status
