"""A verdict waits until another owner's worker has trained one of its runs again."""

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import select, update

from finishline.rules.measurements import PrecisionAudit
from finishline.rules.proof.check import check_proof
from server.base.database import utc_now
from server.base.models import (
    Attempt,
    AuditRecord,
    Organisation,
    Pool,
    Submission,
    User,
    Verification,
    WorkerRow,
)
from server.verifications.queue import take_due
from server.verifications.sweep import UNMADE, end_unmade_cross_checks
from tests.server.test_entries import entries  # noqa: F401
from tests.support.proofs import predicate_in
from tests.support.workers import say_hello

SLOW = {"seconds_per_epoch": 0.3}
BUSY = SLOW | {"cpu_share": 0.5}


@pytest.fixture
def workers(client, database, make_person, replay):
    def greet(*names):
        people = {}
        for name in names:
            person = people[name] = make_person(name, "worker")
            say_hello(client, person, worker=f"{name}-1")
        with database.write() as session:
            session.execute(
                update(WorkerRow).values(confirmed_at=utc_now(), confirmed_by=WorkerRow.user_id)
            )
        replay.people = people
        return people

    return greet


@pytest.fixture
def train(replay, database, make_report):
    def make(verification_id, person, precision=None, **changes):
        with database.write() as session:
            row = session.get_one(Verification, verification_id)
            seeds, attempt = list(row.seeds), row.attempts[-1]
            attempt.sent_to = f"{person.name}-1"
            attempt_id = attempt.id
        replay.worker = person
        grant = replay.claim(attempt_id, worker=f"{person.name}-1").json()
        report = make_report(seeds, **changes)
        system = replace(report.system, worker=f"{person.name}-1")
        answer = replay.report(grant, replace(report, system=system, precision=precision))
        assert answer.status_code == 200, answer.text
        return dict(replay.view())

    return make


@pytest.fixture
def waiting(replay, workers, train, database):
    """The fixture `replay`, made by anna's worker, whose `check` waits for bert's."""
    train(replay.verification_id, workers("anna", "bert")["anna"])
    (replay.check,) = checks_of(database, replay.verification_id)
    return replay


def checks_of(database, verification_id):
    with database.read() as session:
        query = select(Verification.id).where(Verification.checks_id == verification_id)
        return list(session.scalars(query.order_by(Verification.created_at)))


def held(database):
    with database.read() as session:
        return list(session.scalars(select(WorkerRow.name).where(WorkerRow.held.is_not(None))))


def pool_of(database):
    with database.read() as session:
        return session.scalars(select(Pool)).one()


@pytest.mark.parametrize("others", [(), ("bert",)], ids=["nobody else", "a member of one's own"])
def test_without_a_second_owner_the_verdict_is_left_open(others, replay, workers, train, database):
    people = workers("anna", *others)
    if others:
        in_one_organisation(database, "anna", *others)
    view = train(replay.verification_id, people["anna"])

    assert (view["state"], view["outcome"]) == ("done", "inconclusive")
    assert [r["code"] for r in view["reasons"] if r["weight"] == "leaves_open"] == [
        "no_second_worker"
    ]


def test_one_workers_word_rejects_no_rival_and_its_proof_passes(replay, workers, train):
    view = train(replay.verification_id, workers("mallory")["mallory"], qualities=[10.0] * 8)

    assert view["outcome"] == "inconclusive"
    assert any(reason["weight"] == "rejects" for reason in view["reasons"])
    assert replay.status() == "inconclusive"
    path = f"/api/v1/verifications/{replay.verification_id}/proof?format=dsse"
    checks = check_proof(predicate_in(replay.client.get(path)), None)
    results = {check.name: check.result for check in checks}
    assert (results["posted"], results["curves"], results["verdict"]) == ("pass",) * 3


