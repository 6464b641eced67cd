import subprocess
import sys

import pytest

from worker.probe import accelerators_of, hardware_class_of, nvidia_accelerators, probe


@pytest.mark.parametrize(
    ("processor", "cores", "accelerators", "expected"),
    [
        ("Intel(R) Xeon(R) Gold 6230 CPU @ 2.10GHz", 8, [], "cpu-intel-xeon-gold-6230-8-cores"),
        ("AMD EPYC 7B13", 1, [], "cpu-amd-epyc-7b13-1-core"),
        ("AMD Ryzen 9 7950X 16-Core Processor", 4, [], "cpu-amd-ryzen-9-7950x-4-cores"),
        ("", 2, [], "cpu-unknown-2-cores"),
        ("AMD EPYC", 8, ["NVIDIA H200"], "1x-nvidia-h200"),
        ("AMD EPYC", 8, ["NVIDIA A100-SXM4-80GB"] * 8, "8x-nvidia-a100-sxm4-80gb"),
    ],
)
def test_hardware_class_is_made_of_what_trains(processor, cores, accelerators, expected):
    assert hardware_class_of(processor, cores, accelerators) == expected


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        (None, ["H100", "H200"]),
        ("cuda", ["H100", "H200"]),
        ("cuda:1", ["H200"]),
        ("cuda:7", []),
        ("cpu", []),
    ],
)
def test_a_system_has_the_accelerators_of_the_device_that_trains(device, expected):
    assert accelerators_of(device, ["H100", "H200"]) == expected


def test_a_training_on_the_processor_of_a_gpu_host_is_of_the_class_of_its_processor(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("PATH", nvidia_smi(tmp_path, "echo 'NVIDIA H200'"), prepend=":")
    on_gpu = probe(worker="grace", hardware_class=None, threads=1, device="cuda:0")
    on_cpu = probe(worker="grace", hardware_class=None, threads=1, device="cpu")
    assert (on_gpu.hardware_class, on_gpu.accelerator) == ("1x-nvidia-h200", "NVIDIA H200")
    assert on_cpu.hardware_class.startswith("cpu-")
    assert (on_cpu.accelerator, on_cpu.accelerator_count) == (None, 0)


def test_given_hardware_class_wins():
    assert probe(worker="grace", hardware_class="lab", threads=1).hardware_class == "lab"


def test_probe_finds_processor_memory_and_versions():
    system = probe(worker="grace", hardware_class=None, threads=1)
    assert system.processor
    assert system.processor_count >= 1
    assert system.memory_gib > 0.1
    assert system.software["torch"]


def nvidia_smi(folder, script):
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    return str(folder)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("printf 'NVIDIA H200\\nNVIDIA H200\\n'", ["NVIDIA H200", "NVIDIA H200"]),
        ("echo 'could not communicate with the driver' >&2; exit 9", []),
        ("exit 0", []),
    ],
)
def test_accelerators_are_read_from_the_drivers_tool(tmp_path, monkeypatch, script, expected):
    monkeypatch.setenv("PATH", nvidia_smi(tmp_path, script), prepend=":")
    assert nvidia_accelerators() == expected


def test_host_without_the_tool_has_no_accelerator(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert nvidia_accelerators() == []


def test_worker_process_loads_neither_torch_nor_a_database():
    code = (
        "import sys, worker.__main__, worker.local;"
        "sys.exit(' '.join({'torch', 'sqlalchemy', 'fastapi'} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.stderr.strip() == ""
    assert ended.returncode in (0, 1)
