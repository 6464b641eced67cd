"""Head-to-heads of two submissions, stage by stage."""

import hashlib
import math
import re
from dataclasses import replace

import pytest
from scipy import stats

from finishline.rules.verification.head_to_head import SIDES
from finishline.rules.verification.job import in_turn
from finishline.rules.verification.messages import Failure
from server.base.models import BenchmarkDefinition, Pool, Submission, User, Verification, WorkerRow
from server.verifications.queue import take_due
from tests.support.build import build_report, seal_of, taken
from tests.support.pages import words_of
from tests.support.workers import say_hello

AHEAD = (0.5, 0.51, 0.5, 0.51, 0.5)
NOISY = (0.8, 1.19, 0.8, 1.19, 0.8)


@pytest.fixture
def two(digits_submission, submit, bob):
    """Alice's submission at batch size 128, and bob's, which leaves that at the default of 64."""
    digits_submission.claim["model"] = "wide batches"
    challenger = taken(submit(digits_submission, batch_size=128))
    digits_submission.claim |= {"model": "digits reference", "hyperparameters": {}}
    return challenger["id"], taken(submit(digits_submission, by=bob))["id"]


@pytest.fixture
def ask(two, olivia):
    def post(**changes):
        body = {"challenger": two[0], "holder": two[1], "reason": "record"} | changes
        return olivia.post("/api/v1/head-to-heads", body)

    return post


@pytest.fixture
def head_to_head(ask, replay, olivia):
    replay.cancel(olivia)
    made = taken(ask())
    replay.verification_id, replay.submission_id = made["id"], made["submission_id"]
    assert replay.view() == made
    return replay


