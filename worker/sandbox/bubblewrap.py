"""Sandboxes of bubblewrap and a seccomp filter, as an ordinary user.

A worker that runs as root starts them through a separate uid. Otherwise the inner user would be
root outside: it could write the kernel's settings and exceed every limit to processes.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from worker.sandbox.order import (
    SCRATCH,
    BoxUnavailableError,
    Order,
    Started,
    channel_pair,
    filter_path,
    hidden_folders,
    require_filter,
    runner_command,
    seen_binds,
    spawn,
    variables,
)
from worker.sandbox.packages import Bind, library_binds
from worker.sandbox.usage import BoxCgroup, NoCgroupError, delegated

# bubblewrap itself, which ends the sandbox and is outside its limits. Code could outlive the run by
# writing to its memory, so its files are hidden.
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

# The uid that a root worker's sandbox has on the host. It owns nothing else.
BOX_UID = 64_999
# PATH of a sandbox's programs, instead of the worker's.
SEARCHED = "/usr/sbin:/usr/bin:/sbin:/bin"
# A private mount namespace in which root shows the uid files below folders closed to it.
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
    """Start a sandbox. Root stages its files in the empty `folder`. Raises OSError."""
    staged = str(folder) if os.geteuid() == 0 else None
    parent = delegated()
    cgroup = BoxCgroup(parent, order.limits) if isinstance(parent, Path) else None
    try:
        with channel_pair() as (end, inside):
            process = _start(order, inside.fileno(), staged, cgroup)
    except BaseException:
        if cgroup is not None:
            cgroup.remove()
        raise
    return Started(process, end, process.pid, process.kill, cgroup=cgroup)


def _start(
    order: Order, channel: int, stage: str | None, cgroup: BoxCgroup | None
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
            *runner_command(order, channel),
        ]  # fmt: skip
        if stage is not None:
            command = through_own_uid(command, [bind.source for bind in binds], stage)
        if cgroup is not None:
            command = cgroup.entering(command)
        return spawn(command, variables={"PATH": SEARCHED}, descriptors=[channel, rules, listed])
    finally:
        os.close(rules)
        os.close(listed)


def _arguments(order: Order, *, staged: str | None) -> tuple[list[str], list[Bind]]:
    """Return bubblewrap's arguments, and the binds in the order of staging."""
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
        "--dev-bind", "/dev/null", "/dev/zero",  # Shared zeros are memory outside every tmpfs.
        "--size", str(limits.shared_memory_bytes), "--tmpfs", "/dev/shm",  # noqa: S108
        "--size", str(limits.scratch_bytes), "--tmpfs", SCRATCH,
        "--remount-ro", FIRST_PROCESS, "--remount-ro", "/dev", "--remount-ro", "/",
        "--chdir", SCRATCH,
    ]  # fmt: skip
    return found, binds


def check_host() -> None:
    """Raise BoxUnavailableError if bubblewrap cannot start a sandbox on this host."""
    find_bubblewrap()
    if os.geteuid() == 0 and not may_use_own_uid():
        raise BoxUnavailableError(ROOT_REFUSED)


def why_no_cgroup() -> str | None:
    """Return why sandboxes lack a cgroup, if they do."""
    found = delegated()
    return str(found) if isinstance(found, NoCgroupError) else None


def reason_of(line: str) -> str | None:
    """Return plainer words for the last line of a bubblewrap that was refused namespaces."""
    is_refused = re.match(r"bwrap: .*(namespace|uid map|loopback)", line)
    return NAMESPACES_REFUSED if is_refused else None


def find_bubblewrap() -> str:
    """Find a bubblewrap that is new enough. Raises BoxUnavailableError."""
    found = shutil.which("bwrap")
    if found is None or sys.platform != "linux":
        raise BoxUnavailableError(BUBBLEWRAP_NEEDED)
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
    if said.returncode:  # For example killed from outside: its version is unknown.
        raise BoxUnavailableError(f"{found} --version ended with {said.returncode}; try again")
    if version_in(said.stdout) < OLDEST_BUBBLEWRAP:
        raise BoxUnavailableError(BUBBLEWRAP_NEEDED)
    require_filter()
    return found


def version_in(said: str) -> tuple[int, ...]:
    """Return the two first numbers of a program's last word, (0, 0) if it names no version."""
    try:
        return tuple(int(part) for part in said.split()[-1].split(".")[:2])
    except (ValueError, IndexError):
        return (0, 0)


def through_own_uid(command: list[str], sources: Iterable[Path], stage: str) -> list[str]:
    """Wrap a command so that root stages these files by number, then runs it as the uid."""
    return [
        "unshare", "--mount", "--propagation", "private",
        "/bin/sh", "-c", STAGE, "stage", stage, *map(str, sources), "--",
        "setpriv", f"--reuid={BOX_UID}", f"--regid={BOX_UID}", "--clear-groups",
        "--inh-caps=-all", "--bounding-set=-all", "--",
        *command,
    ]  # fmt: skip


def may_use_own_uid() -> bool:
    """Say whether root may start a program through the uid on this host."""
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
