"""Whatever dies, hangs or comes twice: every verification ends, and every result counts once.

The suite makes a short run of it with a trainer that needs no torch. `make chaos` inflicts 200
faults on at least 60 verifications by four workers: replays of the digits reference, packages in
their boxes, and two packages in turn with the reference. FINISHLINE_CHAOS_FAULTS, _VERIFICATIONS,
_PACKAGES (among these), _WORKERS, _REFERENCE and _SEED.
"""

import contextlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import httpx2
import pytest
from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError

from finishline.rules.benchmarks.benchmark import Benchmark, load_benchmark
from server.base.models import Attempt, ReplayEventRow, Submission, TrainingPackage, Verification
from tests.chaos.cluster import Cluster
from tests.chaos.faults import Havoc, draw_faults, inflict
from tests.chaos.packages import digits_package
from tests.chaos.stroll import WORKER, Part, define_stroll, stroll_submission
from tests.chaos.watch import Watch
from tests.support.processes import wait_for
from tests.support.trainings import trained_anew

FAULTS = int(os.environ.get("FINISHLINE_CHAOS_FAULTS", "10"))
VERIFICATIONS = int(os.environ.get("FINISHLINE_CHAOS_VERIFICATIONS", "4"))
PACKAGES = int(os.environ.get("FINISHLINE_CHAOS_PACKAGES", "0"))
WORKERS = int(os.environ.get("FINISHLINE_CHAOS_WORKERS", "2"))
REFERENCE = os.environ.get("FINISHLINE_CHAOS_REFERENCE", "stroll")
SEED = int(os.environ.get("FINISHLINE_CHAOS_SEED", "1"))
ENDED = ("done", "failed", "cancelled")
HEADS = {"challenger_faster", "not_proven", "continues"}  # Of head-to-heads.
ENDINGS = {"verified", "inconclusive", "failed", "cancelled", "done"} | HEADS
SUBMISSIONS = 5
OPEN_AT_ONCE = 4
# Each measured package is trained beside the reference, which takes longest of all.

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600)]


@dataclass(frozen=True)
class Exercise:
    """What is replayed: its definition, who trains it, and honest submissions by number."""

    benchmark: Benchmark
    worker_command: Sequence[str]
    submission: Callable[[int], list[Part]]

    @property
    def lease_seconds(self):
        """How long a worker may be silent."""
        assert self.benchmark.replay is not None
        return self.benchmark.replay.lease_seconds


@pytest.fixture
def exercise(tmp_path, benchmarks_dir):
    """The digits reference, or a trainer that needs no torch and has a short lease."""
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    text = (benchmarks_dir / "digits.toml").read_text()
    if REFERENCE == "digits" or PACKAGES:
        (folder / "digits.toml").write_text(text)
        shutil.copytree(benchmarks_dir / "digits", folder / "digits")
    if REFERENCE == "digits":
        trained = train_digits(tmp_path / "trained")
        return Exercise(
            load_benchmark(folder / "digits.toml"),
            [sys.executable, "-m", "worker"],
            lambda number: [
                (part, (name, trained_anew(content, number))) for part, (name, content) in trained
            ],
        )
    (folder / "stroll.toml").write_text(define_stroll(text))
    benchmark = load_benchmark(folder / "stroll.toml")
    return Exercise(
        benchmark,
        WORKER,
        lambda number: stroll_submission(benchmark, number),
    )


def train_digits(folder):
    """A submission of three real trainings."""
    command = [sys.executable, "-m", "finishline.cli.main", "run", "digits", "--runs", "3"]
    subprocess.run([*command, "--out", str(folder)], check=True, capture_output=True, timeout=120)
    claim = folder / "submission.json"
    logs = [("logs", (path.name, path.read_bytes())) for path in sorted(folder.glob("*.log"))]
    return [("submission", (claim.name, claim.read_bytes())), *logs]


@pytest.fixture
def cluster(tmp_path, exercise):
    """Everything running."""
    made = Cluster(
        tmp_path,
        benchmarks_dir=tmp_path / "benchmarks",
        worker_command=exercise.worker_command,
        hardware_class="cpu-chaos",
        workers=WORKERS,
        worker_environment={"FINISHLINE_ENTRIES": "auto" if PACKAGES else "off"},
    )
    try:
        made.start()
        yield made
    finally:
        made.stop()