def test_a_verdict_waits_for_the_second_owner(waiting, train, database):
    view = waiting.view()
    assert (view["state"], view["outcome"], view["report"]) == ("checking", None, None)
    assert waiting.status() == "verifying"
    with database.write() as session:  # The server draws bert's worker, never anna's.
        (sending,) = take_due(session)
        row = session.get_one(Verification, waiting.check)
        assert row.attempts[-1].sent_to == "bert-1"
        assert sending.worker == "bert-1"
        assert row.seeds[0] in session.get_one(Verification, waiting.verification_id).seeds
    view = train(waiting.check, waiting.people["bert"])

    assert (view["state"], view["outcome"]) == ("done", "verified")
    assert waiting.status() == "verified"


def test_a_worker_of_the_server_itself_is_believed_at_once(replay, workers, train, database):
    people = workers("anna", "bert")
    with database.write() as session:
        session.get_one(WorkerRow, "anna-1").confirmed_by = None
    view = train(replay.verification_id, people["anna"])

    assert view["outcome"] == "verified"


def test_two_that_differ_without_a_third_leave_it_open(waiting, train, database):
    view = train(waiting.check, waiting.people["bert"], **SLOW)

    assert view["outcome"] == "inconclusive"
    assert view["reasons"][-1]["code"] == "cross_check_differs"
    assert held(database) == []


@pytest.mark.parametrize(
    ("first", "second", "outcome"),
    [(BUSY, {}, "verified"), (BUSY, SLOW, "verified"), ({}, BUSY, "inconclusive")],
)
def test_busy_workers_decide_nothing(replay, workers, train, database, first, second, outcome):
    people = workers("anna", "bert", "carl")
    for _ in range(2 if first else 1):  # The first report of a busy worker doesn't count.
        train(replay.verification_id, people["anna"], **first)
    (check,) = checks_of(database, replay.verification_id)
    view = train(check, people["bert"], **second)

    assert view["outcome"] == outcome
    assert checks_of(database, replay.verification_id) == [check]


def test_a_third_owner_decides_and_the_odd_checker_is_out(replay, workers, train, database):
    people = workers("anna", "bert", "carl")
    train(replay.verification_id, people["anna"])
    train(checks_of(database, replay.verification_id)[0], people["bert"], **SLOW)
    assert replay.view()["outcome"] is None
    view = train(checks_of(database, replay.verification_id)[1], people["carl"])

    assert view["outcome"] == "verified"
    assert held(database) == ["bert-1"]


def test_contradicted_workers_verdicts_are_opened_again(replay, workers, train, database, olivia):
    people = workers("anna", "bert", "carl")
    train(replay.verification_id, people["anna"])
    train(checks_of(database, replay.verification_id)[0], people["bert"])
    assert replay.status() == "verified"
    assert pool_of(database).measured_seconds is not None
    first = replay.ask_again(olivia)
    again = replay.verification_id
    train(again, people["anna"])
    train(checks_of(database, again)[0], people["bert"], **SLOW)
    view = train(checks_of(database, again)[1], people["carl"], **SLOW)

    assert (view["state"], view["outcome"]) == ("queued", None)
    assert [attempt["state"] for attempt in view["attempts"]] == ["lost", "queued"]
    assert held(database) == ["anna-1"]
    assert replay.status() == "verifying"
    pool = pool_of(database)  # None of its runs ranks anybody any more.
    assert (pool.runs, pool.measured_seconds) == (0, None)
    with database.read() as session:
        noted = session.scalars(select(AuditRecord).where(AuditRecord.actor == "cross-check")).one()
        assert (noted.after["held"], noted.after["opened_again"]) == ("paused", [first])
        assert session.scalars(select(Attempt).where(Attempt.worker == "anna-1")).first()


def test_ended_rerun_opens_no_other_nonce(replay, workers, train, database, client):
    """Its seeds are trained again if a third owner contradicts the report too."""
    people = workers("anna", "bert", "carl")
    train(replay.verification_id, people["anna"])
    (check,) = checks_of(database, replay.verification_id)
    assert train(check, people["bert"], **SLOW)["nonce"] is None
    with database.read() as session:
        nonce = session.get_one(Verification, replay.verification_id).nonce
    assert client.get(f"/api/v1/verifications/{check}").json()["nonce"] not in (None, nonce)


