"""What would stand among the first three, or take the record, is trained again first."""

from copy import deepcopy
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import select

from finishline.rules.verification.messages import Failure
from server.base.database import utc_now
from server.base.models import BoardChange, Submission, Verification, WorkerRow
from server.operations.integrity import Findings, check_evidence
from server.verifications.overdue import end_waited
from tests.support.services import services_of
from tests.support.workers import greet_as_servers

BOARD = "/api/v1/leaderboards/digits"
CONFIRM_RUNS = 10


class Pools:
    """Configurations that differ by their hardware class, measured one after the other."""

    def __init__(self, client, replay, make_report, submit):
        self.client, self.replay, self.make_report, self.submit = (
            client,
            replay,
            make_report,
            submit,
        )

    def measure(self, parts, hardware_class, pace, headers):
        """Submit the reference for a class and have it replayed at so many seconds an epoch."""
        parts = deepcopy(parts)
        parts.claim["system"]["hardware_class"] = hardware_class
        sent = self.submit(parts)
        assert sent.status_code == 201, sent.text
        self.verify(sent.json()["id"], hardware_class, pace, headers)
        return str(sent.json()["id"])

    def verify(self, submission_id, hardware_class, pace, headers):
        asked = self.client.post(
            f"/api/v1/submissions/{submission_id}/verifications",
            json={"reason": "wanted"},
            headers=headers,
        )
        assert asked.status_code == 201, asked.text
        self.train(submission_id, asked.json()["id"], hardware_class, pace)

    def train(self, submission_id, verification_id, hardware_class, pace, **how):
        """Train a verification and report it; `how` changes the report."""
        self.replay.submission_id, self.replay.verification_id = submission_id, verification_id
        greet_as_servers(self.replay.database, "walter-1", hardware_class)
        report = self.make_report(self.replay.seeds(), seconds_per_epoch=pace)
        system = replace(report.system, hardware_class=hardware_class)
        sent = self.replay.report(
            self.replay.claim().json(), replace(report, **{"system": system} | how)
        )
        assert sent.status_code == 200, sent.text

    def entry(self, submission_id):
        """A row of the board."""
        entries = self.client.get(BOARD).json()["entries"]
        return next(e for e in entries if e["submission_id"] == submission_id)


@pytest.fixture
def measure(client, replay, make_report, submit, digits_submission, olivia):
    """Measures the reference on a hardware class; returns the submission's id."""
    made = Pools(client, replay, make_report, submit)

    def run(hardware_class, pace):
        return made.measure(digits_submission, hardware_class, pace, olivia.headers)

    run.pools = made
    return run


@pytest.fixture
def four(measure):
    """Three measured configurations, and a fourth that would be the second of them."""
    found = [measure(f"cpu-{number}", 0.10 + 0.02 * number) for number in range(3)]
    return [*found, measure("cpu-4", 0.11)]


def fresh_of(database, submission_id):
    """The latest fresh verification of a submission."""
    with database.read() as session:
        query = select(Verification).where(
            Verification.submission_id == submission_id, Verification.fresh.is_(True)
        )
        return session.scalars(query.order_by(Verification.created_at.desc())).first()


def pool_of(client, database, submission_id):
    with database.read() as session:
        pool_id = session.get_one(Submission, submission_id).pool_id
    return client.get(f"/api/v1/pools/{pool_id}").json()


def test_three_configurations_are_numbered_without_fresh_runs(measure, database):
    found = [measure(f"cpu-{number}", 0.10 + 0.02 * number) for number in range(3)]

    assert [measure.pools.entry(each)["rank"] for each in found] == [1, 2, 3]
    assert [fresh_of(database, each) for each in found] == [None] * 3


def test_a_fourth_that_would_be_second_waits_for_its_fresh_runs(four, measure, client, database):
    entry = measure.pools.entry(four[3])
    fresh = fresh_of(database, four[3])

    assert (entry["rank"], entry["provisional_rank"]) == (None, 2)
    assert entry["unranked_reason"] == "its 10 fresh runs are under way"
    assert [measure.pools.entry(each)["rank"] for each in four[:3]] == [1, 2, 3]
    assert (fresh.kind, fresh.state, fresh.own_runs) == ("replay", "queued", 0)
    assert fresh.runs == CONFIRM_RUNS
    assert fresh.reason == "fresh runs: would enter the first three"
    pool = pool_of(client, database, four[3])
    assert (pool["state"], pool["fresh_runs"]) == ("confirming", fresh.id)
    assert all(run["counted"] and not run["fresh"] for run in pool["runs"])


