"""Random events at verifications: each has one end, one verdict at most, and every run once."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import count

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import select, update

from finishline.rules.verification.messages import Failure
from server.base.database import utc_now
from server.base.models import Attempt, Pool, PoolRun, Submission, Verification, WorkerRow
from server.base.standing import SHOWN
from server.base.visibility import ORGANISER
from server.verifications import jobs
from server.verifications.queue import take_due
from server.verifications.sweep import (
    end_overdue,
    end_unmade_cross_checks,
    end_waited,
    expire_leases,
)
from tests.support.both_databases import database_url  # noqa: F401
from tests.support.build import Replay
from tests.support.workers import say_hello

OWNERS = ("anna", "bert", "carl")
SLOW = {"seconds_per_epoch": 0.3}  # Another owner's worker contradicts it.
DIED = Failure("infrastructure", "child_died", "it died", "nothing to do")
WRONG = Failure("rules", "data_set_differs", "another data set", "install the right one")
HOUR, WEEK = timedelta(hours=1), timedelta(days=8)


class Scene:
    def __init__(self, client, database, people, submission_id, make_report):
        self.client, self.database, self.people = client, database, people
        self.submission_id, self.make_report = submission_id, make_report
        self.grants = {}
        self.seen = {}

    def post(self, path, body=None, *, method="POST"):
        """The status of an organiser's request. The server may refuse it."""
        headers, address = self.people["olivia"].headers, f"/api/v1{path}"
        return self.client.request(method, address, json=body or {}, headers=headers).status_code

    def request(self, _):
        self.post(f"/submissions/{self.submission_id}/verifications", {"reason": "again"})

    def cancel(self, number):
        found = sorted(self.read()[0])
        self.post(f"/verifications/{found[number % len(found)]}/cancellation")

    def withdraw(self, _):
        self.post(f"/submissions/{self.submission_id}/withdrawal", {"reason": "a mistake"})

    def reinstate(self, _):
        self.post(f"/submissions/{self.submission_id}/reinstatement", {"reason": "none"})

    def lease(self, _):
        """Let the server draw a worker for what is due, and each of them take it."""
        with self.database.write() as session:
            session.execute(update(WorkerRow).values(state="idle", last_seen_at=utc_now()))
            drawn = take_due(session)
        for attempt_id, worker in ((each.attempt_id, each.worker) for each in drawn):
            person = self.people[worker.split("-")[0]]
            replay = Replay(self.client, self.database, person, self.submission_id, "")
            answer = replay.claim(attempt_id, worker=worker)
            assert answer.status_code == 200, answer.text
            self.grants[attempt_id] = answer.json(), worker

    def report(self, number, *, failure=None, **how):
        """Report one of the attempts that were leased: it may have ended long ago."""
        if not self.grants:
            return
        attempt_id = sorted(self.grants)[number % len(self.grants)]
        grant, worker = self.grants[attempt_id]
        with self.database.read(ORGANISER) as session:
            seeds = session.get_one(Attempt, attempt_id).verification.seeds
        report = self.make_report([] if failure else seeds, **how)
        report = replace(report, failure=failure, system=replace(report.system, worker=worker))
        replay = Replay(self.client, self.database, self.people["anna"], self.submission_id, "")
        assert replay.report(grant, report).status_code in (200, 409)

    def lie(self, number):
        """A report that no event of its run bears out."""
        self.report(number, seconds_per_epoch=1e-9)

    def lose(self, _):
        expire_leases(self.database, now=utc_now() + HOUR)

    def hang(self, _):
        end_overdue(self.database, now=utc_now() + WEEK)

    def wait(self, _):
        end_unmade_cross_checks(self.database, now=utc_now() + HOUR)
        end_waited(self.database, now=utc_now() + WEEK)

    def resume(self, _):
        for owner in OWNERS:
            self.post(f"/workers/{owner}-1", {"paused": False}, method="PATCH")

    def read(self):
        with self.database.read(ORGANISER) as session:
            about = Verification.submission_id == self.submission_id
            found = session.scalars(select(Verification).where(about).options(*SHOWN)).all()
            return (
                {each.id: (each, list(each.attempts)) for each in found},
                session.execute(
                    select(PoolRun.verification_id, PoolRun.index, PoolRun.attempt_id, Pool.id)
                    .join(Pool)
                    .join(Verification, Verification.id == PoolRun.verification_id)
                    .where(about)
                ).all(),
                session.get_one(Submission, self.submission_id).status,
            )

    def check(self):
        found, counted, status = self.read()
        for verification, attempts in found.values():
            table = jobs.OTHERS if verification.checks_id else jobs.EVIDENCE
            self._moved(verification, table)
            for attempt in attempts:
                self._moved(attempt, jobs.ATTEMPTS)
            latest = attempts[-1].state
            assert sum(each.state in ("queued", "running") for each in attempts) <= 1
            if verification.state in ("queued", "running"):
                assert latest == verification.state
            elif verification.state in ("checking", "done"):
                assert latest == "done"
            else:
                assert latest not in ("queued", "running")
            is_open = verification.state in ("queued", "running", "checking")
            assert is_open == (verification.ended_at is None)
            assert not (is_open and verification.outcome)
            if verification.state == "checking":
                checks = [each for each, _ in found.values() if each.checks_id == verification.id]
                assert any(each.state in ("queued", "running") for each in checks)
            self._counted(
                verification, attempts, [run for run in counted if run[0] == verification.id]
            )
        assert status == self._status([each for each, _ in found.values()])

    def _moved(self, row, table):
        """A state follows the one before by one row of its table, and a verdict stays."""
        before, outcome = self.seen.get(row.id, (None, None))
        known = {(source, after) for (source, _), after in table.items()}
        assert before == row.state or (before, row.state) in known, (before, row.state)
        now = getattr(row, "outcome", None)
        assert outcome in (None, now)
        self.seen[row.id] = row.state, now

    def _counted(self, verification, attempts, counted):
        """A verdict that a second owner bears out counts each run once, of the last attempt."""
        assert {attempt_id for _, _, attempt_id, _ in counted} <= {attempts[-1].id}
        assert max(Counter(index for _, index, _, _ in counted).values(), default=1) == 1
        if verification.state != "done":
            assert counted == []
        elif verification.checks_id is None and verification.decision != "keep":
            codes = {each["code"] for each in verification.reasons}
            alone = {"no_second_worker", "cross_check_differs"} & codes
            assert len(counted) == (0 if alone else verification.runs), codes

    def _status(self, verifications):
        own = [each for each in verifications if each.checks_id is None]
        published = [each for each in own if each.decision == "publish"]
        assert len(published) <= 1
        if published:
            return published[0].outcome
        return "verifying" if any(each.ended_at is None for each in own) else "claimed"

    def finish(self):
        for _ in range(12):
            found, _, _ = self.read()
            if all(verification.ended_at for verification, _ in found.values()):
                return
            for event in (self.resume, self.lease, self.wait):
                event(0)
                self.check()
            for number in range(len(self.grants)):
                self.report(number)
                self.check()
        pytest.fail(f"left open: {[one for one, _ in found.values() if not one.ended_at]}")