def test_code_is_measured_again(entries, alice, replay, workers, train, database, client):
    code = entries.hand_in(alice).json()["id"]
    entries.measure(code)
    first = entries.measurement(code)
    people = workers("bert", "carl") | {"walter": replay.worker}
    train(replay.verification_id, people["walter"])
    for name in ("bert", "carl"):
        train(checks_of(database, replay.verification_id)[-1], people[name], **SLOW)
    assert held(database) == ["walter-1"]

    shown = client.get(f"/api/v1/submissions/{code}").json()
    assert (shown["status"], shown["evidence"]) == ("verifying", "claimed")
    done, again = shown["verifications"]
    assert (done["id"], done["state"], again["state"]) == (first, "done", "queued")


def test_checks_of_a_refused_report_do_not_count(replay, workers, train, database):
    people = workers("mallory", "bert", "carl", "dora")
    train(replay.verification_id, people["mallory"], qualities=[10.0] * 8)
    first, *others = checks_of(database, replay.verification_id)
    assert others
    train(first, people["bert"])
    for check in set(checks_of(database, replay.verification_id)) - {first, *others}:
        train(check, people["carl"])
    assert held(database) == ["mallory-1"]

    for check in others:
        assert train(check, people["bert"])["state"] == "queued"
    before = set(checks_of(database, replay.verification_id))
    train(replay.verification_id, people["dora"])
    (last,) = set(checks_of(database, replay.verification_id)) - before
    view = train(last, people["carl"])

    assert view["outcome"] == "verified"
    assert held(database) == ["mallory-1"]


def test_a_check_that_nobody_can_make_leaves_the_verdict_open_after_ten_minutes(waiting, database):
    later = utc_now() + UNMADE + timedelta(seconds=1)
    assert end_unmade_cross_checks(database, now=later) == 0  # bert's worker is there.
    with database.write() as session:
        session.get_one(WorkerRow, "bert-1").last_seen_at = utc_now() - timedelta(hours=1)
    assert end_unmade_cross_checks(database) == 0
    assert end_unmade_cross_checks(database, now=later) == 1
    view = waiting.view()

    assert (view["state"], view["outcome"]) == ("done", "inconclusive")
    assert view["reasons"][-1]["code"] == "no_second_worker"


def test_replay_that_waits_for_its_check_counts_after_it(waiting, train, database, olivia):
    path = f"/api/v1/submissions/{waiting.submission_id}/withdrawal"
    assert olivia.post(path, {"reason": "x"}).status_code == 200
    assert waiting.view()["state"] == "checking"
    view = train(waiting.check, waiting.people["bert"])

    assert (view["state"], view["outcome"]) == ("done", "verified")
    assert pool_of(database).runs == view["runs_planned"]


def test_a_verdict_that_waits_is_cancelled_with_its_check(waiting, client, olivia):
    assert waiting.cancel(olivia).status_code == 200
    check = client.get(f"/api/v1/verifications/{waiting.check}").json()
    assert [waiting.view()["state"], check["state"]] == ["cancelled", "cancelled"]
    assert waiting.status() == "claimed"


def test_a_check_that_an_organiser_cancels_leaves_the_verdict_open(waiting, olivia):
    path = f"/api/v1/verifications/{waiting.check}/cancellation"
    assert olivia.post(path).status_code == 200
    view = waiting.view()

    assert (view["state"], view["outcome"]) == ("done", "inconclusive")


@pytest.fixture
def tell(replay, workers, make_report):
    anna = workers("anna", "bert")["anna"]

    def report(runs, **changes):
        replay.worker = anna
        grant = replay.claim(worker="anna-1").json()
        honest = make_report(replay.seeds())
        system = replace(honest.system, worker="anna-1")
        told = replace(honest, runs=runs(honest.runs), system=system, **changes)
        answer = replay.report(grant, told)
        assert answer.status_code == 200, answer.text
        return dict(replay.view())

    return report


