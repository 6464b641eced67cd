"""A lost attempt keeps the sealed runs it had finished; the first training of a seed counts."""

from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select, update

from finishline.rules.verification.messages import Failure, ReplayReport
from server.base.database import Database, utc_now
from server.base.models import Pool, PoolRun, Verification, WorkerRow
from server.verifications.overdue import expire_leases
from server.verifications.pools import take_out_runs
from server.verifications.record_candidates import ask_for_fresh_runs
from tests.support.streams import Streamed, stream_report, streamed

OWN = 2


class Attempts:
    """Attempts at a verification that are lost, and one that is reported."""

    def __init__(self, client: TestClient, replay: Any, database: Database, report: Any) -> None:
        self.client, self.replay, self.database = client, replay, database
        self.make_report = report

    def greet(self, person: Any, *, organisers: bool) -> None:
        """Let a person's worker say hello; an organisers' one was confirmed by the server."""
        name = f"{person.name}-1"
        system = vars(replace(self.make_report([]).system, worker=name))
        body = {"system": system, "state": "idle"}
        assert self.client.post("/api/v1/workers/hello", json=body, headers=person.headers)
        with self.database.write() as session:
            by = None if organisers else WorkerRow.user_id
            row = update(WorkerRow).where(WorkerRow.name == name)
            session.execute(row.values(confirmed_by=by))

    def made(self, pace: float, person: Any) -> ReplayReport:
        report: ReplayReport = self.make_report(self.replay.seeds(), seconds_per_epoch=pace)
        return replace(report, system=replace(report.system, worker=f"{person.name}-1"))

    def lose(
        self,
        person: Any,
        *,
        runs: int,
        pace: float,
        change: Callable[[Streamed], Streamed] = lambda events: events,
    ) -> None:
        """Finish so many runs and a part of the next one, then fall silent."""
        report = self.made(pace, person)
        last = report.runs[runs]
        part = replace(last, evaluations=last.evaluations[:3])
        grant = self.claim(person)
        events = change(streamed(replace(report, runs=[*report.runs[:runs], part])))
        stream_report(self.database, grant["attempt_id"], report, events=events)
        self.replay.change(grant["attempt_id"], lease_expires_at=utc_now() - timedelta(seconds=1))
        with self.database.write() as session:
            assert expire_leases(session) == 1

    def report(self, person: Any, *, pace: float, **changes: Any) -> None:
        """Train every run and report it."""
        report = replace(self.made(pace, person), **changes)
        sent = self.replay.report(self.claim(person), report)
        assert sent.status_code == 200, sent.text

    def fail(self, person: Any) -> None:
        """Report that the machinery failed before any run."""
        failure = Failure("infrastructure", "child_died", "the training died", "nothing to do")
        sent = self.replay.post_report(
            self.claim(person), replace(self.made(0.1, person), runs=[], failure=failure)
        )
        assert sent.status_code == 200, sent.text

    def claim(self, person: Any) -> Any:
        self.replay.worker = person
        claimed = self.replay.claim(worker=f"{person.name}-1")
        assert claimed.status_code == 200, claimed.text
        return claimed.json()

    def pooled(self) -> dict[int, float | None]:
        """The seconds of each run of the pool, by its place in the plan."""
        with self.database.read() as session:
            rows = session.scalars(select(PoolRun).order_by(PoolRun.index)).all()
            assert len({row.seed for row in rows}) == len(rows)
            return {row.index: row.seconds for row in rows}

    def seconds(self, pace: float, person: Any) -> dict[int, float | None]:
        return {run.index: run.tta_seconds for run in self.made(pace, person).runs[OWN:]}


@pytest.fixture
def attempts(client: TestClient, replay: Any, database: Database, make_report: Any) -> Attempts:
    return Attempts(client, replay, database, make_report)


@pytest.fixture
def ours(attempts: Attempts, walter: Any) -> Any:
    """The owner of a worker that counts as the organisers'."""
    attempts.greet(walter, organisers=True)
    return walter


@pytest.fixture
def theirs(attempts: Attempts, make_person: Callable[..., Any]) -> Any:
    """The owner of another worker."""
    wilma = make_person("wilma", "worker")
    attempts.greet(wilma, organisers=False)
    return wilma


