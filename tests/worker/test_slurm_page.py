"""The job scripts of the page on clusters, started by a stand-in for Slurm."""

import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.processes import free_port

PAGE = Path(__file__).parents[2] / "docs" / "slurm.md"
WORKER_WITH_FAKES = Path(__file__).with_name("worker_with_fakes.py")
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
    """A job of a script of the page, and the number of its batch shell."""
    (folder / "token").write_text("worker-token\n")
    python = f'#!/bin/bash\nshift 2\nexec {sys.executable} {WORKER_WITH_FAKES} "$@"\n'
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
    job = subprocess.Popen(
        [str(folder / "sbatch"), str(script_path)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
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
def test_a_job_script_finishes_its_attempt_at_the_signal_and_ends(
    tmp_path, fake_server, make_job, place, names
):
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
