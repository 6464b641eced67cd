"""What docker-compose.yml starts, as processes: it goes on while its parts die."""

import json
import signal
import subprocess
import sys

import httpx2
import pytest
import redis

from tests.deploy.topology import BUCKET, NGINX, Topology
from tests.support.boards import rows_of
from tests.support.processes import asking

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(600),
    pytest.mark.skipif(NGINX is None, reason="nginx isn't installed"),
]


@pytest.fixture
def topology(compose, dockerfile, tmp_path):
    made = Topology(compose, dockerfile, tmp_path)
    yield made
    made.stop()


def finishline(*arguments):
    """Run the command with --json; what it printed, parsed."""
    done = subprocess.run(
        [sys.executable, "-m", "finishline.cli.main", *arguments, "--json"],
        capture_output=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def get(url, path):
    """The JSON at a path of the API; a server that is away is waited for by the caller."""
    answer = asking.get(f"{url}/api/v1{path}", timeout=10)
    if answer.status_code >= 500:
        raise httpx2.ConnectError(answer.text)
    return answer.json()


def test_a_verdict_comes_once_while_a_server_the_broker_and_a_worker_die(
    topology, trained, tmp_path
):
    topology.start_all()
    first, second = topology.url_of("server-1"), topology.url_of("server-2")
    assert rows_of(get(second, "/leaderboards/digits")) == []

    # Sent to one server, seen at the other; asked for through the port in front of both.
    submitter = ("--url", first, "--token", topology.make_token("submitter"))
    submission = finishline("submit", str(trained), *submitter)["id"]
    topology.wait(
        lambda: [e["submission_id"] for e in rows_of(get(second, "/leaderboards/digits"))],
        "the submission to be on the board of the other server",
        seconds=5,
    )
    organiser = {"Authorization": f"Bearer {topology.make_token('organiser')}"}
    asked = asking.post(
        f"{topology.url}/api/v1/submissions/{submission}/verifications",
        headers=organiser,
        json={"reason": "test"},
        timeout=10,
    )
    assert asked.status_code == 201, asked.text
    verification = f"/verifications/{asked.json()['id']}"

    def training():
        worker = get(topology.url, verification)["attempts"][-1]["worker"]
        return worker if topology.is_training(worker) else None

    # The other worker may train the reference at this moment.
    busy = topology.wait(training, "its training to start")

    topology.kill("server-1")
    restart_broker(topology)
    topology.kill(busy)

    def ended():
        view = get(topology.url, verification)
        return view if view["state"] in ("done", "failed", "cancelled") else None

    view = topology.wait(ended, "the verdict", seconds=300)
    assert view["outcome"] == "verified", view["reasons"]
    # A replay whose processor others had is made twice.
    ends = [(each["state"], (each["failure"] or {}).get("code")) for each in view["attempts"]]
    assert [state for state, code in ends if code != "host_busy"] == ["lost", "done"]
    assert view["attempts"][0]["failure"]["code"] == "worker_lost"
    assert len({attempt["worker"] for attempt in view["attempts"]}) == 2
    assert len(view["report"]["runs"]) == view["runs_planned"]

    # The server that was away tells the same, and the logs lie in the store alone.
    topology.start("server-1")
    topology.wait_until_ready("server-1")
    for url in (first, second):
        # The reference is measured beside it, without being asked.
        rows = {row["submission_id"]: row for row in rows_of(get(url, "/leaderboards/digits"))}
        row = rows[submission]
        assert (row["status"], row["evidence"], row["check"]) == ("verified", "measured", None)
        log = asking.get(f"{url}/api/v1/submissions/{submission}/runs/1/log", timeout=10)
        assert log.content == (trained / "run_1.log").read_bytes()
    keys = topology.s3().list_objects_v2(Bucket=BUCKET)["Contents"]
    assert len(keys) == 4
    assert not [path for path in (tmp_path / "var").rglob("*") if path.is_file()]
    assert_secrets_are_kept(topology)


def restart_broker(topology):
    """Kill the broker and start it again: what it acknowledged is there, for who has the word."""
    password = topology.secret("redis_password")
    with topology.broker(password=None) as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()
    with topology.broker(password=password) as broker:
        broker.set("kept", "yes")
    topology.processes["redis"].send_signal(signal.SIGKILL)
    topology.processes["redis"].wait(timeout=10)
    topology.start("redis")

    def back():
        try:
            with topology.broker(password=password) as broker:
                return broker.get("kept")
        except redis.ConnectionError:
            return None

    assert topology.wait(back, "the broker to be back", seconds=20) == b"yes"


def assert_secrets_are_kept(topology):
    """No secret stands in a log, nor /metrics open to whoever asks."""
    for name in topology.processes:
        for secret in ("postgres_password", "redis_password", "metrics_token"):
            assert topology.secret(secret) not in topology.log(name), (name, secret)
    metrics = f"{topology.url}/metrics"
    token = {"Authorization": f"Bearer {topology.secret('metrics_token')}"}
    assert asking.get(metrics, timeout=10).status_code == 401
    assert asking.get(metrics, headers=token, timeout=10).status_code == 200