def test_the_fresh_runs_are_the_pool_and_no_verdict(four, measure, client, database):
    nominated = measure.pools.entry(four[3])["measured_seconds"]
    fresh = fresh_of(database, four[3])
    measure.pools.train(four[3], fresh.id, "cpu-4", 0.13)
    entry = measure.pools.entry(four[3])
    pool = pool_of(client, database, four[3])

    assert (entry["rank"], entry["measured_runs"]) == (3, CONFIRM_RUNS)
    assert entry["measured_seconds"] > nominated
    counted = [run for run in pool["runs"] if run["counted"]]
    assert {run["verification_id"] for run in counted} == {fresh.id}
    with database.read() as session:
        seeds = session.get_one(Verification, fresh.id).seeds
    assert [run["seed"] for run in counted] == seeds
    assert len(set(seeds)) == CONFIRM_RUNS
    assert any(not run["counted"] and not run["fresh"] for run in pool["runs"])
    kept = sorted(run["seconds"] for run in counted)[1:-1]
    assert pool["measured_seconds"] == pytest.approx(sum(kept) / len(kept))
    assert (pool["state"], pool["fresh_runs"]) == ("measured", None)
    shown = client.get(f"/api/v1/verifications/{fresh.id}").json()
    assert (shown["state"], shown["decision"]) == ("done", None)
    assert client.get(f"/api/v1/submissions/{four[3]}").json()["status"] == "verified"


def test_it_is_confirmed_once_and_later_runs_are_added(four, measure, client, database, olivia):
    fresh = fresh_of(database, four[3])
    measure.pools.train(four[3], fresh.id, "cpu-4", 0.11)
    measure.pools.verify(four[3], "cpu-4", 0.11, olivia.headers)

    assert fresh_of(database, four[3]).id == fresh.id
    assert measure.pools.entry(four[3])["measured_runs"] > CONFIRM_RUNS
    assert measure.pools.entry(four[3])["rank"] == 2


def test_a_fourth_below_the_first_three_is_numbered_at_once(measure, database):
    found = [measure(f"cpu-{number}", 0.10 + 0.02 * number) for number in range(4)]

    assert measure.pools.entry(found[3])["rank"] == 4
    assert fresh_of(database, found[3]) is None


@pytest.fixture
def five(measure):
    """Five configurations that were measured in the order of their times."""
    return [measure(f"cpu-{number}", 0.10 + 0.02 * number) for number in range(5)]


@pytest.mark.parametrize("leaves", ["withdrawn", "closed"])
def test_a_row_that_rises_into_the_first_three_is_trained_again(
    leaves, five, measure, client, database, olivia
):
    path = f"submissions/{five[1]}/withdrawal"
    if leaves == "closed":
        path = f"pools/{pool_of(client, database, five[1])['id']}/close"
    left = client.post(f"/api/v1/{path}", json={"reason": "a new driver"}, headers=olivia.headers)
    assert left.status_code == 200, left.text

    assert fresh_of(database, five[3]).reason == "fresh runs: would enter the first three"
    assert measure.pools.entry(five[3])["unranked_reason"] == "its 10 fresh runs are under way"
    assert [measure.pools.entry(five[each])["rank"] for each in (0, 2, 4)] == [1, 2, 3]
    assert [fresh_of(database, five[each]) for each in (0, 2, 4)] == [None] * 3


@pytest.mark.parametrize("leaves", ["one below the first three", "one of a row of two"])
def test_nobody_rises_where_nobody_left_the_first_three(
    leaves, five, measure, client, database, olivia
):
    gone = five[3] if leaves == "one below the first three" else five[0]
    if leaves == "one of a row of two":
        measure("cpu-0", 0.10)
    path = f"/api/v1/submissions/{gone}/withdrawal"
    client.post(path, json={"reason": "mine"}, headers=olivia.headers)

    assert [fresh_of(database, each) for each in five] == [None] * 5