@pytest.fixture
def train(head_to_head):
    """Reports the pairs that are queued, and goes on with those that follow; what was shown.

    `ratios` are the challenger's seconds an epoch over the holder's 0.2 s, 0.0 for a run that
    misses. `busy` are runs that had half of a processor.
    """

    def report(*ratios, busy=(), lease=None):
        runs = []
        planned = in_turn(SIDES, len(ratios))
        for index, (seed, side) in enumerate(zip(head_to_head.seeds(), planned, strict=True)):
            pace = 0.2 * ratios[index // 2] if side == "challenger" else 0.2
            changes = {"seconds_per_epoch": pace} if pace else {"qualities": [60.0, 90.0]}
            share = 0.5 if index in busy else 1.0
            (run,) = build_report([seed], cpu_share=share, **changes).runs
            runs.append(replace(run, index=index))
        lease = lease or head_to_head.claim().json()
        answer = head_to_head.report(lease, replace(build_report([]), runs=runs))
        assert answer.status_code == 200, answer.text
        view = head_to_head.view()
        following = view["head_to_head"]["continued_by"]
        head_to_head.verification_id = following or head_to_head.verification_id
        return view

    return report


def test_seal_opens_after_the_last_run(head_to_head, two, train, digits, client):
    view = head_to_head.view()
    assert (view["kind"], view["state"], view["reason"]) == ("head_to_head", "queued", "record")
    assert (view["submission_id"], view["against_id"]) == two
    assert (view["head_to_head"]["challenger"], view["head_to_head"]["holder"]) == two
    assert view["head_to_head"]["order"][:4] == ["challenger", "holder", "holder", "challenger"]
    assert (view["runs_planned"], view["seeds"], view["hyperparameters"]) == (10, None, None)
    assert (view["head_to_head"]["pairs"], view["head_to_head"]["time"]) == ([], None)
    assert view["head_to_head"]["threshold"] == pytest.approx(0.01 / 12)

    # Its job trains each side with its own settings.
    lease = head_to_head.claim().json()
    job, trainings = lease["job"], lease["job"]["trainings"]
    assert (job["purpose"], job["control_points"]) == ("head_to_head", [])
    assert {training["stop_at"] for training in trainings} == {"target"}
    sizes = [training["settings"]["batch_size"] for training in trainings]
    assert sizes[:4] == [128.0, 64.0, 64.0, 128.0]
    assert {training["settings"]["momentum"] for training in trainings} == {0.9}
    seeds = [training["seed"] for training in trainings]
    assert (seeds[::2], len(set(seeds))) == (seeds[1::2], 5)

    view = train(*AHEAD, lease=lease)
    listed = client.get("/api/v1/verifications").json()["verifications"][:2]
    assert [(each["report"], each["head_to_head"]["pairs"]) for each in listed] == [(None, [])] * 2
    assert {each["outcome"] for each in listed} == {"continues", None}
    sealed = {
        "against": two[1], "benchmark_sha256": digits.sha256, "kind": "head_to_head", "runs": 10,
        "submission": two[0],
    }  # fmt: skip
    opened = {name: view[name] for name in ("hyperparameters", "nonce", "seeds")}
    assert seal_of(**sealed, **opened) == view["seal"]
    sizes = [table["batch_size"] for table in view["hyperparameters"]]
    assert sizes[:4] == [128, 64, 64, 128]


@pytest.mark.parametrize(
    ("hardware_class", "of_an_organiser", "drawn"),
    [("cpu-other", True, []), ("cpu-test", False, []), ("cpu-test", True, ["walter-1"])],
)
def test_only_an_organisers_worker_of_its_class_trains_it(
    hardware_class, of_an_organiser, drawn, head_to_head, client, database, walter
):
    say_hello(client, walter, hardware_class=hardware_class)
    with database.write() as session:
        worker = session.get_one(WorkerRow, "walter-1")
        worker.confirmed_by = None if of_an_organiser else worker.user_id
    with database.write() as session:
        assert [one.worker for one in take_due(session)] == drawn


def test_challenger_wins_after_ten_pairs(head_to_head, two, train, client):
    first_id = head_to_head.verification_id
    first = train(*AHEAD)
    assert (first["state"], first["outcome"]) == ("done", "continues")
    assert first["reasons"][0]["message"].startswith("more pairs are needed: the challenger took")
    waiting = head_to_head.view()
    assert (waiting["id"], waiting["state"]) == (first["head_to_head"]["continued_by"], "queued")
    assert (waiting["runs_planned"], waiting["reason"]) == (10, "record")
    assert (waiting["head_to_head"]["holder"], waiting["head_to_head"]["pairs"]) == (two[1], [])

    won = train(*AHEAD)

    assert (won["state"], won["outcome"]) == ("done", "challenger_faster")
    assert won["head_to_head"]["continued_by"] is None
    codes = [reason["code"] for reason in won["reasons"]]
    assert codes == ["head_to_head_time", "head_to_head_pace", "head_to_head_epochs"]
    pairs = won["head_to_head"]["pairs"]
    assert [pair["number"] for pair in pairs] == list(range(1, 11))
    assert (
        pairs[:5] == client.get(f"/api/v1/verifications/{first_id}").json()["head_to_head"]["pairs"]
    )
    # Eight epochs, each with 4 ms of evaluation on the clock.
    assert pairs[0]["challenger"]["seconds"] == pytest.approx(8 * 0.104)
    assert pairs[0]["ratio"] == pytest.approx(0.104 / 0.204)
    assert (pairs[1]["challenger"]["run"], pairs[1]["holder"]["run"]) == (3, 2)
    assert {pair["winner"] for pair in pairs} == {"challenger"}
    expected = (0.104 / 0.204) ** 0.6 * (0.106 / 0.204) ** 0.4
    assert won["head_to_head"]["time"]["ratio"] == pytest.approx(expected)
    numbers = won["reasons"][0]["numbers"]
    assert (numbers["ratio"], numbers["pairs"]) == (pytest.approx(expected), 10.0)
    assert (numbers["p_value"], numbers["threshold"]) == (
        won["head_to_head"]["p_value"],
        won["head_to_head"]["threshold"],
    )
    listed = client.get(f"/api/v1/submissions/{two[0]}").json()["verifications"]
    assert [item["kind"] for item in listed] == ["head_to_head", "head_to_head"]
    proof = client.get(f"/api/v1/verifications/{first_id}/proof")
    assert proof.status_code == 409
    assert "is a head-to-head: only a replay, the" in proof.json()["detail"]


def test_who_is_not_ahead_after_five_pairs_has_lost(
    head_to_head, two, train, ask, database, client
):
    view = train(1.2, 0.95, 1.2, 0.95, 0.95)
    page = client.get(f"/verifications/{head_to_head.verification_id}").text

    assert (view["outcome"], view["head_to_head"]["continued_by"]) == ("not_proven", None)
    assert "not proven, the challenger is not ahead: " in view["reasons"][0]["message"]
    assert "B was faster in 3 of 5 pairs but behind on average. A challenger that is" in page
    assert "the head-to-head ended before the other 25 pairs. A keeps its place." in page
    for sides in (two, two[::-1]):
        again = ask(challenger=sides[0], holder=sides[1])
        assert again.status_code == 409
        assert f"had their head-to-head, {head_to_head.verification_id}" in again.json()["detail"]
    with database.write() as session:
        kept = session.get_one(Verification, head_to_head.verification_id)
        first, *others = kept.reasons
        numbers = first["numbers"] | {"threshold": 0.0002}
        kept.reasons = [first | {"numbers": numbers}, *others]
    assert head_to_head.view()["head_to_head"]["threshold"] == 0.0002, "that of the verdict"


def test_thirty_pairs_may_prove_nothing(head_to_head, train, client):
    stages = [train(*NOISY), train(*NOISY), train(*NOISY * 2), train(*NOISY * 2)]

    assert [view["outcome"] for view in stages] == ["continues"] * 3 + ["not_proven"]
    assert [len(view["head_to_head"]["pairs"]) for view in stages] == [5, 10, 20, 30]
    assert "over 30 pairs, one-sided p = 0.0" in stages[-1]["reasons"][0]["message"]
    page = words_of(client.get(f"/verifications/{head_to_head.verification_id}").text)
    assert "That is short of proof: it has p" in page
    assert "&lt; 0.00083. A keeps its place." in page.replace("\u00a0", " ")


def test_disturbed_pair_is_trained_again(head_to_head, train, database):
    with database.write() as session:
        session.get_one(Verification, head_to_head.verification_id).gpu_seconds_reserved = 100.0
    view = train(*AHEAD, busy=[3])

    assert view["outcome"] == "continues"
    second = view["head_to_head"]["pairs"][1]
    assert [second[side]["ending"] for side in SIDES] == ["void", "void"]
    assert (view["head_to_head"]["time"]["pairs"], head_to_head.view()["runs_planned"]) == (4, 2)
    with database.read() as session:
        reserved = session.get_one(Verification, head_to_head.verification_id).gpu_seconds_reserved
    assert reserved == pytest.approx(20.0), "of one pair in place of five"
    assert train(0.5)["outcome"] == "continues"
    assert head_to_head.view()["runs_planned"] == 10


def test_void_pairs_draw_no_chart(head_to_head, train, client):
    address = f"/verifications/{head_to_head.verification_id}"
    train(*AHEAD, busy=range(10))

    page = client.get(address).text
    assert "No pair could be compared" in page
    assert "5 pairs were void" in page
    assert "failed, and trained again" in page


def test_definition_may_set_three_pairs(two, ask, head_to_head, train, database, olivia):
    """The calibrated spread of the class decides: it is above the pairs' own."""
    head_to_head.cancel(olivia)
    with database.write() as session:
        for submission_id in two:
            scored_under(session, submission_id, "[data_set]", "[ranking]\npairs = 3\n[data_set]")
    head_to_head.verification_id = ask().json()["id"]
    assert head_to_head.view()["runs_planned"] == 6
    view = train(0.5, 0.501, 0.5)

    assert (view["outcome"], view["head_to_head"]["time"]["pairs"]) == ("challenger_faster", 3)
    numbers = view["reasons"][0]["numbers"]
    ratio, spread = numbers["ratio"], numbers["class_stdev"]
    assert spread > 0.03
    t = -math.log(ratio) / (spread * math.sqrt(2 / 3))
    assert numbers["p_value"] == pytest.approx(stats.t.sf(t, numbers["class_freedom"]))


def test_failed_machine_costs_an_attempt_and_the_next_one_decides(head_to_head, train, make_report):
    failure = Failure("infrastructure", "child_died", "the training died", "nothing to do")
    head_to_head.report(head_to_head.claim().json(), replace(make_report([]), failure=failure))

    assert (head_to_head.view()["state"], head_to_head.view()["outcome"]) == ("queued", None)
    assert head_to_head.view()["attempts"][0]["refunded"] is True
    assert train(1.2, 1.2, 1.2, 1.2, 1.2)["outcome"] == "not_proven"
    assert [attempt["state"] for attempt in head_to_head.view()["attempts"]] == ["failed", "done"]


def test_cancelled_one_is_asked_for_again(head_to_head, two, client, olivia, ask, train):
    for sides in (two, two[::-1]):
        again = ask(challenger=sides[0], holder=sides[1])
        assert again.status_code == 409
        assert f"Head-to-head {head_to_head.verification_id}" in again.json()["detail"]

    assert head_to_head.cancel(olivia).json()["state"] == "cancelled"
    assert head_to_head.status() == "claimed"
    page = client.get(f"/verifications/{head_to_head.verification_id}").text
    assert "This head-to-head was cancelled before it had a result for either submission." in page
    again = ask()
    # The first one never started, so it was no try.
    assert (again.status_code, again.json()["head_to_head"]["threshold"]) == (201, 0.01 / 12)
    head_to_head.verification_id = again.json()["id"]
    train(*AHEAD)
    head_to_head.claim()
    head_to_head.cancel(olivia)
    again = ask().json()
    assert again["head_to_head"]["threshold"] == pytest.approx(0.01 / 36), (
        "its second try, of two stages"
    )
    head_to_head.verification_id = again["id"]
    assert len(train(*AHEAD)["head_to_head"]["pairs"]) == 5, "it begins anew"


def test_tries_of_an_organisation_count_together(
    head_to_head, two, submit, digits_submission, make_person, database, olivia
):
    """Alice and carol are of one organisation, and what alice withdrew counts too."""
    head_to_head.claim()
    reason = {"reason": "slower than hoped"}
    withdrawal = f"/api/v1/submissions/{two[0]}/withdrawal"
    assert olivia.post(withdrawal, reason).status_code == 200
    people = {name: make_person(name, "submitter") for name in ("carol", "dave", "erin")}
    made = make_person("root", "admin").post("/api/v1/organisations", {"name": "Lab"})
    with database.write() as session:
        for name in ("alice", "carol"):
            user = session.query(User).where(User.name == name).one()
            user.organisation_id = made.json()["id"]

    def threshold(name, batch_size):
        sent = submit(digits_submission, by=people[name], batch_size=batch_size)
        sides = {"challenger": sent.json()["id"], "holder": two[1]}
        answer = olivia.post("/api/v1/head-to-heads", sides)
        assert answer.status_code == 201, answer.text
        return 0.01 / answer.json()["head_to_head"]["threshold"]

    assert threshold("dave", 32) == pytest.approx(3 * 2 * 3 * 1 * 2)
    assert threshold("carol", 16) == pytest.approx(3 * 1 * 2 * 2 * 3)
    assert threshold("erin", 256) == pytest.approx(3 * 3 * 4 * 1 * 2)
    assert threshold("dave", 48) == pytest.approx(3 * 2 * 3 * 2 * 3)


def test_a_verification_of_its_challenger_goes_on(ask, two, client, olivia):
    assert ask().status_code == 201
    asked = olivia.post(f"/api/v1/submissions/{two[0]}/verifications")
    assert asked.status_code == 201
    shown = client.get(f"/api/v1/submissions/{two[0]}").json()
    assert shown["status"] == "verifying"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"pairs": 4}, "pairs"),
        ({"holder": None}, "holder"),
        ({"challenger": ""}, "challenger"),
        ({"reason": "x" * 2001}, "reason"),
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
def test_other_hardware_is_refused(ask, two, digits_submission, submit, make_log, changes, words):
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
    session.merge(changed)
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