ASKED_FOR = Verification.kind.in_(("replay", "entry"))


class Campaign:
    """Keeps a few verifications open, so that there is always something to hurt."""

    def __init__(self, cluster, exercise):
        self._cluster, self._exercise = cluster, exercise
        self.refused = Counter()
        self._submissions = [self._submit_one(number) for number in range(SUBMISSIONS)]

    def submit(self, key, number):
        """One try at a submission."""
        return self._cluster.post(
            "/submissions",
            by="alice",
            files=self._exercise.submission(number),
            headers={"Idempotency-Key": key},
        )

    def _submit_one(self, number):
        view = self._cluster.insist(lambda: self.submit(f"number-{number}", number))
        return str(view["id"])

    def states(self):
        """The state of every verification so far."""
        with self._cluster.database.read() as session:
            rows = session.execute(select(Verification.id, Verification.state)).all()
        return dict(rows)

    def asked(self):
        """How many verifications were asked for; others belong to one of them."""
        with self._cluster.database.read() as session:
            return len(session.scalars(select(Verification.id).where(ASKED_FOR)).all())

    def fill_up(self):
        """Ask for one more verification if fewer than a few are open."""
        with self._cluster.database.read() as session:
            is_open = Verification.state.not_in(ENDED)
            open_ones = set(
                session.scalars(select(Verification.submission_id).where(ASKED_FOR, is_open))
            )
            packages = len(session.scalars(select(TrainingPackage.submission_id)).all())
        if len(open_ones) >= OPEN_AT_ONCE:
            return
        if packages < PACKAGES and packages * VERIFICATIONS <= PACKAGES * self.asked():
            key = {"Idempotency-Key": f"package-{packages}"}
            self._post("/submissions", by="alice", files=digits_package(packages), headers=key)
            return
        free = [each for each in self._submissions if each not in open_ones]
        path = f"/submissions/{random.choice(free)}/verifications"
        self._post(path, by="olivia", json={"reason": "chaos"})

    def _post(self, path, **request):
        answer = self._cluster.post(path, **request)
        if answer.is_client_error and answer.status_code != 409:  # An answer may have been lost.
            self.refused[answer.text] += 1


def test_nothing_is_lost_doubled_or_stuck_whatever_fails(cluster, exercise, capsys):
    campaign = Campaign(cluster, exercise)
    numbers = iter(range(1000, 2000))
    havoc = Havoc(
        cluster=cluster,
        lease_seconds=exercise.lease_seconds,
        submit=lambda key: campaign.submit(key, next(numbers)).status_code,
        keep_busy=lambda: top_up(campaign),
        random=random.Random(SEED),
    )
    inflicted = Counter()
    started = time.monotonic()
    with Watch(cluster) as watch:
        for fault in draw_faults(FAULTS, seed=SEED):
            strike_at = time.monotonic() + havoc.random.uniform(0.0, 2.0)
            while time.monotonic() < strike_at:
                top_up(campaign)
                time.sleep(0.1)
            inflicted[fault] += inflict(havoc, fault)
        stuck = None
        try:
            wait_for(
                lambda: enough(campaign) and all_ended(campaign),
                seconds=60 * VERIFICATIONS,  # On a busy machine; each is watched standing still.
                what="all verifications to end",
                pause=0.5,
            )
            wait_for(lambda: not watch.left_trainings(), seconds=60, what="the last box to end")
        except AssertionError as error:
            stuck = error
    report = findings(cluster, havoc, watch, inflicted)
    report["refused"] = dict(campaign.refused)
    report["seconds"] = round(time.monotonic() - started, 1)
    with capsys.disabled():
        print(f"\nchaos: {json.dumps(report)}")
    if stuck is not None:
        raise stuck
    check(report, lease_seconds=exercise.lease_seconds)


def top_up(campaign):
    """Ask for a verification if it is time to, and the server is there to be asked."""
    with contextlib.suppress(httpx2.HTTPError, SQLAlchemyError):
        campaign.fill_up()


def enough(campaign):
    """Whether as many verifications as wanted were asked for; asks for one if not."""
    if campaign.asked() < VERIFICATIONS:
        top_up(campaign)
        return False
    return True


