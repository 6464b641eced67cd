"""Attempts to leave a box, as a package would make them, with the box whole and weakened.

Each attempt is made twice: in a box, where it is refused, and in one without the protection that
refuses it, where it succeeds or fails for a reason of its own, such as its empty arguments. A row
is a number of the list in docs/trainings.md.
"""

import functools
import json
import os
import platform
import shutil
import socket
import subprocess
import sysconfig
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.box_removals import remove
from tests.worker.sandbox import attempts
from tests.worker.sandbox.conftest import LIMITS, course
from worker.sandbox.bubblewrap import BOX_UID
from worker.sandbox.order import Order
from worker.sandbox.packages import requirements_of
from worker.sandbox.race import race


class Attempt(NamedTuple):
    """An attempt with its outcome in a box; it has another without the protection named."""

    row: int
    does: str
    outcome: str
    # None: refused by the kernel to any ordinary user, so that only root could show another.
    without: str | None
    step: str = "prepare"


LIBRARY = sysconfig.get_path("stdlib")
FILTERED = {
    4: "memfd_create memfd_secret shmget io_uring_setup io_setup vmsplice",
    14: "ptrace process_vm_readv",
    16: "sched_setaffinity",
    17: "bpf perf_event_open userfaultfd keyctl unshare kexec_load name_to_handle_at "
    "open_by_handle_at setns personality clock_settime clone_newuser inotify",
}
FAMILIES = ("AF_INET", "AF_INET6", "AF_NETLINK", "AF_PACKET", "AF_VSOCK")
TABLE = [
    Attempt(1, "fork 40", "EAGAIN", "RLIMIT_NPROC"),
    Attempt(2, "hold_private 320", "ENOMEM", "RLIMIT_DATA"),
    Attempt(5, "hold_shared 1", "EPERM", "seccomp"),
    Attempt(5, "hold_zeros 1", "ENODEV", "bind of /dev/zero"),
    *(
        Attempt(row, f"call {name}", "EPERM", "seccomp")
        for row, names in FILTERED.items()
        for name in names.split()
    ),
    Attempt(17, "call clone3", "ENOSYS", "seccomp"),
    Attempt(17, "call x32", "SIGSYS", "seccomp"),
    Attempt(17, "start_thread x", "done", None),
    Attempt(17, "mount /scratch", "EPERM", "seccomp, --disable-userns"),
    Attempt(17, "call chroot", "EPERM", "seccomp, --cap-drop"),
    Attempt(6, "fill /scratch", "ENOSPC", "--size"),
    Attempt(6, "fill /dev/shm", "ENOSPC", "--size"),
    Attempt(6, "write_large 300000000", "EFBIG", "RLIMIT_FSIZE"),
    Attempt(6, "open_files 300", "EMFILE", "RLIMIT_NOFILE"),
    Attempt(7, "write /new", "EROFS", "--remount-ro /"),
    Attempt(7, "write /usr/lib/new", "EROFS", "--remount-ro /"),
    Attempt(7, "write /dev/new", "EROFS", "--remount-ro /dev"),
    Attempt(7, "write /package/new", "EROFS", "read-only binds"),
    Attempt(7, "write /packages/numpy/new", "EROFS", None),
    Attempt(7, f"write {LIBRARY}/new", "EROFS", None),
    # Kernel memory that only a cgroup bounds: such a host answers `known`.
    Attempt(8, "folders 5000", "done", None),
    Attempt(8, "pipes 100", "done", None),
    Attempt(8, "sockets 100", "done", None),
    *(Attempt(9, f"open_socket {name}", "EAFNOSUPPORT", "seccomp") for name in FAMILIES),
    Attempt(9, "connect {port}", "EAFNOSUPPORT", "seccomp, network namespace"),
    Attempt(9, "resolve localhost", "gaierror", None),
    Attempt(10, "connect {abstract}", "ECONNREFUSED", "network namespace"),
    Attempt(10, "connect {folder}/socket", "ENOENT", "list of mounts"),
    Attempt(11, "read {folder}/secret", "ENOENT", "list of mounts"),
    Attempt(11, "read /etc/passwd", "ENOENT", "list of mounts"),
    Attempt(11, "read /sys/kernel", "ENOENT", "list of mounts"),
    *(
        Attempt(11, f"read {name}", "ENOENT", None)
        for name in ("/etc/shadow", "/var/run/docker.sock", "/proc/kcore", "/dev/mem", "/dev/kmsg")
    ),
    Attempt(12, "variable FINISHLINE_WORKER_TOKEN", "absent from 11", "--clearenv"),
    *(
        Attempt(13, f"load {name}", "ModuleNotFoundError", "list of packages")
        for name in ("sklearn", "psutil", "pydantic")
    ),
    Attempt(13, "load worker", "ModuleNotFoundError", None),
    Attempt(13, f"read {LIBRARY}/site-packages", "empty", "masks"),
    Attempt(14, "rewrite_first x", "ENOENT", "mask of /proc/1"),
    Attempt(14, "read /proc/{neighbour}/cmdline", "ENOENT", "process namespace"),
    Attempt(15, "signal_to {neighbour}", "ESRCH", "process namespace"),
    Attempt(15, "stop_first x", "done", None),  # A first process is sent no signal from inside.
    Attempt(16, "batch x", "EPERM", "seccomp"),
    Attempt(16, "hurry -5", "EPERM", None),
    Attempt(16, "real_time x", "EPERM", None),
    Attempt(16, "survive -500", "EACCES", None),
    Attempt(18, "write /proc/sys/kernel/core_pattern", "EACCES", None),
    Attempt(18, "write /proc/sys/kernel/hostname", "EACCES", None),
    Attempt(19, "set_uid 0", "EINVAL", None),
    Attempt(19, "crash_bytes x", "1", "RLIMIT_CORE"),  # The one value that starts no program.
    Attempt(19, "type_ahead 0x5412", "EPERM", "seccomp"),
    Attempt(19, "type_ahead 0x100005412", "EPERM", "seccomp"),  # The same to the kernel.
    *(
        Attempt(29, f"change_data {way}", "EPERM", "seals", "train")
        for way in ("write", "map", "reopen", "truncate")
    ),
    Attempt(31, "memory_files x", "none", "data with go"),
]
if platform.machine() != "x86_64":  # Calls are made by their numbers on that machine.
    TABLE = [one for one in TABLE if not one.does.startswith("call ")]