def test_fresh_runs_without_a_measurement_are_asked_for_again_at_the_next(
    end, four, measure, client, database, olivia
):
    fresh = fresh_of(database, four[3])
    if end == "cancelled":
        cancel = f"/api/v1/verifications/{fresh.id}/cancel"
        assert client.post(cancel, headers=olivia.headers).status_code == 200
    elif end == "busy worker":
        measure.pools.train(four[3], fresh.id, "cpu-4", 0.11, drift="2 % slower than it was")
    else:
        failure = Failure("infrastructure", "child_died", "the training died", "nothing to do")
        for _ in range(fresh.max_attempts):
            measure.pools.train(four[3], fresh.id, "cpu-4", 0.11, failure=failure, runs=[])

    entry = measure.pools.entry(four[3])
    assert (entry["rank"], entry["unranked_reason"]) == (
        None,
        "its 10 fresh runs were not finished",
    )
    assert fresh_of(database, four[3]).id == fresh.id  # Nothing is asked for by itself.
    measure.pools.verify(four[3], "cpu-4", 0.11, olivia.headers)
    again = fresh_of(database, four[3])
    assert again.id != fresh.id
    assert measure.pools.entry(four[3])["unranked_reason"] == "its 10 fresh runs are under way"


def test_an_organiser_asks_again_for_fresh_runs_that_were_cancelled(
    four, client, database, olivia, alice
):
    pool = pool_of(client, database, four[3])
    path = f"/api/v1/pools/{pool['id']}/fresh-runs"
    assert client.post(path, headers=olivia.headers).status_code == 409
    client.post(f"/api/v1/verifications/{pool['fresh_runs']}/cancel", headers=olivia.headers)

    assert client.post(path, headers=alice.headers).status_code == 403
    asked = client.post(path, headers=olivia.headers)
    assert asked.status_code == 201, asked.text
    assert asked.json()["state"] == "confirming"
    assert asked.json()["fresh_runs"] not in (None, pool["fresh_runs"])


def test_a_closed_pool_lets_its_submissions_go_and_the_next_replay_opens_another(
    four, measure, client, database, olivia, alice
):
    pool = pool_of(client, database, four[3])
    path, body = f"/api/v1/pools/{pool['id']}/close", {"reason": "the worker has another driver"}
    assert client.post(path, json=body, headers=alice.headers).status_code == 403
    assert client.post(path, json={}, headers=olivia.headers).status_code == 422
    closed = client.post(path, json=body, headers=olivia.headers)

    assert closed.status_code == 200, closed.text
    assert closed.json()["closed_because"] == "the worker has another driver"
    assert len(closed.json()["runs"]) == len(pool["runs"])
    assert fresh_of(database, four[3]).state == "cancelled"
    entry = measure.pools.entry(four[3])
    assert (entry["evidence"], entry["check"], entry["rank"]) == ("claimed", "epochs_agree", None)
    (logged,) = client.get("/api/v1/audit?action=pool.close", headers=olivia.headers).json()[
        "records"
    ]
    assert logged["after"]["consequence"] == (
        "1 submission dropped from measured to claimed until the configuration is trained again"
    )
    assert client.post(path, json=body, headers=olivia.headers).status_code == 409
    measure.pools.verify(four[3], "cpu-4", 0.11, olivia.headers)
    assert pool_of(client, database, four[3])["id"] != pool["id"]
    assert measure.pools.entry(four[3])["unranked_reason"] == "its 10 fresh runs are under way"


def test_a_pool_that_is_missing_is_404(client, olivia):
    assert client.get("/api/v1/pools/none").status_code == 404
    body = {"reason": "gone"}
    assert (
        client.post("/api/v1/pools/none/close", json=body, headers=olivia.headers).status_code
        == 404
    )


def test_the_pool_of_a_hidden_submission_is_404(four, client, database, bob, alice):
    with database.write() as session:
        submission = session.get_one(Submission, four[3])
        submission.embargoed, path = True, f"/api/v1/pools/{submission.pool_id}"

    assert client.get(path, headers=bob.headers).status_code == 404
    assert client.get(path, headers=alice.headers).status_code == 200


