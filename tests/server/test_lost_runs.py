"""Runs of lost attempts and of other kinds, and verdicts on figures that changed since."""

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import select, update

from server.base.database import utc_now
from server.base.models import PoolRun, RunRow, WorkerRow
from server.submissions.rescoring import rescore_submissions
from server.verifications.pools import take_out_runs
from server.verifications.sweep import expire_leases
from tests.support.run_logs import curve_of
from tests.support.services import services_of
from tests.support.streams import stream_report, streamed
from tests.support.workers import say_hello


class Attempts:
    """Attempts at a verification that are lost, and one that is reported."""

    def __init__(self, client, replay, database, report):
        self.client, self.replay, self.database = client, replay, database
        self.make_report = report

    def greet(self, person, *, organisers):
        """Let a person's worker say hello; an organisers' one was confirmed by the server."""
        name = f"{person.name}-1"
        assert say_hello(self.client, person, worker=name).is_success
        with self.database.write() as session:
            by = None if organisers else WorkerRow.user_id
            row = update(WorkerRow).where(WorkerRow.name == name)
            session.execute(row.values(confirmed_by=by))

    def made(self, pace, person):
        report = self.make_report(self.replay.seeds(), seconds_per_epoch=pace)
        return replace(report, system=replace(report.system, worker=f"{person.name}-1"))

    def lose(self, person, *, runs, pace):
        """Finish so many runs and a part of the next one, then fall silent."""
        report = self.made(pace, person)
        last = report.runs[runs]
        part = replace(last, evaluations=last.evaluations[:3])
        grant = self.claim(person)
        events = streamed(replace(report, runs=[*report.runs[:runs], part]))
        stream_report(self.database, grant["attempt_id"], report, events=events)
        self.replay.change(grant["attempt_id"], lease_expires_at=utc_now() - timedelta(seconds=1))
        assert expire_leases(self.database) == 1

    def report(self, person, *, pace, **changes):
        """Train every run and report it."""
        report = replace(self.made(pace, person), **changes)
        sent = self.replay.report(self.claim(person), report)
        assert sent.status_code == 200, sent.text

    def claim(self, person):
        self.replay.worker = person
        claimed = self.replay.claim(worker=f"{person.name}-1")
        assert claimed.status_code == 200, claimed.text
        return claimed.json()

    def pooled(self):
        """The seconds of each run of the pool, by its place in the plan."""
        with self.database.read() as session:
            rows = session.scalars(select(PoolRun).order_by(PoolRun.index)).all()
            assert len({row.seed for row in rows}) == len(rows)
            return {row.index: row.seconds for row in rows}

    def seconds(self, pace, person):
        return {run.index: run.tta_seconds for run in self.made(pace, person).runs}


@pytest.fixture
def attempts(client, replay, database, make_report):
    return Attempts(client, replay, database, make_report)


@pytest.fixture
def ours(attempts, walter):
    """The owner of a worker that counts as the organisers'."""
    attempts.greet(walter, organisers=True)
    return walter


@pytest.fixture
def theirs(attempts, make_person):
    """The owner of another worker."""
    wilma = make_person("wilma", "worker")
    attempts.greet(wilma, organisers=False)
    return wilma


def test_runs_of_lost_attempts_count_nowhere(attempts, ours):
    attempts.lose(ours, runs=1, pace=0.2)
    attempts.report(ours, pace=0.1)

    assert attempts.pooled() == pytest.approx(attempts.seconds(0.1, ours))


def test_no_run_counts_where_every_attempt_is_lost(attempts, ours):
    for _ in range(3):
        attempts.lose(ours, runs=2, pace=0.05)

    assert attempts.replay.view()["state"] == "failed"
    assert attempts.pooled() == {}


def test_the_runs_of_a_worker_that_is_contradicted_are_taken_out(attempts, ours, theirs):
    attempts.report(ours, pace=0.1)
    trained = attempts.pooled()
    with attempts.database.write() as session:
        take_out_runs(session, f"{theirs.name}-1")
    assert attempts.pooled() == trained
    with attempts.database.write() as session:
        take_out_runs(session, f"{ours.name}-1")

    assert attempts.pooled() == {}


def test_a_verdict_tells_when_scoring_again_changes_what_it_stood_on(
    replay, client, database, make_report
):
    services = services_of(client)
    # As scored by a rule that is corrected later: the first run took a second longer.
    with database.write() as session:
        run = session.query(RunRow).filter_by(submission_id=replay.submission_id, index=0).one()
        right, run.tta_seconds = run.tta_seconds, run.tta_seconds + 1
    replay.report(replay.claim().json(), make_report(replay.seeds()))
    address = f"/submissions/{replay.submission_id}"
    judged = client.get(f"/api/v1{address}").json()
    assert judged["judged_on"] is None
    assert "Judged on figures" not in client.get(address).text

    assert len(rescore_submissions(services, progress=print).changed) == 1
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
    last, told, digits_submission, make_log, make_report, request, client
):
    """A curve crosses 97.5 % before its evaluation at 98.1 %, and at the one that is exactly it."""
    curve = [14.8, 45.8, 73.0, 85.5, 90.8, 95.6, 97.4, last]
    for seed, name in enumerate(digits_submission.logs):
        digits_submission.logs[name] = make_log(seed, name=name, qualities=curve_of(seed, curve))
    replay = request.getfixturevalue("replay")
    page = f"/verifications/{replay.verification_id}"
    assert "Here epochs end" not in client.get(page).text

    replay.report(replay.claim().json(), make_report(replay.seeds(), qualities=curve))

    epochs = [reason["numbers"] for reason in replay.view()["reasons"] if reason["numbers"]]
    assert any("claimed_mean_epochs" in numbers for numbers in epochs)
    assert ("Here epochs end" in client.get(page).text) == told
