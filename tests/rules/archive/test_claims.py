"""What a published result set claims."""

import json
from typing import Any

import pytest

from finishline.rules.archive.claims import NOT_STATED, set_benchmark_id, set_claim
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.submissions.claim import HARDWARE_CLASS, read_claim
from finishline.rules.submissions.descriptions import SystemDescription, read_system

RECORD = {
    "organisation": "Cisco",
    "system": "hpf_n8",
    "benchmark": "dlrm_dcnv2",
    "division": "closed",
    "version": "5.1",
    "definition": {"id": "mlperf-v5.1-dlrm_dcnv2", "sha256": "0" * 64},
    "runs": [{"file": "result_0.txt"}, {"file": "result_1.txt"}],
}
# As in Cisco's published hpf_n8.json.
DESCRIPTION = {
    "division": "closed",
    "status": "Available on-premise",
    "system_name": "hpf_n8",
    "number_of_nodes": "8",
    "host_processors_per_node": "2",
    "host_processor_model_name": "Intel(R) Xeon(R) Platinum 8592+",
    "host_memory_capacity": "2 TB",
    "accelerators_per_node": "8",
    "accelerator_model_name": "NVIDIA H100-SXM5-80GB",
    "framework": "PyTorch NVIDIA Release 23.09",
}


def describe(**others: Any) -> SystemDescription:
    return read_system(json.dumps(DESCRIPTION | others).encode(), file="systems/hpf_n8.json")


def system_of(**others: Any) -> dict[str, Any]:
    system: dict[str, Any] = set_claim(RECORD, describe(**others))["system"]
    return system


def test_a_set_claims_what_its_package_says() -> None:
    assert set_claim(RECORD, describe()) == {
        "benchmark": "mlperf-v5.1-dlrm_dcnv2",
        "division": "closed",
        "model": "dlrm_dcnv2",
        "framework": "PyTorch NVIDIA Release 23.09",
        "system": {
            "name": "hpf_n8",
            "hardware_class": "64-nvidia-h100-sxm5-80gb",
            "processor": "Intel(R) Xeon(R) Platinum 8592+",
            "processor_count": 16,
            "memory_gib": 16384.0,
            "accelerator": "NVIDIA H100-SXM5-80GB",
            "accelerator_count": 64,
        },
        "runs": ["result_0.txt", "result_1.txt"],
        "organisation": "Cisco",
        "notes": "MLPerf Training v5.1: Cisco/hpf_n8/dlrm_dcnv2 (Available on-premise)",
    }


@pytest.mark.parametrize("description", [describe(), None], ids=["described", "not described"])
def test_the_claim_is_one_that_the_rules_accept(
    benchmarks: dict[str, Benchmark], description: SystemDescription | None
) -> None:
    content = json.dumps(set_claim(RECORD, description)).encode()
    claim = read_claim(content, file="submission.json", benchmarks=benchmarks, archive=True)
    assert (claim.organisation, claim.benchmark_id) == ("Cisco", "mlperf-v5.1-dlrm_dcnv2")


def test_without_a_description_the_system_is_what_its_folder_is_called() -> None:
    claim = set_claim(RECORD, None)
    assert claim["system"] == {
        "name": "hpf_n8",
        "hardware_class": "hpf-n8",
        "processor": NOT_STATED,
    }
    assert claim["framework"] == NOT_STATED


def test_systems_without_accelerators_are_compared_by_their_processors() -> None:
    system = system_of(accelerators_per_node="0", accelerator_model_name="N/A")
    assert system["hardware_class"] == "16-intel-r-xeon-r-platinum-8592"
    assert system["accelerator_count"] == 0
    assert "accelerator" not in system


@pytest.mark.parametrize(
    ("text", "gib"),
    [("2 TB", 2048.0), ("512GB", 512.0), ("1,536 GiB", 1536.0), ("2.25 TB", 2304.0)],
)
def test_memory_is_read_in_every_usual_unit(text: str, gib: float) -> None:
    assert system_of(number_of_nodes=1, host_memory_capacity=text)["memory_gib"] == gib


@pytest.mark.parametrize("text", ["", "N/A", "a lot", "24x 96GB", "2.048 TB", "-2 TB", "2 PB"])
def test_memory_that_is_not_certain_is_left_out(text: str) -> None:
    assert "memory_gib" not in system_of(host_memory_capacity=text)


def test_any_name_makes_a_hardware_class() -> None:
    for name in ("", "ÄÖÜ", "x" * 500, "...", "a/../b"):
        system = system_of(accelerator_model_name=name, host_processor_model_name=name)
        assert HARDWARE_CLASS.fullmatch(system["hardware_class"])


def test_systems_of_v05_are_named_by_their_hardware_and_kept_apart() -> None:
    small = read_system(b'{"hardware": "tpuv2-8", "nodes": []}', file="entry.json")
    large = read_system(b'{"hardware": "tpuv2-512 + tpuv2-8"}', file="entry.json")
    record = RECORD | {"system": "tpu", "version": "0.5"}
    systems = [set_claim(record, each)["system"] for each in (small, large)]
    assert [system["name"] for system in systems] == ["tpuv2-8", "tpuv2-512 + tpuv2-8"]
    assert systems[0]["hardware_class"] != systems[1]["hardware_class"]


def test_a_benchmark_nobody_here_defines_is_named_by_round_and_name() -> None:
    record = RECORD | {"definition": None, "version": "4.1", "benchmark": "stable_diffusion"}
    assert set_benchmark_id(record) == "mlperf-v4.1-stable_diffusion"


def test_what_is_missing_is_left_out() -> None:
    assert "division" not in set_claim(RECORD | {"division": None}, None)