PLAIN = "request lease report lie lose hang wait cancel withdraw reinstate resume"
EVENTS = {name: getattr(Scene, name) for name in PLAIN.split()} | {
    "report slowly": partial(Scene.report, **SLOW),
    "report a death": partial(Scene.report, failure=DIED),
    "report a wrong set": partial(Scene.report, failure=WRONG),
}
# A worker that takes and reports its work is what happens most.
NAMES = [*EVENTS, *["lease", "report"] * 3]
HAPPENING = st.tuples(st.sampled_from(NAMES), st.integers(0, 3))


@pytest.fixture
def begin(client, database, make_person, olivia, digits_submission, submit, make_report):
    sizes = count(65)
    people = {name: make_person(name, "worker") for name in OWNERS} | {"olivia": olivia}
    for name in OWNERS:
        say_hello(client, people[name], worker=f"{name}-1")
    with database.write() as session:
        session.execute(
            update(WorkerRow).values(confirmed_at=utc_now(), confirmed_by=WorkerRow.user_id)
        )

    def make():
        sent = submit(digits_submission, batch_size=next(sizes)).json()["id"]
        scene = Scene(client, database, people, sent, make_report)
        scene.resume(0)
        scene.request(0)
        return scene

    return make


def test_whatever_happens_each_verification_has_one_end_and_every_run_counts_once(begin, database):
    @settings(
        max_examples=8 if database.is_sqlite else 150,
        derandomize=database.is_sqlite,
        phases=set(Phase) - {Phase.explain},
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(HAPPENING, min_size=10, max_size=20))
    def play(happenings):
        scene = begin()
        scene.check()
        for name, number in happenings:
            EVENTS[name](scene, number)
            scene.check()
        scene.finish()

    play()
