"""Several processes make the steps of one; a device that is not there is said in a sentence."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from reference_models import DeviceError
from reference_models.distributed import World, check_device, join

PROGRAM = Path(__file__).with_name("two_processes.py")
ROOT = Path(__file__).parents[2]


def run_curves(tmp_path, *, processes):
    """What each process saw of the training in single and in double precision."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    out = tmp_path / f"of{processes}"
    command = [sys.executable, *(launcher if processes > 1 else []), str(PROGRAM), str(out)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=120)
    return [json.loads(Path(f"{out}.{rank}").read_text()) for rank in range(processes)]


def test_two_processes_have_the_loss_curve_of_one_at_the_same_global_batch(tmp_path):
    [alone] = run_curves(tmp_path, processes=1)
    first, second = run_curves(tmp_path, processes=2)
    assert first == second
    losses, qualities = alone["double"]
    assert len(losses) == 2 * 18  # 1,198 images in batches of 64
    assert losses[-1] < 0.8 * losses[0]
    assert first["double"][0] == pytest.approx(losses, abs=1e-5, rel=0)
    assert first["double"][1] == qualities
    # In single precision rounding grows from step to step; for an epoch it stays below the same.
    assert first["single"][0][:18] == pytest.approx(alone["single"][0][:18], abs=1e-5, rel=0)


def test_a_world_of_one_changes_nothing_and_sends_nothing():
    world = join("cpu")
    assert world == World(rank=0, size=1, device="cpu")
    batch = torch.arange(5)
    assert torch.equal(world.shard(batch), batch)
    layer = nn.Linear(2, 1)
    layer(torch.ones(1, 2)).sum().backward()
    before = layer.weight.grad.clone()
    world.average_gradients(layer.parameters())
    world.agree_on(layer)
    assert torch.equal(layer.weight.grad, before)
    assert world.mean(torch.tensor(3.0)).item() == world.total(torch.tensor(3.0)).item() == 3.0


def test_equal_parts_by_rank_make_up_the_batch():
    parts = [World(rank=rank, size=3, device="cpu").shard(torch.arange(6)) for rank in range(3)]
    assert [part.tolist() for part in parts] == [[0, 1], [2, 3], [4, 5]]


def test_batch_that_cannot_be_shared_equally_is_refused_with_both_numbers():
    with pytest.raises(DeviceError, match="3 processes cannot share a batch of 64 equally"):
        World(rank=0, size=3, device="cpu").part_of_batch(64)


def test_gpu_number_beyond_the_last_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    check_device("cuda:1")
    check_device("cuda")
    with pytest.raises(DeviceError, match="no GPU number 2; expected a number from 0 to 1"):
        check_device("cuda:2")


def test_gpu_where_there_is_none_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(DeviceError, match="no NVIDIA GPU can be used from here"):
        join("cuda")


def test_processes_on_gpus_connect_to_their_own_one_before_the_clock_starts(monkeypatch):
    told = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", told.append)
    monkeypatch.setattr(dist, "is_torchelastic_launched", lambda: True)
    monkeypatch.setattr(dist, "get_node_local_rank", lambda fallback_rank: 1)
    monkeypatch.setattr(dist, "init_process_group", lambda *a, **named: told.append((a, named)))
    monkeypatch.setattr(dist, "get_rank", lambda: 1)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    assert join("cuda") == World(rank=1, size=2, device="cuda:1")
    assert told == ["cuda:1", (("nccl",), {"device_id": torch.device("cuda:1")})]
