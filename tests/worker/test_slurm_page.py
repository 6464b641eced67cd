"""The job script of the page on clusters, started by a stand-in for Slurm."""

import os
import re
import signal
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "slurm.md"
WORKER_WITH_FAKES = Path(__file__).with_name("worker_with_fakes.py")
SBATCH = """
job=$1; shift
grep -q '^#SBATCH --signal=B:TERM@' "$job" || exit 9
SLURM_JOB_ID=4711 bash "$job" & echo $!
wait $!
"""


@pytest.mark.processes
def test_the_job_script_finishes_its_attempt_at_the_signal_and_ends(
    tmp_path, fake_server, make_job
):
    (script,) = re.findall(r"```bash\n(#!/bin/bash\n.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "worker.sbatch").write_text(script)
    (tmp_path / "sbatch").write_text(SBATCH)
    (tmp_path / "token").write_text("worker-token\n")
    python = tmp_path / "python"  # "python -m worker --pull ...", with the fake trainers
    python.write_text(f'#!/bin/bash\nshift 2\nexec {sys.executable} {WORKER_WITH_FAKES} "$@"\n')
    python.chmod(0o700)
    script_path = tmp_path / "worker.sbatch"
    script_path.write_text(script.replace("/shared/finishline/bin", str(tmp_path)))
    fake_server.answers["next"] = [(200, asdict(make_job("stroll"))), (204, {})]
    environment = os.environ | {
        "FINISHLINE_SERVER_URL": fake_server.url,
        "FINISHLINE_WORKER_TOKEN_FILE": str(tmp_path / "token"),
        "FINISHLINE_DATA_DIR": str(tmp_path),
        "FINISHLINE_HARDWARE_CLASS": "cpu-test",
        "FINISHLINE_MEASURE": "off",
        "FINISHLINE_ENTRIES": "off",
        "FINISHLINE_BROKER_URL": "redis://127.0.0.1:1/0",
    }

    job = subprocess.Popen(
        ["/bin/bash", str(tmp_path / "sbatch"), str(script_path)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    batch_shell = int(job.stdout.readline())
    drain = threading.Thread(target=job.stdout.read)
    drain.start()
    try:
        fake_server.wait_for(lambda: fake_server.events(), seconds=60)
        os.kill(batch_shell, signal.SIGTERM)
        assert job.wait(timeout=60) == 0
    finally:
        job.kill()
        job.wait()
        drain.join()
        job.stdout.close()
    (report,) = fake_server.bodies("report")
    assert (report["failure"], report["runs"][0]["status"]) == (None, "reached")
    assert fake_server.bodies("hello")[0]["system"]["worker"] == "slurm-4711"
