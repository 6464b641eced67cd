"""Duels of two submissions."""

import hashlib
from dataclasses import replace

import pytest

from finishline.rules.verification.messages import Failure
from server.base.models import BenchmarkDefinition, Pool, Submission
from server.verifications.dispatch import take_due
from tests.support.build import seal_of
from tests.support.workers import say_hello


@pytest.fixture
def two(digits_submission, submit, bob, make_log):
    """Alice's submission at batch size 128, and bob's, which leaves that at the default of 64."""
    logs = dict(digits_submission.logs)
    digits_submission.claim |= {"model": "wide batches", "hyperparameters": {"batch_size": 128}}
    digits_submission.logs = {
        name: make_log(300 + index, name=name, batch_size=128) for index, name in enumerate(logs)
    }
    challenger = submit(digits_submission)
    assert challenger.status_code == 201, challenger.text
    digits_submission.claim |= {"model": "digits reference", "hyperparameters": {}}
    digits_submission.logs = logs
    holder = submit(digits_submission, by=bob)
    assert holder.status_code == 201, holder.text
    return challenger.json()["id"], holder.json()["id"]


@pytest.fixture
def ask(client, two, olivia):
    """Asks for a duel of the two, as olivia or with other headers, and returns the answer."""

    def post(headers=None, **changes):
        body = {"challenger": two[0], "holder": two[1], "pairs": 2, "reason": "record"} | changes
        sent = olivia.headers if headers is None else headers
        return client.post("/api/v1/duels", json=body, headers=sent)

    return post


@pytest.fixture
def duel(ask, replay, client, olivia):
    """The fixture `replay`, turned to a duel of two pairs."""
    replay.cancel(olivia)
    made = ask().json()
    replay.verification_id, replay.submission_id = made["id"], made["submission_id"]
    return replay


def report_of(duel, make_report, *seconds):
    """A report whose runs reach the target after so many seconds an epoch, 0.0 for never."""
    runs = []
    for index, (seed, pace) in enumerate(zip(duel.seeds(), seconds, strict=True)):
        changes = {"seconds_per_epoch": pace} if pace else {"qualities": [60.0, 90.0]}
        (run,) = make_report([seed], **changes).runs
        runs.append(replace(run, index=index))
    return replace(make_report([]), runs=runs)


def test_a_duel_is_sealed_before_its_first_run(ask, two, client):
    answer = ask()
    view = answer.json()

    assert answer.status_code == 201, answer.text
    assert (view["kind"], view["state"], view["reason"]) == ("duel", "queued", "record")
    assert (view["submission_id"], view["against_id"]) == two
    assert (view["duel"]["challenger"], view["duel"]["holder"]) == two
    assert view["duel"]["order"] == ["challenger", "holder", "holder", "challenger"]
    assert (view["runs_planned"], view["seeds"], view["hyperparameters"]) == (4, None, None)
    assert (view["duel"]["pairs"], view["duel"]["time"]) == ([], None)
    assert client.get(f"/api/v1/verifications/{view['id']}").json() == view


def test_a_job_trains_each_side_with_all_of_its_own_settings(
    duel, client, database, walter, make_report
):
    say_hello(client, walter)
    with database.write() as session:
        (sending,) = take_due(session, alive_seconds=20.0)

    job = sending.job
    assert (job.purpose, job.control_points) == ("duel", [])
    assert {training.stop_at for training in job.trainings} == {"target"}
    sizes = [training.settings["batch_size"] for training in job.trainings]
    assert sizes == [128.0, 64.0, 64.0, 128.0]
    assert {training.settings["momentum"] for training in job.trainings} == {0.9}
    assert len(set(job.seeds)) == 4
    assert sending.queue == "replay.walter-1"


def test_the_faster_side_is_told_with_its_pairs_and_no_status_changes(
    duel, two, client, make_report
):
    board = client.get("/api/v1/leaderboards/digits").json()
    report = report_of(duel, make_report, 0.10, 0.20, 0.201, 0.10)
    answer = duel.report(duel.claim().json(), report).json()
    view = duel.view()

    assert (answer["state"], answer["outcome"]) == ("done", "challenger_faster")
    assert [reason["code"] for reason in view["reasons"]] == [
        "duel_time",
        "duel_pace",
        "duel_epochs",
    ]
    first, second = view["duel"]["pairs"]
    # Eight epochs, each with 4 ms of evaluation on the clock.
    assert first["challenger"]["seconds"] == pytest.approx(8 * 0.104)
    assert first["ratio"] == pytest.approx(0.104 / 0.204)
    assert (second["challenger"]["run"], second["holder"]["run"]) == (3, 2)
    assert (first["winner"], second["winner"]) == ("challenger", "challenger")
    expected = ((0.104 / 0.204) * (0.104 / 0.205)) ** 0.5
    assert view["duel"]["time"]["ratio"] == pytest.approx(expected)
    assert view["reasons"][0]["numbers"]["ratio"] == pytest.approx(expected)
    assert view["duel"]["test"] == "paired_t"
    for submission_id in two:
        shown = client.get(f"/api/v1/submissions/{submission_id}").json()
        assert shown["status"] == "claimed"
    assert client.get("/api/v1/leaderboards/digits").json() == board
    listed = client.get(f"/api/v1/submissions/{two[0]}").json()["verifications"]
    assert [item["kind"] for item in listed] == ["duel"]
    proof = client.get(f"/api/v1/verifications/{duel.verification_id}/proof")
    assert proof.status_code == 409
    assert "is a duel: only a replay of a submission" in proof.json()["detail"]