def test_page_while_it_waits_and_after_it(head_to_head, two, client, train):
    first = head_to_head.verification_id
    waiting = client.get(f"/verifications/{first}").text
    assert "wide batches by alice against digits reference by bob" in waiting
    assert "B waits for its 5 pairs with A" in waiting
    assert 'id="head-to-head-chart"' not in waiting
    train(*AHEAD)
    page = client.get(f"/verifications/{first}").text
    assert "times the time of A so far, more pairs follow" in page
    assert f'<a href="/verifications/{head_to_head.verification_id}">part 2</a>' in page
    train(*AHEAD)

    address = f"/verifications/{head_to_head.verification_id}"
    page = client.get(address).text
    assert re.search(r"B takes 0\.\d+ times the time of A \(p&nbsp;", page)
    assert f'30 at most. In 2 parts: <a href="/verifications/{first}">part 1</a>, 2' in page
    assert "B was faster in 10 of 10 pairs and is proven faster, so the head-to-head" in page
    assert 'id="head-to-head-chart"' in page
    traces = client.get(f"{address}/charts/replay.json").json()["data"]
    assert {"challenger", "holder"} <= {t["name"] for t in traces}
    assert address in client.get("/").text
    history = client.get(f"/submissions/{two[0]}?tab=history").text
    assert "Head-to-head</a>" in history
    events = client.get(f"/api/v1{address}/events").text
    assert '"outcome": "challenger_faster"' in events
