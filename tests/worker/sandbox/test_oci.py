"""Boxes that are containers: the command of podman, and their end."""

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from finishline.devices import Accelerator, Devices
from tests.worker.sandbox.conftest import LIMITS
from worker import entries
from worker.child_process import Host
from worker.entries import gpus_of
from worker.sandbox import oci
from worker.sandbox.order import BoxUnavailableError, Order
from worker.sandbox.packages import Bind
from worker.sandbox.protocol import Limits
from worker.sandbox.start import Box, check_box

ORDER = Order(Path("/made"), "train", {}, backend="oci")
BINDS = [Bind(Path("/made"), "/package")]


def flags(order, *, as_root=False, has_cgroup=False):
    found = oci.command(
        order, BINDS, root=Path("/root-of-box"), as_root=as_root, has_cgroup=has_cgroup
    )
    return " ".join(found[: found.index("--rootfs") + 2]) + " "


def test_a_container_has_no_network_no_rights_and_no_writable_place_but_two():
    said = flags(ORDER)

    for flag in (
        "podman run --rm ", "--network none ", "--read-only ", "--read-only-tmpfs=false ",
        "--cap-drop all ", "--security-opt no-new-privileges ", "--user 1000:1000 ",
        "--security-opt mask=/proc/1:/dev/mqueue:/dev/zero:/sys:", "--ipc none ", "--pid private ",
        "--ulimit nofile=256:256 ", "--volume /made:/package:ro ", "--rootfs /root-of-box ",
        f"--tmpfs /scratch:rw,size={256 << 20},mode=1777,nosuid,nodev,notmpcopyup,noexec ",
        "--userns keep-id:uid=1000,gid=1000 ", "--cgroups disabled",
    ):  # fmt: skip
        assert flag in said
    assert said.count("--tmpfs") == 2
    assert said.count("--volume") == said.count(":ro ") == 1
    # Root's runs as the uid of boxes, and limits are the cgroup's where podman has one.
    assert "--uidmap 0:64998:1 --uidmap 1000:64999:1 " in flags(ORDER, as_root=True)
    limited = replace(ORDER, limits=Limits(memory_bytes=5 << 20, processes=7))
    said = flags(limited, has_cgroup=True)
    assert "--memory 5242880 --memory-swap 5242880 --pids-limit 8 " in said


def test_a_gpu_comes_by_its_cdi_name(monkeypatch):
    shown = [Accelerator(f"GPU-{number}", "H100", "GPU") for number in (7, 3)]
    monkeypatch.setattr(entries, "find_devices", lambda: Devices(tuple(shown)))
    host = Host(device="cuda:1", data_dir=Path("unused"), box="oci")
    order = Order(Path("/made"), "train", {}, gpus=gpus_of(host))

    said = flags(order)

    assert "--device nvidia.com/gpu=GPU-3 " in said
    assert ":/sys" not in said  # Its driver reads it.
    assert "RLIMIT_DATA" not in json.dumps(oci.runner_command(order, 3))
    assert gpus_of(Host(device="cuda:1", data_dir=Path("unused"))) == ()
    assert gpus_of(Host(device="cpu", data_dir=Path("unused"), box="oci")) == ()


@pytest.fixture
def podman(monkeypatch):
    caches = (check_box, oci.has_cgroup)

    def answer(said):
        for cached in caches:
            cached.cache_clear()
        monkeypatch.setattr(oci, "_ask", lambda *_: said)

    yield answer
    for cached in caches:
        cached.cache_clear()


@pytest.mark.parametrize("version", ["", "podman version 4.2.1", "podman version dev"])
def test_an_old_podman_is_off(podman, version):
    podman(version)
    assert str(check_box("oci")).startswith("off: podman 4.3 with crun is needed; on Debian 12")


@pytest.mark.parametrize(
    ("said", "has_cgroup"),
    [("v2 [cpuset cpu io memory pids]", True), ("v2 [pids]", False), ("v1 [memory pids]", False),
     ("", False)],
)  # fmt: skip
def test_a_host_with_memory_cgroups_takes_anyone(podman, said, has_cgroup):
    podman(said)
    assert oci.has_cgroup() is has_cgroup


def test_a_container_ends_with_its_worker(containers, tmp_path):
    tmp_path.chmod(0o755)
    order = Order(tmp_path, "train", {}, limits=LIMITS, backend="oci")
    with Box(order) as box:
        box.socket.recv(1)
        began = time.monotonic()
        # The kernel closes it as it closes all that a worker has when it dies.
        box._started.held.close()

        assert box.exit_status(wait_seconds=10) == 0
        assert time.monotonic() - began < 5


def test_another_user_who_opens_the_socket_is_no_box(monkeypatch, tmp_path):
    connect = "socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    program = f"import socket, sys; {connect}; {connect}"
    stranger = [sys.executable, "-c", program, str(tmp_path / "socket")]
    monkeypatch.setattr(oci, "command", lambda *_, **__: stranger)
    monkeypatch.setattr(oci, "uid_of_boxes", lambda: os.geteuid() + 1)

    with pytest.raises(BoxUnavailableError, match="a sandbox did not start"):
        oci.launch(ORDER, tmp_path)