def test_the_seal_opens_to_both_submissions_the_settings_and_the_seeds(
    duel, two, make_report, digits, client
):
    duel.report(duel.claim().json(), report_of(duel, make_report, 0.1, 0.2, 0.2, 0.1))
    view = duel.view()
    listed = client.get("/api/v1/verifications").json()["verifications"][0]
    assert (listed["kind"], listed["report"], listed["duel"]["pairs"]) == ("duel", None, [])
    assert listed["outcome"] == "challenger_faster"
    sealed = {
        "against": two[1], "benchmark_sha256": digits.sha256, "kind": "duel", "runs": 4,
        "submission": two[0],
    }  # fmt: skip
    opened = {name: view[name] for name in ("hyperparameters", "nonce", "seeds")}
    assert seal_of(**sealed, **opened) == view["seal"]
    assert [table["batch_size"] for table in view["hyperparameters"]] == [128, 64, 64, 128]


def test_what_chance_can_do_is_not_separable(duel, make_report):
    duel.report(duel.claim().json(), report_of(duel, make_report, 0.10, 0.12, 0.10, 0.11))
    view = duel.view()

    assert (view["state"], view["outcome"]) == ("done", "not_separable")
    assert view["duel"]["pairs_needed"] > 2
    gap = (view["duel"]["time"]["high"] / view["duel"]["time"]["ratio"] - 1) * 100
    message = view["reasons"][0]["message"]
    assert "these runs cannot tell the two apart" in message
    assert f"a gap under {gap:.0f} % could not be seen" in message


def test_runs_that_miss_the_target_are_lost_pairs(duel, make_report):
    duel.report(duel.claim().json(), report_of(duel, make_report, 0.1, 0.0, 0.0, 0.1))
    view = duel.view()

    assert view["outcome"] == "not_separable"  # Two wins of two prove nothing.
    assert [pair["holder"]["ending"] for pair in view["duel"]["pairs"]] == ["missed", "missed"]
    assert [pair["winner"] for pair in view["duel"]["pairs"]] == ["challenger", "challenger"]
    assert view["reasons"][1]["message"].startswith("2 of the holder's 2 runs did not reach")


def test_where_nobody_reaches_it_is_inconclusive(duel, make_report):
    duel.report(duel.claim().json(), report_of(duel, make_report, 0.0, 0.0, 0.0, 0.0))
    assert (duel.view()["state"], duel.view()["outcome"]) == ("done", "inconclusive")


def test_a_failed_machine_costs_an_attempt_and_the_next_one_decides(duel, make_report):
    failure = Failure("infrastructure", "child_died", "the training died", "nothing to do")
    duel.report(duel.claim().json(), replace(make_report([]), failure=failure))

    assert (duel.view()["state"], duel.view()["outcome"]) == ("queued", None)
    assert duel.view()["attempts"][0]["refunded"] is True
    duel.report(duel.claim().json(), report_of(duel, make_report, 0.2, 0.1, 0.101, 0.2))
    assert duel.view()["outcome"] == "holder_faster"
    assert [attempt["state"] for attempt in duel.view()["attempts"]] == ["failed", "done"]


def test_a_duel_that_fails_or_is_cancelled_says_nothing_of_either(duel, two, client, olivia, ask):
    again = ask()
    assert again.status_code == 409
    assert f"Duel {duel.verification_id}" in again.json()["detail"]
    turned = ask(challenger=two[1], holder=two[0])
    assert turned.status_code == 409

    cancel = f"/api/v1/verifications/{duel.verification_id}/cancel"
    assert client.post(cancel, headers=olivia.headers).json()["state"] == "cancelled"
    assert duel.status() == "claimed"
    page = client.get(f"/verifications/{duel.verification_id}").text
    assert "This duel was cancelled, without a result for either submission." in page
    assert ask().status_code == 201


