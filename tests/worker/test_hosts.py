"""A worker over several hosts: who may join, the trainings it leads, and a host that is lost."""

import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from finishline.rules.verification.messages import Node
from tests.support.processes import free_port, wait_for
from worker.follower import join
from worker.hosts import Arrival, Channel, Hosts, HostsError, read_endpoint
from worker.probe import class_over, system_over

KEY = b"a secret of this allocation"
WORKER = Path(__file__).with_name("worker_with_fakes.py")


def an_arrival(name="first", **other):
    node = Node(name, "AMD EPYC", 2, 23.5, "NVIDIA H100 80GB HBM3", 8)
    told = {"hardware_class": "8x-nvidia", "processes": 8, "software": {"torch": "2.13.0"}}
    return Arrival(node, **(told | other))


@contextmanager
def connected(follower_key=KEY):
    """Both ends of a channel, made at the same time as each waits for the other, and the wire."""
    ends, made = socket.socketpair(), {}
    thread = threading.Thread(
        target=lambda: made.update(first=Channel(ends[0], KEY, is_first=True))
    )
    thread.start()
    follower = Channel(ends[1], follower_key, is_first=False)
    thread.join()
    yield made["first"], follower, ends[1]
    made["first"].close()
    ends[1].close()


def test_hosts_of_one_key_hear_each_other_in_order():
    with connected() as (first, follower, _):
        for number in (1, 2):
            follower.send({"idle": number})
            assert first.receive() == {"idle": number}
        first.send({"stop": 1})
        assert follower.receive() == {"stop": 1}
        first.close()
        with pytest.raises(ConnectionError):
            follower.receive()


def test_a_line_that_comes_again_is_refused():
    with connected() as (first, follower, wire):
        sent = []
        follower._connection = type("Tap", (), {"sendall": lambda _, line: sent.append(line)})()
        follower.send({"idle": 1})
        wire.sendall(sent[0] * 2)
        assert first.receive() == {"idle": 1}
        with pytest.raises(ValueError, match="without the allocation's key"):
            first.receive()


def test_a_message_nested_too_deeply_is_refused():
    with connected() as (first, follower, wire):
        text = b"[" * 100_000
        wire.sendall(follower._seal(b"follower", 0, text) + text + b"\n")
        with pytest.raises(ValueError, match="too deeply"):
            first.receive()


@contextmanager
def listening(count=3):
    """Hosts that wait for the others, at a free port; the changes they tell."""
    changes = []
    port = free_port()
    hosts = Hosts(
        count, address="127.0.0.2", port=port, key=KEY, own=an_arrival(), on_change=changes.append
    )
    try:
        yield hosts, ("127.0.0.2", port), changes
    finally:
        hosts.close()


def test_the_nodes_are_listed_by_name_behind_the_first():
    with listening() as (hosts, endpoint, changes):
        channels = [
            join(endpoint, key=KEY, arrival=an_arrival(name), seconds=10) for name in ("c", "b")
        ]
        hosts.wait(seconds=10)
        assert [node.name for node in hosts.nodes] == ["first", "b", "c"]
        assert changes == [False, True]
    for channel in channels:
        channel.close()


@pytest.mark.parametrize(
    ("key", "arrival", "sentence"),
    [
        (KEY, an_arrival("first"), "a host first is here already"),
        (KEY, an_arrival("b", processes=4), "FINISHLINE_PROCESSES: 4; expected 8 as on first"),
        (KEY, an_arrival("b", software={"torch": "2.12.0"}), "torch: 2.12.0; expected 2.13.0"),
        (KEY, an_arrival("b", hardware_class="4x-nvidia"), "hardware_class: 4x-nvidia; expected"),
        (b"another", an_arrival("b"), "FINISHLINE_HOSTS_KEY"),
    ],
)
def test_a_host_unlike_the_first_is_refused_with_the_difference(key, arrival, sentence):
    with listening() as (_, endpoint, _), pytest.raises(SystemExit, match=sentence):
        join(endpoint, key=key, arrival=arrival, seconds=10)


def test_hosts_that_do_not_come_are_counted():
    with (
        listening() as (hosts, _, _),
        pytest.raises(HostsError, match=r"1 of 3 hosts came within 0.01 s \(first"),
    ):
        hosts.wait(seconds=0.01)


def test_the_class_of_several_hosts_names_the_allocation(system):
    node = an_arrival().node
    assert class_over(node, hosts=2) == "2x8-nvidia-h100-80gb-hbm3"
    on_processors = replace(node, accelerator=None, accelerator_count=0)
    assert class_over(on_processors, hosts=2) == "2x-cpu-amd-epyc-2-cores"
    over = system_over(system, [node, replace(node, name="b")], hardware_class=None)
    assert (over.hardware_class, over.accelerator_count) == ("2x8-nvidia-h100-80gb-hbm3", 16)


@pytest.mark.parametrize("text", ["node-1", "node-1:", ":29400", "node-1:70000", "node-1:x"])
def test_an_endpoint_without_host_or_port_is_refused(text):
    with pytest.raises(ValueError, match="expected HOST:PORT"):
        read_endpoint(text)
    assert read_endpoint("[fe80::1]:29400") == ("fe80::1", 29400)


def start(arguments, *, name, url, tmp_path):
    """A worker with the fake trainers; the follower is told neither a server nor a token."""
    first = {
        "FINISHLINE_SERVER_URL": url,
        "FINISHLINE_WORKER_TOKEN": "worker-token",
        "FINISHLINE_MEASURE": "off",
    }
    environment = os.environ | {
        "FINISHLINE_WORKER_NAME": name,
        "FINISHLINE_HOSTS_KEY": KEY.decode(),
        "FINISHLINE_DEVICE": "cpu",
        "FINISHLINE_DATA_DIR": str(tmp_path),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    with (tmp_path / f"{name}.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, str(WORKER), *arguments],
            env=environment | (first if "--pull" in arguments else {}),
            stdout=log,
            stderr=log,
        )


@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_a_lost_host_costs_the_attempt_and_the_worker_asks_again_once_it_is_back(
    fake_server, make_job, tmp_path
):
    endpoint = ["--rdzv-endpoint", f"127.0.0.2:{free_port()}"]

    def posted(kind, count):
        fake_server.wait_for(lambda: len(fake_server.bodies(kind)) >= count, seconds=180)
        return fake_server.bodies(kind)[count - 1]

    def follower():
        return start(["--follow", *endpoint], name="beta", url="", tmp_path=tmp_path)

    fake_server.answers["next"] = [
        (200, asdict(make_job("hang_in_group", run_limit_seconds=300.0))),
        (204, {}),
    ]
    first = start(
        ["--pull", "--nnodes", "2", *endpoint], name="alpha", url=fake_server.url, tmp_path=tmp_path
    )
    second = follower()
    try:
        _wait_for(tmp_path / "1.pid")
        second.send_signal(signal.SIGKILL)
        lost = posted("report", 1)
        assert lost["failure"]["code"] == "node_lost", lost["failure"]
        assert "beta" in lost["failure"]["message"]
        assert fake_server.bodies("hello")[0]["box"]["entries"] == "off"

        asked = len(fake_server.bodies("next"))
        second.wait()
        second = follower()
        fake_server.wait_for(lambda: len(fake_server.bodies("next")) > asked, seconds=60)
        first.terminate()
        assert (first.wait(timeout=60), second.wait(timeout=60)) == (0, 0)
    finally:
        for process in (first, second):
            process.kill()
            process.wait()


def _wait_for(path):
    wait_for(path.exists, seconds=180, what=path.name, pause=0.01)
