"""A replay that outlasts the broker's patience is trained once all the same."""

import re

import pytest
from sqlalchemy import select

from finishline.rules.benchmarks.benchmark import load_benchmark
from server.base.models import Attempt
from tests.chaos.cluster import Cluster
from tests.chaos.stroll import WORKER, define_stroll, stroll_submission
from tests.support.processes import wait_for

# After so long Redis gives a message that was not acknowledged to the next worker.
VISIBILITY_SECONDS = 1

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(240)]


@pytest.fixture
def march(tmp_path, benchmarks_dir):
    """A benchmark whose trainings last several times as long as the broker waits."""
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    text = define_stroll((benchmarks_dir / "digits.toml").read_text(), trainer="march")
    (folder / "march.toml").write_text(text)
    return load_benchmark(folder / "march.toml")


@pytest.fixture
def cluster(tmp_path, march):
    made = Cluster(
        tmp_path,
        benchmarks_dir=tmp_path / "benchmarks",
        worker_command=WORKER,
        hardware_class="cpu-chaos",
        worker_environment={"TEST_VISIBILITY_SECONDS": str(VISIBILITY_SECONDS)},
    )
    try:
        made.start()
        yield made
    finally:
        made.stop()


def test_a_replay_longer_than_the_visibility_timeout_runs_once(cluster, march):
    submission = cluster.post("/submissions", by="alice", files=stroll_submission(march, 1)).json()
    asked = cluster.post(
        f"/submissions/{submission['id']}/verifications", by="olivia", json={"reason": "long"}
    )
    verification = asked.json()["id"]
    wait_for(
        lambda: cluster.get(f"/verifications/{verification}")["state"] == "done",
        seconds=120,
        what="the long replay to end",
        pause=0.5,
    )

    with cluster.database.read() as session:
        # A cross-check of it, which may be drawn, is another verification.
        of_it = select(Attempt).where(Attempt.verification_id == verification)
        attempts = session.scalars(of_it).unique().all()
    assert len(attempts) == 1, [each.failure for each in attempts]
    attempt = attempts[0]
    assert attempt.started_at is not None
    assert attempt.ended_at is not None
    lasted = (attempt.ended_at - attempt.started_at).total_seconds()
    assert lasted > 3 * VISIBILITY_SECONDS
    logs = "".join(worker.log() for worker in cluster.workers)
    assert f"visibility timeout {VISIBILITY_SECONDS} s" in logs
    assert len(re.findall(rf"attempt {attempt.id}: \d+ runs", logs)) == 1