def test_a_duel_leaves_a_verification_of_its_challenger_alone(ask, two, client, olivia):
    assert ask().status_code == 201
    asked = client.post(f"/api/v1/submissions/{two[0]}/verifications", headers=olivia.headers)
    assert asked.status_code == 201
    shown = client.get(f"/api/v1/submissions/{two[0]}").json()
    assert shown["status"] == "verifying"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"pairs": 1}, "pairs"),
        ({"pairs": 21}, "pairs"),
        ({"pairs": 2.5}, "pairs"),
        ({"pairs": "4"}, "pairs"),
        ({"holder": None}, "holder"),
        ({"challenger": ""}, "challenger"),
        ({"reason": "x" * 2001}, "reason"),
        ({"seeds": [1]}, "seeds"),
    ],
)
def test_a_bad_body_names_the_field(ask, changes, field):
    answer = ask(**changes)
    assert answer.status_code == 422
    assert answer.json()["problems"][0]["field"] == f"body.{field}"


def test_a_submission_fights_neither_itself_nor_one_that_is_missing(ask, two):
    answer = ask(holder=two[0])
    assert answer.status_code == 422
    assert "expected two submissions" in answer.json()["detail"]
    assert "'gone'" in ask(holder="gone").json()["detail"]
    assert ask(challenger="gone").status_code == 404


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"division": "open"}, "one division"),
        ({"system": {"hardware_class": "h200-8"}}, "h200-8"),
    ],
)
def test_submissions_under_other_rules_or_hardware_do_not_fight(
    ask, two, digits_submission, submit, make_log, changes, words
):
    system = digits_submission.claim["system"] | changes.pop("system", {})
    digits_submission.claim |= changes | {"system": system}
    division = digits_submission.claim["division"]
    digits_submission.logs = {
        name: make_log(200 + index, name=name, division=division)
        for index, name in enumerate(digits_submission.logs)
    }
    other = submit(digits_submission)
    assert other.status_code == 201, other.text
    answer = ask(holder=other.json()["id"])

    assert answer.status_code == 422
    assert words in answer.json()["detail"]


def scored_under(session, submission_id, before, after):
    """Let a submission and its pool be of a definition with another text."""
    submission = session.get_one(Submission, submission_id)
    kept = session.get_one(BenchmarkDefinition, submission.benchmark_sha256)
    assert before in kept.content
    content = kept.content.replace(before, after, 1)
    changed = BenchmarkDefinition(
        sha256=hashlib.sha256(content.encode()).hexdigest(),
        benchmark_id="digits",
        version="0",
        content=content,
        created_at=kept.created_at,
    )
    session.add(changed)
    session.flush()
    submission.benchmark_sha256 = changed.sha256
    if submission.pool_id is not None:
        session.get_one(Pool, submission.pool_id).benchmark_sha256 = changed.sha256


def test_a_submission_of_other_rules_or_that_cannot_be_trained_does_not_fight(ask, two, database):
    with database.write() as session:
        kept = session.get_one(Submission, two[1]).hyperparameters
        session.get_one(Submission, two[1]).hyperparameters = {"dropout": 0.1}
    answer = ask()
    assert answer.status_code == 422
    assert "the holder cannot be replayed" in answer.json()["detail"]
    with database.write() as session:
        session.get_one(Submission, two[1]).hyperparameters = kept
        scored_under(session, two[1], 'clock = "mlperf"', 'clock = "speedrun"')
    answer = ask()
    assert answer.status_code == 422
    assert "definitions with another clock" in answer.json()["detail"]


def test_a_duel_has_a_page_while_it_waits_and_after_it(duel, client, make_report):
    address = f"/verifications/{duel.verification_id}"
    waiting = client.get(address).text
    assert "CPU by alice (wide batches) against CPU by bob (digits reference)" in waiting
    assert "The pairs are shown when the last run has ended." in waiting
    assert 'id="duel-chart"' not in waiting
    duel.report(duel.claim().json(), report_of(duel, make_report, 0.1, 0.2, 0.201, 0.1))

    page = client.get(address).text
    assert "The challenger is faster." in page
    assert "challenger faster</span>" in page
    assert 'id="duel-chart"' in page
    names = {t["name"] for t in client.get(f"{address}/charts/replay.json").json()["data"]}
    assert names == {
        "run 1 (challenger)",
        "run 2 (holder)",
        "run 3 (holder)",
        "run 4 (challenger)",
    }
    assert f"/verifications/{duel.verification_id}" in client.get("/").text
    assert "duel</small>" in client.get(f"/submissions/{duel.submission_id}?tab=history").text
    events = client.get(f"/api/v1/verifications/{duel.verification_id}/events").text
    assert '"outcome": "challenger_faster"' in events
