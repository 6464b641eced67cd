"""Devices as NVIDIA's tool or torch lists them: whole cards, slices, a driver that is gone."""

import json
import os
import subprocess
import sys

import pytest

from finishline.devices import Devices, choose_device, find_devices
from finishline.rules.errors import RuleError

EIGHT = "\n".join(f"GPU {n}: NVIDIA H100 80GB HBM3 (UUID: GPU-{n}f0c-4a)" for n in range(8))
SLICED = """GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5c89)
  MIG 3g.20gb     Device  0: (UUID: MIG-aa11)
  MIG 3g.20gb     Device  1: (UUID: MIG-bb22)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-6d90)
"""
LOST = (
    "Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost."
    "  Reboot the system to recover this GPU"
)
GONE = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."


@pytest.fixture
def listing(tmp_path, monkeypatch):
    """Let nvidia-smi answer a text with an exit code, where CUDA shows some devices or all."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    def answer(text, *, code=0, visible=None):
        tool = tmp_path / "nvidia-smi"
        (tmp_path / "said").write_text(text)
        tool.write_text(f"#!/bin/sh\ncat {tmp_path}/said\nexit {code}\n")
        tool.chmod(0o755)
        if visible is None:
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        else:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        return find_devices()

    return answer


@pytest.mark.parametrize(
    ("visible", "shown", "unknown"),
    [
        (None, "01234567", None),
        ("3", "3", None),
        ("6, 2", "62", None),
        ("GPU-5f0c", "5", None),
        ("1,9,2", "1", "9"),
        ("8", "", "8"),
        ("GPU-ffff", "", "GPU-ffff"),
        ("-1", "", None),
        ("", "", None),
        ("none", "", None),
    ],
)
def test_a_worker_has_the_devices_that_cuda_shows_it(listing, visible, shown, unknown):
    found = listing(EIGHT, visible=visible)
    assert [each.uuid for each in found.accelerators] == [f"GPU-{n}f0c-4a" for n in shown]
    told = unknown and f"no such device as {unknown!r}, which CUDA_VISIBLE_DEVICES names"
    assert found.problem == told


def test_slices_stand_for_their_card(listing):
    names = {each.uuid: each.name for each in listing(SLICED).accelerators}
    assert names == {
        "MIG-aa11": "NVIDIA A100-SXM4-40GB MIG 3g.20gb",
        "MIG-bb22": "NVIDIA A100-SXM4-40GB MIG 3g.20gb",
        "GPU-6d90": "NVIDIA A100-SXM4-40GB",
    }
    (one,) = listing(SLICED, visible="MIG-bb22").accelerators
    assert (one.uuid, one.board) == ("MIG-bb22", "GPU-5c89")


@pytest.mark.parametrize(
    ("text", "code", "count"),
    [(GONE, 9, 0), (LOST, 15, 0), ("No devices found.", 6, 0), ("", 0, 0),
     (f"{EIGHT}\n{LOST}", 15, 8)],
)  # fmt: skip
def test_a_driver_that_fails_is_told_in_its_own_words(listing, text, code, count):
    found = listing(text, code=code)
    assert len(found.accelerators) == count
    assert count == 8 or text in found.problem
    assert found.problem


def test_a_host_without_the_tool_has_none(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_devices() == Devices(())
    assert choose_device(None, Devices(())) == "cpu"


@pytest.mark.parametrize(
    ("name", "device"), [(None, "cuda:0"), ("cuda", "cuda:0"), ("cuda:7", "cuda:7"), ("cpu", "cpu")]
)
def test_a_training_uses_the_first_accelerator_unless_another_is_named(listing, name, device):
    assert choose_device(name, listing(EIGHT)) == device


@pytest.mark.parametrize("name", ["cuda", "cuda:8", "gpu", "cuda:", "cuda:-1"])
def test_a_device_that_is_not_here_is_refused_with_those_that_are(listing, name):
    found = Devices(()) if name == "cuda" else listing(EIGHT)
    with pytest.raises(RuleError) as caught:
        choose_device(name, found)
    assert name.partition(":")[0] in str(caught.value)
    assert "cpu" in caught.value.expected


def test_a_list_that_never_ends_is_given_up(listing, tmp_path, monkeypatch):
    monkeypatch.setattr("finishline.devices.TOOL_SECONDS", 0.2)
    listing("")
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\nexec sleep 30\n")
    assert "no answer" in find_devices().problem


@pytest.mark.parametrize(
    ("cuda", "listed", "problem"),
    [
        ("get_device_name = staticmethod('AMD Instinct {}'.format)", ["0", "1"], None),
        ("get_device_name = None", [], "torch lists none"),
    ],
)
def test_torch_for_rocm_lists_devices(tmp_path, cuda, listed, problem):
    torch = tmp_path / "torch"
    torch.mkdir()
    (torch / "version.py").write_text("cuda: str | None = None\nhip: str | None = '7.0'\n")
    (torch / "__init__.py").write_text(
        f"class cuda:\n    device_count = staticmethod(lambda: 2)\n    {cuda}\n"
    )
    script = (
        "import dataclasses, json; from finishline.devices import find_devices; "
        "print(json.dumps(dataclasses.asdict(find_devices())))"
    )
    command = [sys.executable, "-c", script]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    said = subprocess.run(command, env=environment, capture_output=True, check=True)
    found = json.loads(said.stdout)

    names = [(each["uuid"], each["name"]) for each in found["accelerators"]]
    assert names == [(number, f"AMD Instinct {number}") for number in listed]
    assert (problem or "") in (found["problem"] or "")
    assert (problem is None) == (found["problem"] is None)
