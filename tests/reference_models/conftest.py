"""Trainings on one thread, whose sums come in one order."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.support.processes import free_port

PROGRAM = Path(__file__).with_name("two_processes.py")


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def pair(tmp_path_factory):
    """What each of two processes saw of the trainings that they shared: see two_processes.py."""
    out = tmp_path_factory.mktemp("pair") / "of"
    told = os.environ | {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": "2",
        "TORCHELASTIC_RUN_ID": "test",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(PROGRAM.parents[2]),
    }
    processes = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), str(out)],
            env=told | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in (0, 1)
    ]
    try:
        assert [process.wait(timeout=120) for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return [json.loads(Path(f"{out}.{rank}").read_text()) for rank in (0, 1)]
