"""Boxes of bubblewrap and a seccomp filter, as an ordinary user.

A worker that runs as root starts them through a uid of its own. Else the inner user would be root
outside: it could write the kernel's settings, and no limit to processes would hold.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from worker.sandbox.cgroup import BoxCgroup, NoCgroupError, delegated
from worker.sandbox.order import (
    SCRATCH,
    BoxUnavailableError,
    Order,
    Started,
    filter_path,
    hidden_folders,
    require_filter,
    runner_command,
    seen_binds,
    variables,
)
from worker.sandbox.packages import Bind, library_binds

# bubblewrap's own, which ends the box and has none of its limits. A package that writes to its
# memory outlives the run, so its files are hidden.
FIRST_PROCESS = "/proc/1"
OLDEST_BUBBLEWRAP = (0, 8)
BUBBLEWRAP_NEEDED = (
    "bubblewrap 0.8 is needed; on Debian 12, Ubuntu 24.04 and later: apt install bubblewrap"
)
ROOT_REFUSED = (
    "worker runs as root, and this host does not let it start a sandbox through a uid of its own; "
    "run it as an ordinary user"
)
NAMESPACES_REFUSED = (
    "namespaces are refused to ordinary users; in a container run the worker on the host instead, "
    "on Ubuntu 24.04 load AppArmor's profile bwrap-userns-restrict, or with podman set "
    "FINISHLINE_BOX=oci"
)

# The uid that a box of a root worker has on the host: no file and no other process is its own.
BOX_UID = 64_999
# Of a box's programs. Nothing of the worker's own path.
SEARCHED = "/usr/sbin:/usr/bin:/sbin:/bin"
# A private mount namespace in which root shows the box's uid files below folders closed to it.
STAGE = """
set -e
mount -t tmpfs -o mode=755,size=1m stage "$1"
stage=$1; shift
n=0
while [ "$1" != -- ]; do
    if [ -d "$1" ]; then mkdir "$stage/$n"; else : > "$stage/$n"; fi
    mount --bind "$1" "$stage/$n"
    mount -o remount,bind,ro "$stage/$n"
    n=$((n+1)); shift