def test_the_first_finished_training_of_a_seed_counts(attempts: Attempts, ours: Any) -> None:
    attempts.lose(ours, runs=OWN + 1, pace=0.2)
    assert attempts.pooled() == {}
    attempts.report(ours, pace=0.1)
    slow, fast = attempts.seconds(0.2, ours), attempts.seconds(0.1, ours)

    assert attempts.pooled() == pytest.approx(fast | {OWN: slow[OWN]})
    assert attempts.replay.view()["outcome"] == "verified"


def test_the_runs_count_too_where_no_attempt_is_left(
    attempts: Attempts, ours: Any, client: TestClient
) -> None:
    attempts.lose(ours, runs=OWN + 1, pace=0.2)
    attempts.lose(ours, runs=OWN + 2, pace=0.1)
    attempts.fail(ours)
    slow, fast = attempts.seconds(0.2, ours), attempts.seconds(0.1, ours)

    assert attempts.replay.view()["state"] == "failed"
    kept = {OWN: slow[OWN], OWN + 1: fast[OWN + 1]}
    assert attempts.pooled() == pytest.approx(kept)
    pool = client.get(f"/api/v1/pools/{attempts.replay.pool_id()}").json()
    assert (pool["state"], len(pool["runs"])) == ("collecting", 2)
    with attempts.database.read() as session:
        kept_in = session.scalars(select(Pool)).one()
        assert (kept_in.owners, kept_in.by_organisers) == (1, True)


@pytest.mark.parametrize(("pace", "believed"), [(0.11, True), (0.2, False)])
def test_anothers_worker_is_believed_where_the_report_agrees(
    pace: float, believed: bool, attempts: Attempts, ours: Any, theirs: Any
) -> None:
    attempts.lose(theirs, runs=OWN + 1, pace=pace)
    attempts.report(ours, pace=0.1)
    first = attempts.seconds(pace if believed else 0.1, theirs)[OWN]

    assert attempts.pooled() == pytest.approx(attempts.seconds(0.1, ours) | {OWN: first})


def test_through_a_lens_a_lost_run_is_seen_as_it_was_posted(
    attempts: Attempts, ours: Any, client: TestClient, olivia: Any
) -> None:
    def at_95(pace: float, index: int) -> float:
        run = attempts.made(pace, ours).runs[index]
        return next(item.seconds for item in run.evaluations if item.quality >= 95.0)

    attempts.lose(ours, runs=OWN + 2, pace=0.2)
    attempts.report(ours, pace=0.1)
    times = [at_95(0.2, OWN), at_95(0.2, OWN + 1), at_95(0.1, OWN + 2)]
    path = f"/api/v1/submissions/{attempts.replay.submission_id}/verifications"
    asked = client.post(path, json={"reason": "again"}, headers=olivia.headers).json()
    attempts.replay.verification_id = asked["id"]
    attempts.lose(ours, runs=OWN + 1, pace=0.3)
    attempts.fail(ours)
    attempts.fail(ours)
    times.append(at_95(0.3, OWN))
    (entry,) = client.get("/api/v1/leaderboards/digits", params={"target": 95.0}).json()["entries"]

    kept = sorted(times)[1:-1]
    assert len(attempts.replay.seeds()) - OWN == 3
    assert entry["measured_seconds"] == pytest.approx(sum(kept) / len(kept))


def test_anothers_worker_alone_adds_nothing(attempts: Attempts, theirs: Any) -> None:
    for _ in range(3):
        attempts.lose(theirs, runs=OWN + 1, pace=0.05)

    assert attempts.replay.view()["state"] == "failed"
    assert attempts.pooled() == {}


def at_once(events: Streamed) -> Streamed:
    return [(moment * 0.1, event) for moment, event in events]


def copied(events: Streamed) -> Streamed:
    """Every run with the qualities of the first."""
    first = [event["quality"] for _, event in events if event["run"] == 0 and "quality" in event]
    return [
        (moment, event | {"quality": first[int(event["epoch"]) - 1]} if "epoch" in event else event)
        for moment, event in events
    ]


def other_ledger(events: Streamed) -> Streamed:
    return [
        (moment, event | {"seconds": event["seconds"] / 2} if "epoch" in event else event)
        for moment, event in events
    ]


@pytest.mark.parametrize("lie", [at_once, copied, other_ledger])
def test_events_that_no_report_could_have_keep_nothing(
    lie: Callable[[Streamed], Streamed], attempts: Attempts, ours: Any
) -> None:
    attempts.lose(ours, runs=OWN + 1, pace=0.2, change=lie)
    attempts.report(ours, pace=0.1)

    assert attempts.pooled() == pytest.approx(attempts.seconds(0.1, ours))