def all_ended(campaign):
    """Whether no verification is open."""
    return all(state in ENDED for state in campaign.states().values())


def findings(cluster, havoc, watch, inflicted):
    """What the database says at the end."""
    with cluster.database.read() as session:
        verifications = session.scalars(select(Verification)).all()
        attempts = session.scalars(select(Attempt)).unique().all()
        doubled = session.execute(
            select(ReplayEventRow.attempt_id)
            .group_by(ReplayEventRow.attempt_id)
            .having(func.count() != func.max(ReplayEventRow.sequence) + 1)
        ).all()
        outcomes = Counter(f"{v.kind} {v.outcome or v.state}" for v in verifications)
        results = Counter(a.verification_id for a in attempts if a.state == "done")
        with_report = {v.id for v in verifications if v.report is not None}
        # A cross-check gives no reasons of its own: it speaks in the verdict that it checks. A
        # cancelled one gives none.
        silent = [v for v in verifications if v.kind == "cross_check" or v.state == "cancelled"]
        untold = [v.id for v in verifications if not v.reasons and v not in silent]
        numbers = [attempt.number for attempt in attempts]
        stored = session.scalars(select(Submission.id)).all()
        told = Counter(
            f"{reason['code']}: {masked(reason['message'])}"
            for v in verifications
            for reason in v.reasons
            if reason["weight"] != "supports"
        )
        failures = Counter(
            f"{a.verification.kind} {a.failure['code']}: {masked(a.failure['message'])}"
            for a in attempts
            if a.failure
        )
    logs = "".join(worker.log() for worker in cluster.workers)
    return {
        "faults": dict(inflicted),
        "submissions": len(stored),
        "verifications": len(verifications),
        "outcomes": dict(outcomes),
        "attempts": len(attempts),
        "attempt_states": dict(Counter(a.state for a in attempts)),
        "failure_codes": dict(Counter(a.failure["code"] for a in attempts if a.failure)),
        "failures": dict(failures),
        "reasons": dict(told),
        "most_attempts": max(numbers),
        "results_counted_twice": sum(count > 1 for count in results.values()),
        "results_without_report": len(set(results) ^ with_report),
        "open_attempts": sum(a.state in ("queued", "running") for a in attempts),
        "ended_without_reason": len(untold),
        "events_missing_or_doubled": len(doubled),
        "late_posts_refused": len(re.findall(r"answered 409", logs)),
        "attempts_given_up": len(re.findall(r"was given up", logs)),
        "tracebacks": {
            service.name: count
            for service in cluster.services.values()
            if (count := service.log().count("Traceback (most recent call last)"))
        },
        "trainings_left": len(watch.left_trainings()),
        "copied_messages": havoc.copied_messages,
        "refused_while_full": havoc.refused_while_full,
        "paused_workers": havoc.paused,
        "longest_past_lease_seconds": round(watch.overdue_seconds, 1),
        "longest_idle_queue_seconds": round(watch.idle_seconds, 1),
    }


def masked(message):
    """A message without its numbers and names, so that equal ones are counted together."""
    return re.sub(r"[0-9a-f]{15}|\d+(\.\d+)?", "#", message)


def check(report, *, lease_seconds):
    """What holds however the dice fall."""
    assert sum(report["faults"].values()) >= 0.9 * FAULTS, "too few faults found something to hurt"
    assert report["refused"] == {}
    assert report["open_attempts"] == 0
    assert {each.split()[1] for each in report["outcomes"]} <= ENDINGS, report["outcomes"]
    for kind in ("replay", "entry") if PACKAGES else ("replay",):
        assert report["outcomes"].get(f"{kind} verified", 0) > 0, report["outcomes"]
    assert report["trainings_left"] == 0
    assert report["most_attempts"] <= 3
    assert report["results_counted_twice"] == 0
    assert report["results_without_report"] == 0
    assert report["ended_without_reason"] == 0
    assert report["events_missing_or_doubled"] == 0
    assert report["longest_past_lease_seconds"] <= 30
    assert report["longest_idle_queue_seconds"] <= lease_seconds + 30
    if report["paused_workers"]:  # The server may be down when the worker goes on.
        assert report["late_posts_refused"] + report["attempts_given_up"] > 0
