"""Cgroups of boxes, against a folder of plain files in the kernel's place."""

import os
import subprocess
from itertools import count

import pytest

from worker.sandbox import bubblewrap, start
from worker.sandbox.protocol import Limits
from worker.sandbox.start import check_box
from worker.sandbox.usage import BoxCgroup, NoCgroupError, Usage, delegate

OWN = "1:name=systemd:/x\n0::/system.slice/worker.service\n"


@pytest.fixture
def root(tmp_path):
    """A tree whose worker's cgroup was delegated, with the worker as its only process."""
    folder = tmp_path / "system.slice" / "worker.service"
    folder.mkdir(parents=True)
    (folder / "cgroup.type").write_text("domain\n")
    (folder / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    (folder / "cgroup.procs").write_text(f"{os.getpid()}\n")
    (folder / "cgroup.subtree_control").write_text("")
    return tmp_path


def test_the_worker_moves_aside_and_hands_its_controllers_down(root):
    folder = delegate(root, OWN)

    assert folder == root / "system.slice/worker.service"
    assert (folder / "worker/cgroup.procs").read_text() == str(os.getpid())
    assert (folder / "cgroup.subtree_control").read_text() == "+memory +pids +cpu"


@pytest.mark.parametrize(
    ("own", "file", "text", "said"),
    [
        ("1:memory:/x\n", "", "", "the worker has none of version 2 with memory, pids, cpu"),
        ("0::/gone\n", "", "", "the worker has none of version 2"),
        (OWN, "cgroup.controllers", "pids cpu\n", "the worker has none of version 2"),
        (OWN, "cgroup.procs", "1\n", "other processes are in the worker's; start it as a unit"),
    ],
)
def test_a_cgroup_that_is_not_the_workers_alone_is_left(root, own, file, text, said):
    folder = root / "system.slice/worker.service"
    if file:
        (folder / file).write_text(text)

    with pytest.raises(NoCgroupError, match=said):
        delegate(root, own)

    assert not (folder / "worker").exists()
    assert (folder / "cgroup.subtree_control").read_text() == ""


def test_a_box_has_limits_and_enters_before_it_starts(tmp_path):
    limits = Limits(memory_bytes=5 << 20, processes=7, threads=2)
    cgroup = BoxCgroup(tmp_path, limits)
    found = {path.name: path.read_text() for path in cgroup.folder.iterdir()}

    told = subprocess.run(
        cgroup.entering(["/bin/sh", "-c", "echo $$"]), capture_output=True, text=True, check=True
    )

    memory = {"memory.max": str(5 << 20), "memory.swap.max": "0", "memory.oom.group": "1"}
    assert found == memory | {"pids.max": "11", "cpu.max": "200000 100000"}
    assert (cgroup.folder / "cgroup.procs").read_text() == told.stdout
    for path in cgroup.folder.iterdir():  # The kernel's own go with their folder.
        path.unlink()
    cgroup.remove()
    assert not cgroup.folder.exists()


def test_use_is_read_where_the_kernel_tells_it(tmp_path):
    cgroup = BoxCgroup(tmp_path, Limits())
    assert cgroup.usage() == Usage(None, was_killed=False)
    (cgroup.folder / "memory.peak").write_text("123456\n")
    (cgroup.folder / "memory.events").write_text("low 0\nmax 9\noom 1\noom_kill 3\n")
    (cgroup.folder / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 2000000\n")

    assert cgroup.usage() == Usage(123_456, was_killed=True, processor_seconds=2.5)


def test_processor_time_of_preparing_is_the_cgroups(run_code, tmp_path, monkeypatch):
    seconds = count(1.0, 6.0)
    monkeypatch.setattr(bubblewrap, "delegated", lambda: tmp_path)
    monkeypatch.setattr(BoxCgroup, "usage", lambda _: Usage(processor_seconds=next(seconds)))
    monkeypatch.setattr(BoxCgroup, "remove", lambda _: None)

    result = run_code("import time\ndef prepare(task): time.sleep(20)")

    assert result.code == "prepare_time_limit"
    assert result.message == (
        "the code used 12.00 s of the processor to prepare; expected at most 10 s"
    )


def test_a_box_that_the_kernel_killed_for_memory_is_told_so(run_code, tmp_path, monkeypatch):
    usage = Usage(99 << 20, was_killed=True)
    monkeypatch.setattr(bubblewrap, "delegated", lambda: tmp_path)
    monkeypatch.setattr(BoxCgroup, "usage", lambda _: usage)
    monkeypatch.setattr(BoxCgroup, "remove", lambda _: None)
    code = "import os, signal\ndef prepare(task): os.kill(os.getpid(), signal.SIGKILL)"

    result = run_code(code)

    assert result.code == "memory_limit"
    assert result.message == "the code held more than 256 MiB of memory"
    assert result.peak_bytes == 99 << 20


def test_a_host_whose_boxes_have_cgroups_takes_anyone_and_another_the_known(tmp_path, monkeypatch):
    told = []
    for found in (tmp_path, NoCgroupError("this kernel has none")):
        check_box.cache_clear()
        monkeypatch.setattr(bubblewrap, "delegated", lambda found=found: found)
        monkeypatch.setattr(start, "_probe", lambda _: [])
        told.append(str(check_box()))
    check_box.cache_clear()

    why = "only for approved users, as no memory cgroup bounds it: this kernel has none"
    assert told == ["anyone", f"known: {why}"]