def test_a_worker_whose_report_was_refused_keeps_nothing(attempts: Attempts, ours: Any) -> None:
    report = attempts.made(0.2, ours)
    grant = attempts.claim(ours)
    stream_report(attempts.database, grant["attempt_id"], report)
    lie = attempts.made(0.1, ours)
    assert attempts.replay.post_report(grant, lie).status_code == 422
    attempts.report(ours, pace=0.1)

    assert attempts.pooled() == pytest.approx(attempts.seconds(0.1, ours))


def test_the_runs_of_a_worker_that_is_contradicted_are_taken_out(
    attempts: Attempts, ours: Any, theirs: Any
) -> None:
    attempts.lose(ours, runs=OWN + 1, pace=0.2)
    attempts.lose(ours, runs=OWN + 1, pace=0.2)
    attempts.fail(ours)
    assert list(attempts.pooled()) == [OWN]
    with attempts.database.write() as session:
        take_out_runs(session, f"{theirs.name}-1")
    assert list(attempts.pooled()) == [OWN]
    with attempts.database.write() as session:
        take_out_runs(session, f"{ours.name}-1")

    assert attempts.pooled() == {}


def test_a_shared_processor_measures_nothing_in_a_lost_attempt_either(
    attempts: Attempts, ours: Any
) -> None:
    def ended(events: Streamed) -> Streamed:
        own = [(moment, event) for moment, event in events if event["run"] == OWN]
        moment, last = own[-1]
        end = {
            "run": OWN, "kind": "run_finished", "status": "reached", "seconds": last["seconds"],
            "ledger": last["ledger"], "cpu_seconds": last["seconds"] / 2,
        }  # fmt: skip
        place = events.index(own[-1]) + 1
        return [*events[:place], (moment, end), *events[place:]]

    attempts.lose(ours, runs=OWN + 1, pace=0.2, change=ended)
    attempts.report(ours, pace=0.1)

    assert attempts.pooled() == pytest.approx(attempts.seconds(0.1, ours))


def test_a_few_fresh_runs_confirm_nothing_and_are_not_drawn_again(
    attempts: Attempts, ours: Any, database: Database
) -> None:
    attempts.report(ours, pace=0.1)
    with database.write() as session:
        verification = session.get_one(Verification, attempts.replay.verification_id)
        pool_id, seeds = verification.pool_id, verification.seeds
        assert verification.submission is not None
        pool = session.get_one(Pool, pool_id)
        asked = ask_for_fresh_runs(
            session, pool, verification.submission, requested_by=verification.requested_by,
            reason="fresh runs: wanted",
        )  # fmt: skip
        attempts.replay.verification_id, fresh = asked.id, len(asked.seeds)
    attempts.lose(ours, runs=4, pace=0.08)
    attempts.fail(ours)
    attempts.fail(ours)

    view = attempts.client.get(f"/api/v1/pools/{pool_id}").json()
    assert view["state"] == "unconfirmed"
    assert all(run["counted"] and not run["fresh"] for run in view["runs"])
    assert len(view["runs"]) == len(seeds) - OWN + 4
    with database.write() as session:
        again = ask_for_fresh_runs(
            session, session.get_one(Pool, pool_id),
            session.get_one(Verification, attempts.replay.verification_id).submission,
            requested_by=1, reason="fresh runs: asked again",
        )  # fmt: skip
        attempts.replay.verification_id = again.id
    attempts.report(ours, pace=0.1)
    view = attempts.client.get(f"/api/v1/pools/{pool_id}").json()

    assert view["state"] == "measured"
    assert sum(run["counted"] for run in view["runs"]) == 4 + fresh
    assert all(run["counted"] == run["fresh"] for run in view["runs"])


def test_what_a_worker_posts_of_a_runs_end_is_stored(
    attempts: Attempts, ours: Any, client: TestClient
) -> None:
    grant = attempts.claim(ours)
    failure = asdict(Failure("time_limit", "run_time_limit", "it took too long", "ask"))
    end = {"sequence": 0, "run": 0, "kind": "run_finished", "status": "failed",
           "cpu_seconds": 1.5, "failure": failure}  # fmt: skip

    assert attempts.replay.post(grant, [end]).json() == {"proceed": True, "reason": None}