done
shift
exec "$@"
"""


def launch(order: Order, folder: Path) -> Started:
    """Start a box. Root stages its files in the empty `folder`. Raises OSError."""
    staged = str(folder) if os.geteuid() == 0 else None
    parent = delegated()
    cgroup = BoxCgroup(parent, order.limits) if isinstance(parent, Path) else None
    end, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with inside:
        try:
            process = _start(order, inside, staged, cgroup)
        except BaseException:
            end.close()
            if cgroup is not None:
                cgroup.remove()
            raise
    return Started(process, end, process.pid, process.kill, cgroup=cgroup)


def _start(
    order: Order, inside: socket.socket, stage: str | None, cgroup: BoxCgroup | None
) -> "subprocess.Popen[bytes]":
    arguments, binds = _arguments(order, staged=stage)
    rules = os.open(filter_path(), os.O_RDONLY | os.O_CLOEXEC)
    listed = os.memfd_create("arguments")
    try:
        os.write(listed, b"\0".join(part.encode() for part in arguments) + b"\0")
        os.lseek(listed, 0, os.SEEK_SET)
        command = [
            find_bubblewrap(),
            "--args", str(listed),
            "--seccomp", str(rules),
            "--",
            *runner_command(order, inside.fileno()),
        ]  # fmt: skip
        if stage is not None:
            command = through_own_uid(command, [bind.source for bind in binds], stage)
        if cgroup is not None:
            command = cgroup.entering(command)
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"PATH": SEARCHED},
            pass_fds=(inside.fileno(), rules, listed),
            start_new_session=True,
        )
    finally:
        os.close(rules)
        os.close(listed)


def _arguments(order: Order, *, staged: str | None) -> tuple[list[str], list[Bind]]:
    """Arguments of bubblewrap, and the binds in the order in which they are staged."""
    _, links = library_binds()
    binds = seen_binds(order)
    limits = order.limits
    found = [
        "--unshare-user", "--unshare-all", "--uid", "1000", "--gid", "1000", "--disable-userns",
        "--cap-drop", "ALL", "--die-with-parent", "--new-session", "--hostname", "box",
        "--clearenv",
    ]  # fmt: skip
    for name, value in variables(order).items():
        found += ["--setenv", name, value]
    for goal, link in links:
        found += ["--symlink", goal, link]
    for number, bind in enumerate(binds):
        source = f"{staged}/{number}" if staged is not None else str(bind.source)
        found += ["--ro-bind", source, bind.target]
    for folder in hidden_folders():
        found += ["--size", "4096", "--tmpfs", folder, "--remount-ro", folder]
    found += [
        "--proc", "/proc", "--tmpfs", FIRST_PROCESS, "--dev", "/dev",
        "--dev-bind", "/dev/null", "/dev/zero",  # Shared, it is memory that no tmpfs bounds.
        "--size", str(limits.shared_memory_bytes), "--tmpfs", "/dev/shm",  # noqa: S108
        "--size", str(limits.scratch_bytes), "--tmpfs", SCRATCH,
        "--remount-ro", FIRST_PROCESS, "--remount-ro", "/dev", "--remount-ro", "/",
        "--chdir", SCRATCH,
    ]  # fmt: skip
    return found, binds


def check_host() -> None:
    """Raise BoxUnavailableError where bubblewrap can start no box, before one is."""
    find_bubblewrap()
    if os.geteuid() == 0 and not may_use_own_uid():
        raise BoxUnavailableError(ROOT_REFUSED)


def why_no_cgroup() -> str | None:
    """The reason why boxes have no cgroup, None if they have one."""
    found = delegated()
    return str(found) if isinstance(found, NoCgroupError) else None


def reason_of(line: str) -> str | None:
    """The reason of bubblewrap's last line, if it is one that ordinary words say better."""
    if re.match(r"bwrap: .*(namespace|uid map|loopback)", line):
        return NAMESPACES_REFUSED
    return None


def find_bubblewrap() -> str:
    """The path of a bubblewrap that is new enough. Raises BoxUnavailableError."""
    found = shutil.which("bwrap")
    if found is None or sys.platform != "linux":
        raise BoxUnavailableError(BUBBLEWRAP_NEEDED)
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
    if said.returncode:  # Killed from outside, say: it tells nothing about its version.
        raise BoxUnavailableError(f"{found} --version ended with {said.returncode}; try again")
    try:
        version = tuple(int(part) for part in said.stdout.split()[-1].split(".")[:2])
    except (ValueError, IndexError):
        version = (0, 0)
    if version < OLDEST_BUBBLEWRAP:
        raise BoxUnavailableError(BUBBLEWRAP_NEEDED)
    require_filter()
    return found


def through_own_uid(command: list[str], sources: Iterable[Path], stage: str) -> list[str]:
    """The command through the uid, after root has staged these files for it by their numbers."""
    return [
        "unshare", "--mount", "--propagation", "private",
        "/bin/sh", "-c", STAGE, "stage", stage, *map(str, sources), "--",
        "setpriv", f"--reuid={BOX_UID}", f"--regid={BOX_UID}", "--clear-groups",
        "--inh-caps=-all", "--bounding-set=-all", "--",
        *command,
    ]  # fmt: skip


def may_use_own_uid() -> bool:
    """Whether root may start a program through the uid on this host."""
    with tempfile.TemporaryDirectory() as stage:
        try:
            tried = subprocess.run(
                through_own_uid(["true"], [Path(__file__)], stage),
                env={"PATH": SEARCHED},
                stderr=subprocess.DEVNULL,
                check=False,
            )
        except OSError:
            return False
    return tried.returncode == 0
