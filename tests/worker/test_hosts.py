"""A worker over several hosts, by hand and by the job scripts of the page on clusters."""

import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from finishline.rules.verification.messages import Node
from tests.support.processes import free_port, wait_for
from worker.__main__ import main
from worker.group import Meeting
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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        *((f"--nnodes 2 --rdzv-endpoint {text}", "expected HOST:PORT")
          for text in ("node-1", "node-1:", ":29400", "node-1:70000", "node-1:x")),
        *((words, "several hosts: expected --nnodes N")
          for words in ("--nnodes 2", "--join 1", "--nnodes 2 --rdzv-endpoint a:1 --join 2")),
        ("--max-attempts 0", "--max-attempts"),
        ("--exit-when-idle soon", "--exit-when-idle"),
    ],
)  # fmt: skip
def test_wrong_options_stop_the_start(words, said, capsys):
    assert main(words.split()) == 2
    assert said in capsys.readouterr().err


def test_an_address_of_ipv6_has_brackets(monkeypatch):
    found = []
    monkeypatch.setattr("worker.__main__.serve", lambda **named: found.append(named) or 0)
    assert main(["--nnodes", "2", "--rdzv-endpoint", "[fe80::1]:29400"]) == 0
    assert found[0]["meeting"] == Meeting(2, 0, "fe80::1", 29400)


def start(arguments, *, name, url, tmp_path):
    """A worker with the fake trainers; one that joins is told neither a server nor a token."""
    first = {"FINISHLINE_SERVER_URL": url, "FINISHLINE_WORKER_TOKEN": "worker-token"}
    first["FINISHLINE_MEASURE"] = "off"
    environment = os.environ | {
        "FINISHLINE_WORKER_NAME": name,
        "FINISHLINE_DEVICE": "cpu",
        "FINISHLINE_DATA_DIR": str(tmp_path),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    with (tmp_path / f"{name}.log").open("ab") as log:
        environment |= first if "--pull" in arguments else {}
        command = [sys.executable, str(WORKER), *arguments]
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log)


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


PAGE = Path(__file__).parents[2] / "docs" / "slurm.md"
SBATCH = """#!/bin/bash
job=$1; shift
grep -q '^#SBATCH --signal=B:TERM@' "$job" || exit 9
nodes=$(sed -n 's/^#SBATCH --nodes=//p' "$job")
SLURM_JOB_ID=4711 SLURMD_NODENAME=127.0.0.2 SLURM_NNODES=${nodes:-1} bash "$job" & echo $!
wait $!
"""
# Leaves out its own options; the command is then on the second of two nodes.
SRUN = """#!/bin/bash
[ "$*" = "${*/--relative=1/}" ] && exit 9
while [ "${1#--}" != "$1" ]; do shift; done
FINISHLINE_WORKER_NAME=node-2 SLURM_PROCID=0 exec "$@"
"""


@contextmanager
def submitted(script, folder, url):
    (folder / "token").write_text("worker-token\n")
    python = f'#!/bin/bash\nshift 2\nexec {sys.executable} {WORKER} "$@"\n'
    commands = {"sbatch": SBATCH, "srun": SRUN, "python": python}  # "python -m worker ..."
    for name, text in commands.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o700)
    script_path = folder / "worker.sbatch"
    script_path.write_text(script.replace("/shared/finishline/bin", str(folder)))
    environment = os.environ | {
        "FINISHLINE_SERVER_URL": url,
        "FINISHLINE_WORKER_TOKEN_FILE": str(folder / "token"),
        "FINISHLINE_DATA_DIR": str(folder),
        "FINISHLINE_DEVICE": "cpu",
        "FINISHLINE_PROCESSES": "1",
        "FINISHLINE_MEASURE": "off",
        "FINISHLINE_ENTRIES": "off",
        "FINISHLINE_BROKER_URL": "redis://127.0.0.1:1/0",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    how = {"env": environment, "stdout": subprocess.PIPE, "text": True, "start_new_session": True}
    job = subprocess.Popen([str(folder / "sbatch"), str(script_path)], **how)
    batch_shell = int(job.stdout.readline())
    drain = threading.Thread(target=job.stdout.read)
    drain.start()
    try:
        yield job, batch_shell
    finally:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)  # Slurm ends the other hosts with the job.
        job.wait()
        drain.join()
        job.stdout.close()


@pytest.mark.nightly
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("place", "names"), [(0, []), (1, ["slurm-4711", "node-2"])])
def test_a_job_script_finishes_its_attempt(tmp_path, fake_server, make_job, place, names):
    script = re.findall(r"```bash\n(#!/bin/bash\n.*?)```", PAGE.read_text(), re.DOTALL)[place]
    fake_server.job = make_job("stroll", run_limit_seconds=300.0)
    fake_server.answers["next"] = [(200, {"attempt_id": "attempt-1"}), (204, {})]
    with submitted(script.replace("29400", str(free_port())), tmp_path, fake_server.url) as job:
        fake_server.wait_for(lambda: fake_server.events(), seconds=180)
        os.kill(job[1], signal.SIGTERM)
        assert job[0].wait(timeout=60) == 0
    (report,) = fake_server.bodies("report")
    assert (report["failure"], report["runs"][0]["status"]) == (None, "reached")
    for system in (report["system"], fake_server.bodies("hello")[0]["system"]):
        assert system["worker"] == "slurm-4711"
        assert [node["name"] for node in system["nodes"]] == names
        assert system["hardware_class"].startswith("2x-cpu-" if names else "cpu-")
    assert report["processes"] == (len(names) or 1)
    assert bool(report["all_reduce"]) == bool(names)
