"""The surroundings of a worker, in a folder that plays the host's."""

import pytest

from worker.probe import (
    accelerator_facts,
    container_id,
    describe_surroundings,
    numa_nodes,
    processor_power_limit,
)

DOCKER = "0::/system.slice/docker-" + "ab" * 32 + ".scope\n"


@pytest.fixture
def root(tmp_path):
    def write(path, text):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    write("proc/self/cgroup", DOCKER)
    for node in range(11):
        write(f"sys/devices/system/node/node{node}/cpulist", f"{node}\n")
    write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n")
    write("sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw", "350000000\n")
    return tmp_path


def test_container_nodes_governor_and_limit_are_read_from_the_host(root):
    found = describe_surroundings(image_digest="sha256:1", root=root)
    assert found["container"] == "ab" * 32
    assert found["governor"] == "performance"
    assert found["processor_power_limit"] == "350 W"
    assert found["image_digest"] == "sha256:1"
    assert found["kernel"]


def test_memory_nodes_are_in_the_order_of_their_numbers(root):
    assert numa_nodes(root).endswith("9: 9, 10: 10")


def test_what_a_host_does_not_tell_is_absent(tmp_path):
    assert container_id(tmp_path) is None
    assert numa_nodes(tmp_path) is None
    assert processor_power_limit(tmp_path) is None
    assert describe_surroundings(root=tmp_path)["governor"] is None


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("570.1, 143771 MiB, 700.00 W", ("570.1", "143771 MiB", "700.00 W")),
        ("570.1, 143771 MiB, [N/A]", ("570.1", "143771 MiB", None)),
        ("", (None, None, None)),
    ],
)
def test_driver_memory_and_power_limit_come_from_the_drivers_tool(
    tmp_path, monkeypatch, said, expected
):
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\necho '{said}'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    facts = accelerator_facts()
    assert (facts["driver"], facts["accelerator_memory"], facts["power_limit"]) == expected
