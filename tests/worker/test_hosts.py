"""A worker over several hosts: they meet, train together, and one is lost."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from finishline.rules.verification.messages import Node
from tests.support.processes import free_port, wait_for
from worker.__main__ import Options, main
from worker.hosts import Arrival, Met
from worker.machine.probe import class_over, system_over

WORKER = Path(__file__).with_name("worker_with_fakes.py")


def an_arrival(name="first", **other):
    node = Node(name, "AMD EPYC", 2, 23.5, "NVIDIA H100 80GB HBM3", 8)
    told = {"hardware_class": "8x-nvidia", "processes": 8, "software": {"torch": "2.13.0"}}
    return Arrival(node, **(told | other))


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        ({"processes": 4}, "b has FINISHLINE_PROCESSES 4; expected 8 as on first"),
        ({"software": {"torch": "2.12.0"}}, "b has torch 2.12.0; expected 2.13.0 as on first"),
        ({"hardware_class": "4x-nvidia"}, "b has hardware_class 4x-nvidia; expected 8x-nvidia"),
    ],
)
def test_a_host_unlike_the_first_is_named_with_the_difference(other, sentence):
    arrivals = [an_arrival(), an_arrival("b", **other)]
    assert Met(arrivals, None).fault().startswith(sentence)
    assert Met([an_arrival(), an_arrival("b")], None).fault() is None


def test_the_class_of_several_hosts_names_the_allocation(system):
    node = an_arrival().node
    assert class_over(node, hosts=2) == "2x8-nvidia-h100-80gb-hbm3"
    on_processors = replace(node, accelerator=None, accelerator_count=0)
    assert class_over(on_processors, hosts=2) == "2x-cpu-amd-epyc-2-cores"
    over = system_over(system, [node, replace(node, name="b")], hardware_class=None)
    assert (over.hardware_class, over.accelerator_count) == ("2x8-nvidia-h100-80gb-hbm3", 16)


@pytest.mark.parametrize("text", ["node-1", "node-1:", ":29400", "node-1:70000", "node-1:x"])
def test_an_endpoint_without_host_or_port_is_refused(text, capsys):
    assert main(["--nnodes", "2", "--rdzv-endpoint", text]) == 2
    assert "expected HOST:PORT" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", ["--nnodes 2", "--join 1", "--nnodes 2 --rdzv-endpoint a:1 --join 2"]
)
def test_several_hosts_need_their_number_and_their_place(words, capsys):
    assert main(words.split()) == 2
    assert "several hosts: expected --nnodes N" in capsys.readouterr().err


def test_an_address_of_ipv6_has_brackets(monkeypatch):
    found = []
    monkeypatch.setattr("worker.__main__.serve", lambda options: found.append(options) or 0)
    assert main(["--nnodes", "2", "--rdzv-endpoint", "[fe80::1]:29400"]) == 0
    assert found == [Options(nnodes=2, rdzv_endpoint=("fe80::1", 29400))]


def start(arguments, *, name, url, tmp_path):
    """A worker with the fake trainers; one that joins is told neither a server nor a token."""
    first = {
        "FINISHLINE_SERVER_URL": url,
        "FINISHLINE_WORKER_TOKEN": "worker-token",
        "FINISHLINE_MEASURE": "off",
    }
    environment = os.environ | {
        "FINISHLINE_WORKER_NAME": name,
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
def test_a_lost_host_costs_the_attempt_and_ends_the_worker(fake_server, make_job, tmp_path):
    hosts = ["--nnodes", "2", "--rdzv-endpoint", f"127.0.0.2:{free_port()}"]

    def posted(kind, count):
        fake_server.wait_for(lambda: len(fake_server.bodies(kind)) >= count, seconds=180)
        return fake_server.bodies(kind)[count - 1]

    fake_server.job = make_job("exchange_for_ever", run_limit_seconds=300.0)
    fake_server.answers["next"] = [(200, {"attempt_id": "attempt-1"})]
    first = start(["--pull", *hosts], name="alpha", url=fake_server.url, tmp_path=tmp_path)
    second = start(["--join", "1", *hosts], name="beta", url="", tmp_path=tmp_path)
    try:
        wait_for((tmp_path / "joined").exists, seconds=180, what="the second", pause=0.01)
        second.send_signal(signal.SIGKILL)
        lost = posted("report", 1)
        assert lost["failure"]["code"] == "node_lost", lost["failure"]
        assert [node["name"] for node in lost["system"]["nodes"]] == ["alpha", "beta"]
        assert lost["all_reduce"]["unit"] == "GB/s"
        assert fake_server.bodies("hello")[0]["box"]["entries"] == "off"
        assert posted("report", 2)["failure"]["code"] == "nodes_unfit"
        assert first.wait(timeout=60) == 0
    finally:
        for process in (first, second):
            process.kill()
            process.wait()