def failed(run, evaluations):
    kept = run.evaluations[:evaluations]
    ledger = kept[-1].ledger if kept else {}
    return replace(run, status="failed", tta_seconds=None, evaluations=kept, ledger=ledger)


@pytest.mark.parametrize("evaluations", [0, 4])
def test_runs_that_one_worker_calls_failed(evaluations, replay, tell, train, database):
    view = tell(lambda runs: [failed(run, evaluations) for run in runs])
    with database.read() as session:
        checks = checks_of(database, replay.verification_id)
        checked = [session.get_one(Verification, each).seeds[0] for each in checks]

    assert view["outcome"] is None
    assert checked == replay.seeds()
    for _ in checked:  # One owner may make all of them: each is of another run.
        with database.write() as session:
            (sending,) = take_due(session)
        assert sending.worker == "bert-1"
        with database.read() as session:
            check = session.get_one(Attempt, sending.attempt_id).verification_id
        train(check, replay.people["bert"])
    assert replay.view()["outcome"] == "inconclusive"


def test_worker_that_changes_its_class_is_checked(replay, workers, client, make_report, database):
    anna = replay.worker = workers("anna", "bert")["anna"]
    grant = replay.claim(worker="anna-1").json()
    report = make_report(replay.seeds())
    report = replace(report, system=replace(report.system, worker="anna-1"))
    for name in ("cpu-other", "cpu-test"):
        say_hello(client, anna, worker="anna-1", hardware_class=name, state="busy")
    replay.report(grant, report)

    assert replay.view()["outcome"] is None
    assert len(checks_of(database, replay.verification_id)) == 1


def test_precision_that_one_worker_found_rejects_nobody(replay, tell, train, database):
    narrow = PrecisionAudit(lowest="fp16", observed={"fp16": 1}, autocast=False)
    tell(lambda runs: runs, precision=narrow)
    for check in checks_of(database, replay.verification_id):
        wide = replace(narrow, lowest="fp32", observed={"fp32": 1})
        train(check, replay.people["bert"], precision=wide)

    assert replay.view()["outcome"] == "inconclusive"


def in_one_organisation(database, *names):
    with database.write() as session:
        acme = Organisation(name="Acme", created_at=utc_now())
        session.add(acme)
        session.flush()
        members = update(User).where(User.name.in_(names))
        session.execute(members.values(organisation_id=acme.id))


@pytest.mark.parametrize("organisation", [False, True])
def test_own_worker_confirms_no_claim(organisation, replay, workers, train, database, alice):
    people = workers("anna", "bert")
    if organisation:
        in_one_organisation(database, "alice", "bert")
    else:
        with database.write() as session:
            claimant = session.scalars(select(User.id).where(User.name == alice.name)).one()
            session.get_one(WorkerRow, "bert-1").user_id = claimant
    view = train(replay.verification_id, people["anna"])

    assert view["outcome"] == "inconclusive"
    assert checks_of(database, replay.verification_id) == []


def test_rivals_worker_checks_where_nobody_else_can(replay, workers, train, database):
    people = workers("anna", "bert", "carl")
    with database.write() as session:
        claim = session.get_one(Verification, replay.verification_id).submission
        rival = session.scalars(select(User.id).where(User.name == "bert")).one()
        columns = {each.key: getattr(claim, each.key) for each in Submission.__mapper__.columns}
        session.add(Submission(**columns | {"id": "another0claim", "user_id": rival}))
    train(replay.verification_id, people["anna"])
    with database.write() as session:
        session.get_one(WorkerRow, "carl-1").state = "busy"
    with database.write() as session:
        assert take_due(session) == []
        session.get_one(WorkerRow, "carl-1").state = "stopping"
    with database.write() as session:
        (sending,) = take_due(session)

    assert sending.worker == "bert-1"