def test_the_proofs_of_fresh_runs_hold(four, measure, client, database, olivia):
    fresh = fresh_of(database, four[3])
    measure.pools.train(four[3], fresh.id, "cpu-4", 0.13)
    measure("cpu-5", 0.09)
    under_way = client.get("/api/v1/verifications?state=queued&limit=1").json()["verifications"]
    cancel = f"/api/v1/verifications/{under_way[0]['id']}/cancel"
    assert client.post(cancel, headers=olivia.headers).status_code == 200
    client.get(f"/api/v1/verifications/{fresh.id}/proof")  # From the first on the key is listed.
    findings = Findings()
    check_evidence(services_of(client), findings)

    assert findings.looked_at["proofs"] > 5
    assert findings.faults == []


def test_a_row_waits_while_the_fresh_runs_of_faster_ones_are_under_way(measure, client, database):
    numbered = [measure(f"cpu-{number}", 0.10 + 0.02 * number) for number in range(3)]
    faster = [measure(f"cpu-fast-{number}", 0.101 + 0.001 * number) for number in range(2)]
    beaten, slow = measure("cpu-beaten", 0.105), measure("cpu-slow", 0.20)

    assert all(fresh_of(database, each) is not None for each in faster)
    assert fresh_of(database, beaten) is None
    entry = measure.pools.entry(beaten)
    assert (entry["rank"], entry["provisional_rank"]) == (None, 4)
    assert entry["unranked_reason"] == "the fresh runs of faster ones are under way"
    assert pool_of(client, database, beaten)["state"] == "waiting"
    assert measure.pools.entry(slow)["rank"] == 4

    def changes():
        with database.read() as session:
            return session.query(BoardChange).filter_by(submission_id=beaten).count()

    first, second = [fresh_of(database, each).id for each in faster]
    before = changes()
    measure.pools.train(faster[0], first, "cpu-fast-0", 0.101)
    assert (pool_of(client, database, beaten)["state"], changes()) == ("waiting", before)
    measure.pools.train(faster[1], second, "cpu-fast-1", 0.18)
    # The second was lucky: what waited behind it would be third, and is trained again.
    assert fresh_of(database, beaten).reason == "fresh runs: would enter the first three"
    measure.pools.train(beaten, fresh_of(database, beaten).id, "cpu-beaten", 0.105)
    ranked = [numbered[0], faster[0], beaten, *numbered[1:], faster[1], slow]
    assert [measure.pools.entry(each)["rank"] for each in ranked] == [1, 2, 3, 4, 5, 6, 7]


def test_fresh_runs_for_which_no_worker_comes_keep_no_row_waiting_after_a_week(
    measure, client, database
):
    for number in range(3):
        measure(f"cpu-{number}", 0.10 + 0.02 * number)
    faster = [measure(f"cpu-fast-{number}", 0.101 + 0.001 * number) for number in range(2)]
    beaten, soon = measure("cpu-beaten", 0.105), utc_now() + timedelta(days=7, hours=1)
    greet_as_servers(database, "walter-2", "cpu-fast-1")
    with database.write() as session:
        session.get_one(WorkerRow, "walter-2").last_seen_at = utc_now() + timedelta(days=6)
    assert (end_waited(database), end_waited(database, now=soon)) == (0, 1)

    states = [pool_of(client, database, each)["state"] for each in (*faster, beaten)]
    assert states == ["unconfirmed", "confirming", "confirming"]


def test_a_row_that_waited_is_numbered_once_faster_ones_are_confirmed(
    measure, client, database, olivia
):
    for number in range(3):
        measure(f"cpu-{number}", 0.10 + 0.02 * number)
    faster = [measure(f"cpu-fast-{number}", 0.101 + 0.001 * number) for number in range(2)]
    beaten, last = measure("cpu-beaten", 0.105), measure("cpu-last", 0.106)
    withdrawn = client.post(
        f"/api/v1/submissions/{last}/withdrawal", json={"reason": "mine"}, headers=olivia.headers
    )
    assert withdrawn.status_code == 200, withdrawn.text
    for number, each in enumerate(faster):
        pace = 0.101 + 0.001 * number
        measure.pools.train(each, fresh_of(database, each).id, f"cpu-fast-{number}", pace)

    assert measure.pools.entry(beaten)["rank"] == 4
    assert fresh_of(database, beaten) is None
    back = f"/api/v1/submissions/{last}/reinstatement"
    reinstated = client.post(back, json={"reason": "not mine"}, headers=olivia.headers)
    assert reinstated.status_code == 200, reinstated.text
    assert measure.pools.entry(last)["rank"] == 5
