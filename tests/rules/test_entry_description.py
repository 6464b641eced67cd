"""System descriptions of v0.5: an entry.json with nodes."""

import json
from typing import Any

import pytest

from finishline.rules.errors import RuleError
from finishline.rules.submissions.descriptions import SystemDescription, read_entry_system

NODE: dict[str, Any] = {
    "num_nodes": 80, "cpu": "2x Intel(R) Xeon(R) CPU E5-2698 v4 @ 2.20GHz", "num_cores": 40,
    "num_vcpus": 80, "accelerator": "Tesla V100-SXM2-16GB", "num_accelerators": 8,
    "sys_mem_size": 512,
}  # fmt: skip
ENTRY: dict[str, Any] = {
    "division": "closed", "status": "on-prem", "hardware": "DGX-1V", "framework": "MXNet",
    "os": "Ubuntu 16.04", "libraries": "cuda 10", "power": "N/A",
}  # fmt: skip


def read(*nodes: object, **entry: object) -> SystemDescription:
    content = json.dumps(ENTRY | {"nodes": list(nodes)} | entry).encode()
    return read_entry_system(content, file="entry.json")


def test_an_entry_is_told_in_the_words_of_later_rounds() -> None:
    system = read(NODE)
    assert (system.system_name, system.division, system.framework) == ("DGX-1V", "closed", "MXNet")
    assert (system.operating_system, system.software) == ("Ubuntu 16.04", {"": "cuda 10"})
    assert (system.number_of_nodes, system.accelerators_per_node) == (80, 8)
    assert (system.accelerators, system.accelerator_model_name) == (640, "Tesla V100-SXM2-16GB")
    assert (system.host_processors_per_node, system.host_processor_core_count) == (2, 20)
    assert system.host_processor_model_name == "Intel(R) Xeon(R) CPU E5-2698 v4 @ 2.20GHz"
    assert (system.host_memory_capacity, system.host_processor_vcpu_count) == ("512 GB", 80)
    assert system.fields["hardware"] == "DGX-1V"
    assert (system.fields["num_accelerators"], system.problems) == ("8", ())


@pytest.mark.parametrize(
    ("nodes", "name", "count", "accelerators"),
    [
        (64, "tpuv2-512", 512, 512),
        (2, "tpuv3-32", 32, 32),
        (1, "tpuv2-8", 8, 8),
        (36, "Tesla V100-SXM3-H-32GB", 16, 576),
    ],
)
def test_a_slice_has_its_accelerators_in_all_nodes_together(
    nodes: int, name: str, count: int, accelerators: int
) -> None:
    """Expected: what the submitters' names say of their systems."""
    node = NODE | {"num_nodes": nodes, "accelerator": name, "num_accelerators": count}
    assert read(node).accelerators == accelerators


def test_a_system_without_accelerators_has_its_processors_in_its_name() -> None:
    node = NODE | {"num_nodes": 4, "cpu": "Intel(R) Xeon(R) Platinum 8180", "num_vcpus": "NA",
                   "accelerator": "NA", "num_accelerators": 0, "num_cores": 112,
                   "sys_mem_size": "768G"}  # fmt: skip
    system = read(node, hardware="4-nodes 4x Intel(R) Xeon(R) Platinum 8180 processor")
    assert (system.host_processors_per_node, system.host_processor_core_count) == (4, 28)
    assert (system.accelerator_model_name, system.accelerators) == (None, 0)
    assert (system.host_memory_capacity, system.host_processor_vcpu_count) == ("768G", None)
    assert system.problems == ()


def test_accelerators_in_the_name_are_no_processors() -> None:
    assert read(NODE | {"cpu": "Skylake"}, hardware="w/8xV100").host_processors_per_node is None


def test_nodes_of_several_kinds_are_added_up_and_keep_what_they_share() -> None:
    system = read(NODE | {"num_nodes": 3}, NODE | {"num_nodes": 1, "num_cores": 8})
    assert (system.number_of_nodes, system.accelerators) == (4, 32)
    assert (system.host_processor_core_count, system.host_processors_per_node) == (None, 2)
    assert system.fields["nodes[1].num_cores"] == "8"


@pytest.mark.parametrize("nodes", [None, [], "two", [3], [NODE, 3]])
def test_nodes_that_are_none_are_a_problem_and_nothing_is_refused(nodes: object) -> None:
    [problem] = read(nodes=nodes).problems
    assert (problem.file, problem.field) == ("entry.json", "nodes")


def test_counts_that_are_none_are_left_out() -> None:
    system = read(NODE | {"num_nodes": -1, "num_cores": [], "num_accelerators": "8 or so"})
    assert (system.number_of_nodes, system.accelerators) == (None, None)
    assert system.host_processor_core_count is None


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"[" * 9999])
def test_what_is_no_object_is_refused(content: bytes) -> None:
    with pytest.raises(RuleError):
        read_entry_system(content, file="entry.json")