@pytest.fixture(scope="module")
def facts():
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)
        (folder / "secret").write_text("labels")
        (folder / "secret").chmod(0o644)
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        abstract = f"\0finishline-{os.getpid()}"
        for address in (abstract, str(folder / "socket")):
            end = stack.enter_context(socket.socket(socket.AF_UNIX))
            end.bind(address)
            end.listen()
        (folder / "socket").chmod(0o777)
        uid = BOX_UID if os.geteuid() == 0 else None
        sleep = [shutil.which("sleep") or "sleep", "600"]
        neighbour = stack.enter_context(subprocess.Popen(sleep, user=uid))
        stack.callback(neighbour.kill)
        yield {
            "folder": folder,
            "port": tcp.getsockname()[1],
            "abstract": abstract.replace("\0", "@"),
            "neighbour": neighbour.pid,
        }


# Outcomes in a container that are others than in bubblewrap's box.
CONTAINED = {
    "write /dev/new": "EACCES",
    "write /proc/sys/kernel/core_pattern": "EROFS",
    "write /proc/sys/kernel/hostname": "EROFS",
    "variable FINISHLINE_WORKER_TOKEN": "absent from 10",  # bubblewrap adds PWD.
    "set_uid 0": "EPERM",  # It has a root, which is nobody outside.
}


@pytest.fixture(scope="module")
def outcomes(facts):
    """Outcomes of the attempts in one box: of all, or of those that a protection refuses."""

    @functools.cache
    def make(without, backend="bwrap"):
        wanted = [one for one in TABLE if without in (None, one.without)]
        # Those of the first step are printed before those of the second.
        wanted.sort(key=lambda one: one.step)
        with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setenv("FINISHLINE_WORKER_TOKEN", "fl_secret")
            package = Path(name)
            package.chmod(0o777)  # Anybody may write to it, as far as its mount allows.
            (package / "train.py").write_text(Path(attempts.__file__).read_text())
            steps = {"prepare": [], "train": []}
            for one in wanted:
                steps[one.step].append(one.does.format(**facts))
            (package / "facts.json").write_text(json.dumps(steps))
            if without is not None:
                remove(without, monkeypatch, Path(str(facts["folder"])))
            packages = dict(requirements_of(["numpy"]))
            order = Order(
                package=package, module="train", packages=packages, limits=LIMITS, backend=backend
            )
            result = race(order, course(), seed=7)
        said = [line for line in result.log_tail.splitlines() if line.startswith("RESULT ")]
        assert said, result
        assert result.status == "reached"  # The attempts leave the run as it is.
        found = [outcome for line in said for outcome in json.loads(line.removeprefix("RESULT "))]
        return dict(zip(wanted, found, strict=True))

    return make


@pytest.mark.parametrize("attempt", TABLE, ids=lambda one: f"{one.row} {one.does}")
def test_a_box_refuses_an_attempt(attempt, outcomes):
    assert outcomes(None)[attempt] == attempt.outcome


@pytest.mark.nightly
@pytest.mark.parametrize(
    "attempt", [one for one in TABLE if one.without], ids=lambda one: f"{one.row} {one.does}"
)
def test_the_attempt_passes_without_its_protection(attempt, outcomes):
    assert outcomes(attempt.without)[attempt] != attempt.outcome


def test_a_container_refuses_the_same_attempts(containers, outcomes):
    expected = {one: CONTAINED.get(one.does, one.outcome) for one in TABLE}

    assert outcomes(None, "oci") == expected
