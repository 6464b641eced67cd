"""`finishline up` when a service dies, when it is refused, interrupted or killed."""

import json
import signal
from datetime import datetime
from pathlib import Path

import psutil
import pytest

from tests.e2e.conftest import SETTINGS, read_until
from tests.support.processes import asking, free_port, wait_for

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]


@pytest.mark.parametrize("word", ["valkey-server", "server.app:app", "-m worker"])
def test_killed_service_comes_back(stack, word):
    before = stack.service(word)
    killed_at = datetime.now().astimezone()
    before.kill()
    wait_for(lambda: stack.service(word) not in (None, before), seconds=60, what=f"another {word}")
    wait_for(lambda: asking.get(f"{stack.url}/readyz").is_success, seconds=60, what="the server")

    def worker_is_heard():
        (worker,) = stack.get("/workers")["workers"]
        return datetime.fromisoformat(worker["last_seen_at"]) > killed_at

    wait_for(worker_is_heard, seconds=60, what="the worker")


def test_taken_folder_and_port_are_refused(stack, host, tmp_path):
    def refused(var, port):
        own = ("--no-worker", "--var", str(var), "--port", str(port))
        return host.run("finishline", "up", *own, codes=(4,))

    said = " ".join(refused(stack.var, free_port()).split())
    assert f"process {stack.process.pid}" in said
    assert stack.url in said
    port = stack.url.rpartition(":")[2]
    said = refused(tmp_path / "var", port)
    assert said.startswith(f"error: Port {port} on 127.0.0.1 cannot be used")


def test_unreadable_database_stops_the_start(host, tmp_path):
    (tmp_path / "finishline.db").write_text("not a database")
    own = ("--no-worker", "--var", str(tmp_path), "--port", str(free_port()))
    said = host.run("finishline", "up", *own, codes=(4,))
    assert "could not be migrated: " in said


def test_interrupted_start_says_why(host, tmp_path):
    own = ("--no-worker", "--var", str(tmp_path / "var"), "--port", str(free_port()))
    process = host.start("finishline", "up", *own)
    read_until(process, "database is migrated")
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate()
    assert process.returncode == 0
    assert "Stopping: Ctrl-C was pressed before everything was ready." in said


def test_demo_ends_with_two_workers_in_a_long_folder(host, tmp_path):
    var = tmp_path / ("long" * 30)
    own = ("--var", str(var), "--port", str(free_port()), "--devices", "cpu,cpu")
    up = host.start("finishline", "up", "--demo", "--once", *own, **SETTINGS)
    said, _ = up.communicate()
    assert "Verdict: verified" in said
    assert up.returncode == (0 if "\nRank " in said else 3)
    stopped = ["worker-2 stopped", "worker stopped", "server stopped", "redis stopped"]
    assert said.splitlines()[-4:] == stopped
    assert {path.stem for path in (var / "tokens").iterdir()} > {"worker", "worker-2"}
    assert (var / "logs" / "worker-2.log").exists()

    was_measured = "\nRank " in said
    again = host.start("finishline", "up", "--demo", "--once", *own, **SETTINGS)
    said, _ = again.communicate()
    assert "Verdict: verified" in said
    # Only a submission that is measured, or is being trained, has duplicates.
    assert ("it is replayed again" in said) == was_measured
    assert again.returncode == (0 if was_measured or "\nRank " in said else 3)


def test_folder_of_a_killed_up_can_be_used_again(host, tmp_path):
    own = ("--var", str(tmp_path / "var"), "--port", str(free_port()))
    first = host.start("finishline", "up", "--demo", *own, **SETTINGS)
    assert "Verdict: verified" in read_until(first, "The server keeps running")
    services = psutil.Process(first.pid).children(recursive=True)
    assert len(services) >= 3
    first.kill()
    _gone, alive = psutil.wait_procs(services, timeout=60)
    assert alive == []
    first.communicate()
    second = host.start("finishline", "up", "--json", "--no-worker", *own)
    document = json.loads(read_until(second, "\n}\n"))
    assert [service["name"] for service in document["services"]] == ["redis", "server"]
    assert {Path(each).parent for each in document["tokens"].values()} == {tmp_path / "var/tokens"}
    second.terminate()
    assert second.communicate() == ("", None)
    assert second.returncode == 0
