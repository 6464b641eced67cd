"""`finishline up` and its supervisor as real processes, with stand-ins for the services."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx2
import psutil
import pytest

from finishline.cli.up import supervisor
from finishline.cli.up.lifecycle import Phase
from finishline.cli.up.supervisor import Service
from tests.support.processes import asking

pytestmark = pytest.mark.nightly

STANDINS = Path(__file__).with_name("standins")


CHECKOUT = Path(__file__).parents[2]


LIMIT_SECONDS = 60.0


def wait_for(condition, what):
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited {LIMIT_SECONDS:g} s for {what}"
        time.sleep(0.02)


def is_alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass
class Up:
    process: "subprocess.Popen[str]"
    port: int
    var: Path

    def ready(self):
        """The document that --json writes once everything is ready."""
        assert self.process.stdout is not None
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if line == "}\n":
                return dict(json.loads("".join(lines)))
        raise AssertionError(f"no document but {self.process.communicate()}")

    def outcome(self):
        out, err = self.process.communicate(timeout=LIMIT_SECONDS)
        return self.process.returncode, out, err

    def descendants(self):
        return [child.pid for child in psutil.Process(self.process.pid).children(recursive=True)]


StartUp = Callable[..., Up]


@pytest.fixture
def start_up(tmp_path):
    started = []

    def start(*options, var=tmp_path / "v", port=0, **settings):
        port = port or free_port()
        kept = {k: v for k, v in os.environ.items() if not k.startswith("FINISHLINE_")}
        process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "finishline.cli.main", "up"),
                *("--port", str(port), "--var", str(var), *options),
            ],
            env=kept | {"PYTHONPATH": f"{STANDINS}:{CHECKOUT}"} | settings,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(Up(process, port, var))
        return started[-1]

    yield start
    for up in started:
        if up.process.poll() is None:
            up.process.terminate()
            up.outcome()


def test_up_is_ready_when_everything_answers_and_sigterm_leaves_nothing(start_up):
    up = start_up("--json")
    document = up.ready()
    assert [service["name"] for service in document["services"]] == ["redis", "server", "worker"]
    assert asking.get(f"{document['url']}/healthz").json() == {"status": "ok"}
    assert {Path(path).read_text() for path in document["tokens"].values()} == {
        "fl_admin\n",
        "fl_organiser\n",
        "fl_worker\n",
        "fl_submitter\n",
    }
    assert {path for path in up.var.rglob("*") if path.stat().st_mode & 0o077} == set()
    pids = up.descendants()
    assert len(pids) >= 3
    up.process.terminate()
    code, out, err = up.outcome()
    assert (code, out, err) == (0, "", "")
    assert not any(is_alive(pid) for pid in pids)


@pytest.mark.parametrize("name", ["redis", "server", "worker"])
def test_a_killed_service_comes_back(start_up, name):
    up = start_up("--json")
    pids = {service["name"]: service["pid"] for service in up.ready()["services"]}
    os.kill(pids[name], signal.SIGKILL)
    wait_for(lambda: not is_alive(pids[name]), "its death")
    wait_for(lambda: len(up.descendants()) >= 3, "its return")
    wait_for(lambda: _answers(f"http://127.0.0.1:{up.port}/healthz"), "the server")
    up.process.terminate()
    assert up.outcome()[0] == 0


def test_each_device_has_a_worker_with_a_name_a_token_and_a_log_of_its_own(start_up):
    up = start_up("--json", "--devices", "cpu,cpu")
    document = up.ready()
    services = {service["name"]: service for service in document["services"]}
    assert list(services) == ["redis", "server", "worker", "worker-2"]
    assert {"worker", "worker-2"} < set(document["tokens"])
    headers = {"Authorization": "Bearer fl_worker"}
    listed = asking.get(f"{document['url']}/api/v1/workers", headers=headers).json()["workers"]
    assert [worker["name"] for worker in listed] == ["local", "local-2"]
    for name in ("worker", "worker-2"):
        os.kill(services[name]["pid"], signal.SIGKILL)
    wait_for(lambda: not is_alive(services["worker-2"]["pid"]), "its death")
    wait_for(lambda: len(up.descendants()) >= 4, "their return")
    up.process.terminate()
    code, _, err = up.outcome()
    assert (code, err) == (0, "")


def _answers(url):
    try:
        return asking.get(url).status_code == 200
    except httpx2.TransportError:
        return False


@pytest.mark.parametrize(
    ("outcome", "code", "told"),
    [
        ("verified", 0, "Measured 1.100 s (1.000 to 1.200 s, 95 %) in 3 sealed runs"),
        ("rejected", 3, "Not measured: "),
    ],
)
def test_once_ends_with_the_measured_time(start_up, outcome, code, told):
    up = start_up("--demo", "--once", STANDIN_OUTCOME=outcome)
    pids = up.descendants()
    ended, out, err = up.outcome()
    assert err == ""
    assert ended == code
    assert f"Verdict: {outcome}" in out
    assert told in out
    assert "run 1  epoch 1      98.00 %" in out
    assert "inside 90.00..99.00" in out
    assert f"http://127.0.0.1:{up.port}/verifications/v1" in out
    assert out.splitlines()[-3:] == ["worker stopped", "server stopped", "redis stopped"]
    assert not any(is_alive(pid) for pid in pids)


def test_demo_leaves_the_server_running(start_up):
    up = start_up("--demo")
    assert up.process.stdout is not None
    said = next(line for line in up.process.stdout if "keeps running" in line)
    assert f"http://127.0.0.1:{up.port}" in said
    assert _answers(f"http://127.0.0.1:{up.port}/healthz")


def test_a_taken_port_is_one_sentence(start_up):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        up = start_up(port=other.getsockname()[1])
        code, _, err = up.outcome()
    assert code == 4
    assert err.startswith(f"error: Port {up.port} on 127.0.0.1 cannot be used")
    assert len(err.splitlines()) == 1


def test_a_second_up_in_the_same_var_is_told_of_the_first(start_up):
    first = start_up("--json", "--no-worker")
    first.ready()
    code, _, err = start_up("--json").outcome()
    assert code == 4
    message = json.loads(err)["error"]["message"]
    assert f"process {first.process.pid}" in message
    assert f"http://127.0.0.1:{first.port}" in message


def test_a_database_that_cannot_be_migrated_stops_the_start(start_up):
    code, _, err = start_up(STANDIN_MIGRATE="fails").outcome()
    assert code == 4
    assert "could not be migrated: the database is from a newer version" in err


def test_a_killed_supervisor_leaves_nothing_and_its_var_can_be_used_again(start_up):
    first = start_up("--json")
    first.ready()
    pids = first.descendants()
    first.process.kill()
    first.outcome()
    wait_for(lambda: not any(is_alive(pid) for pid in pids), "the services to end")
    second = start_up("--json", var=first.var, port=first.port)
    assert second.ready()["url"] == f"http://127.0.0.1:{first.port}"


def test_a_var_with_a_long_path_works_too(start_up, tmp_path):
    up = start_up("--json", "--no-worker", var=tmp_path / ("long" * 30))
    assert up.ready()["services"][0]["name"] == "redis"
    up.process.terminate()
    assert up.outcome()[0] == 0


PROGRAM = Path(__file__).with_name("supervised.py")


@dataclass
class Supervised:
    process: "subprocess.Popen[str]"
    folder: Path

    def pid(self, name):
        file = self.folder / f"{name}.pid"
        wait_for(lambda: file.exists() and file.read_text(), f"the process id of {name}")
        return int(file.read_text())

    def wait_ready(self):
        wait_for((self.folder / "all-ready").exists, "all services to be ready")

    def end(self, number):
        self.process.send_signal(number)
        return self.outcome()

    def outcome(self):
        output, _ = self.process.communicate(timeout=LIMIT_SECONDS)
        return self.process.returncode, output


Supervise = Callable[..., Supervised]


@pytest.fixture
def supervise(tmp_path):
    started = []

    def start(*services):
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(tmp_path), *services],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(Supervised(process, tmp_path))
        return started[-1]

    yield start
    for supervised in started:
        if supervised.process.poll() is None:
            supervised.end(signal.SIGTERM)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_all_services_in_reverse_order(supervise, number):
    up = supervise("first", "second")
    up.wait_ready()
    pids = [up.pid("first"), up.pid("second")]
    code, output = up.end(number)
    assert code == 0
    assert [line for line in output.splitlines() if "stopped" in line] == [
        "second stopped",
        "first stopped",
    ]
    assert not any(is_alive(pid) for pid in pids)


def test_a_service_that_was_killed_or_told_to_end_is_started_again_and_which_is_said(supervise):
    up = supervise("first", "second:polite")
    up.wait_ready()
    before, other = up.pid("second"), up.pid("first")
    os.kill(before, signal.SIGKILL)
    wait_for(lambda: up.pid("second") != before, "a second process")
    after = up.pid("second")
    assert is_alive(after)
    assert up.pid("first") == other
    os.kill(after, signal.SIGTERM)
    wait_for(lambda: up.pid("second") != after, "a third process")
    code, output = up.end(signal.SIGTERM)
    assert code == 0
    assert re.search(r"second died \(SIGKILL\); starting it again in 0\.\d s", output)
    assert "second exited without a request to stop (exit code 0); starting it again" in output
    assert output.count("died") == 1
    assert not is_alive(after)


def test_a_service_that_keeps_dying_is_given_up_and_the_rest_is_stopped(supervise):
    up = supervise("first", "second")
    up.wait_ready()
    first = up.pid("first")
    for _ in range(5):
        pid = up.pid("second")
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: up.process.poll() is not None or up.pid("second") != pid, "a restart")  # noqa: B023
    code, output = up.outcome()
    assert code == 4
    assert "error: second died 5 times in 30 s (SIGKILL)" in output
    assert not is_alive(first)


def test_a_service_that_cannot_start_says_why_and_is_not_tried_again(supervise):
    up = supervise("first", "second:exits")
    code, output = up.outcome()
    assert code == 4
    assert "second could not start (exit code 7: cannot bind to the moon)" in output
    assert "starting it again" not in output
    assert not is_alive(up.pid("first"))


def test_a_service_deaf_to_sigterm_is_killed_after_its_limit(supervise):
    up = supervise("first:deaf")
    up.wait_ready()
    pid = up.pid("first")
    code, output = up.end(signal.SIGTERM)
    assert code == 0
    assert "first did not stop within 1 s and is killed" in output
    assert not is_alive(pid)


def test_a_service_that_answers_before_its_supervisor_goes_on_is_ready(tmp_path, monkeypatch):
    answered = tmp_path / "answered"
    launch = supervisor._launch

    def launch_and_be_held_up(service):
        process = launch(service)
        wait_for(answered.exists, "the service to answer")
        time.sleep(0.05)  # Longer than a clock of files is coarse.
        return process

    monkeypatch.setattr(supervisor, "_launch", launch_and_be_held_up)
    service = Service(
        name="quick",
        command=["sh", "-c", f"touch {answered}; sleep 600"],
        environment=dict(os.environ),
        log=tmp_path / "log",
        is_ready=lambda started: answered.stat().st_mtime >= started - 0.01,
        ready_limit_seconds=0.5,
    )
    kept = supervisor.Supervisor(say=lambda _: None)
    try:
        kept.start(service)
        answered.unlink()
        os.kill(kept.pids()["quick"], signal.SIGKILL)
        wait_for(lambda: kept.tick() or answered.exists(), "another start")
        kept.tick()
        assert kept._kept[0].life.phase is Phase.READY
    finally:
        kept.stop()


def test_a_killed_supervisor_leaves_no_service_behind(supervise):
    up = supervise("first", "second")
    up.wait_ready()
    pids = [up.pid("first"), up.pid("second")]
    up.process.kill()
    up.outcome()
    wait_for(lambda: not any(is_alive(pid) for pid in pids), "the services to end")


def test_what_a_killed_service_leaves_in_another_session_is_ended_too(supervise):
    up = supervise("first:parent")
    up.wait_ready()
    before, child = up.pid("first"), up.pid("first-child")
    assert is_alive(child)
    ended = up.pid("first-ended")
    wait_for(lambda: not psutil.pid_exists(ended), "an orphan that ended by itself to be reaped")
    os.kill(before, signal.SIGKILL)
    wait_for(lambda: not is_alive(child), "the orphan to end")
    wait_for(lambda: up.pid("first-child") != child, "the restarted service's child")
    second_child = up.pid("first-child")
    assert up.end(signal.SIGTERM)[0] == 0
    assert not is_alive(second_child)


def test_a_start_that_is_interrupted_says_why_it_stops(tmp_path):
    command = [sys.executable, "-P", "-m", "finishline.cli.main", "up"]
    with subprocess.Popen(
        [*command, "--no-worker", "--port", str(free_port()), "--var", str(tmp_path / "var")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert "database is migrated" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        said = process.stdout.read()
    assert process.returncode == 0
    assert "Stopping: Ctrl-C was pressed before everything was ready." in said
