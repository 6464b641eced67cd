"""Sandboxes as containers of podman: an empty root, read-only mounts, a socket to the worker.

podman has no daemon, so a worker needs only its own rights. An ordinary user's container runs as
that user, a root worker's as the sandbox's uid. Both have a user namespace.
"""

import functools
import json
import os
import re
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from worker.sandbox.bubblewrap import BOX_UID, SEARCHED, version_in
from worker.sandbox.inside.keeper import CHANNEL, FILTER, WORKER_SOCKET
from worker.sandbox.order import (
    RUNNER,
    SCRATCH,
    BoxUnavailableError,
    Order,
    Started,
    filter_path,
    hidden_folders,
    require_filter,
    runner_command,
    seen_binds,
    spawn,
    variables,
)
from worker.sandbox.packages import Bind, interpreter_binds, library_binds

KEEPER = RUNNER.with_name("keeper.py")
OLDEST_PODMAN = (4, 3)
PODMAN_NEEDED = (
    "podman 4.3 with crun is needed; on Debian 12, Ubuntu 24.04 and later: apt install podman crun"
)
INNER_UID = 1000
# The container's unused root, on a root worker's host.
UNUSED_UID = BOX_UID - 1
# Hidden: files of the first process, queues, and zeros, because shared zeros are memory outside
# every tmpfs. Also the host's devices, unless a GPU's driver reads them.
MASKED = ("/proc/1", "/dev/mqueue", "/dev/zero")
HOST_DEVICES = "/sys"
POLL_SECONDS = 0.05
PEER = struct.Struct("3i")  # struct ucred: pid, uid, gid


def launch(order: Order, folder: Path) -> Started:
    """Start a container with its root in `folder`. Raises BoxUnavailableError or OSError."""
    folder.chmod(0o755)
    binds = [
        *seen_binds(order),
        Bind(KEEPER, f"/{KEEPER.name}"),
        Bind(filter_path(), FILTER),
        Bind(folder / "socket", WORKER_SOCKET),
    ]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
        (folder / "socket").chmod(0o666)
        listener.listen(2)
        _make_root(folder / "root", binds)
        as_root = os.geteuid() == 0
        run = command(order, binds, root=folder / "root", as_root=as_root, has_cgroup=has_cgroup())
        process = spawn(run, variables={"PATH": SEARCHED})
        give_up_at = time.monotonic() + order.limits.hello_seconds
        life = channel = None
        while channel is None and process.poll() is None and time.monotonic() < give_up_at:
            life, channel = life or _accepted(listener), life and _accepted(listener)
    if life is None or channel is None:
        if life is not None:
            life.close()
        process.kill()
        said = process.communicate()[0].decode(errors="replace").strip().splitlines()
        raise BoxUnavailableError(
            f"a sandbox did not start: {said[-1] if said else 'no word of it'}"
        )
    pid, _ = _peer(life)

    def stop() -> None:
        """Kill the container's first process, and all others with it."""
        if process.poll() is None:  # podman ends after the container, whose number is then free.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    return Started(process, channel, pid, stop, held=life)


def _accepted(listener: socket.socket) -> socket.socket | None:
    """Accept a connection of the sandbox's uid, because any user may open the socket."""
    listener.settimeout(POLL_SECONDS)
    with suppress(TimeoutError):
        end = listener.accept()[0]
        _, uid = _peer(end)
        if uid == uid_of_boxes():
            return end
        end.close()
    return None


def _peer(end: socket.socket) -> tuple[int, int]:
    """Return pid and uid of the other end, by this host's numbers."""
    pid, uid, _ = PEER.unpack(end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))
    return pid, uid


def uid_of_boxes() -> int:
    """Return the uid that a container's processes have on this host."""
    return BOX_UID if os.geteuid() == 0 else os.geteuid()


def _make_root(root: Path, binds: Sequence[Bind]) -> None:
    """Make an empty root with a place for each mount, so that podman adds none."""
    _, links = library_binds()
    folders = ["/proc", "/dev", "/sys", SCRATCH]
    files = ["/etc/hostname", "/etc/resolv.conf", "/run/.containerenv"]  # podman mounts its own.
    for bind in binds:
        (folders if bind.source.is_dir() else files).append(bind.target)
    for place in (root / name[1:] for name in folders):
        place.mkdir(parents=True, exist_ok=True)
    for place in (root / name[1:] for name in files):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    for goal, link in links:
        (root / link[1:]).symlink_to(goal)


def command(
    order: Order, binds: Sequence[Bind], *, root: Path, as_root: bool, has_cgroup: bool
) -> list[str]:
    """Return podman's command. Without cgroups the runner's limits and the watch remain."""
    limits = order.limits
    hidden = [*MASKED, *([] if order.gpus else [HOST_DEVICES]), *hidden_folders()]
    runs = "exec" if order.has_compiler else "noexec"
    found = [
        "podman", "run", "--rm", "--log-driver", "passthrough", "--passwd=false", "--no-hosts",
        "--network", "none", "--ipc", "none", "--pid", "private", "--uts", "private",
        "--hostname", "box", "--read-only", "--read-only-tmpfs=false", "--cap-drop", "all",
        "--security-opt", "no-new-privileges", "--security-opt", "mask=" + ":".join(hidden),
        "--user", f"{INNER_UID}:{INNER_UID}",
        "--ulimit", f"nofile={limits.open_files}:{limits.open_files}",
        "--ulimit", "nproc=4096:4096",  # The runner sets its own, lower one.
        "--tmpfs", f"/dev/shm:{_tmpfs(limits.shared_memory_bytes)},noexec",  # noqa: S108
        "--tmpfs", f"{SCRATCH}:{_tmpfs(limits.scratch_bytes)},{runs}",
        "--workdir", SCRATCH,
    ]  # fmt: skip
    if as_root:
        for kind in ("--uidmap", "--gidmap"):
            found += [kind, f"0:{UNUSED_UID}:1", kind, f"{INNER_UID}:{BOX_UID}:1"]
    else:
        found += ["--userns", f"keep-id:uid={INNER_UID},gid={INNER_UID}"]
    if has_cgroup:
        memory = str(limits.memory_bytes)
        found += ["--memory", memory, "--memory-swap", memory]
        found += ["--pids-limit", str(limits.processes + 1)]
    else:
        found += ["--cgroups", "disabled"]
    for gpu in order.gpus:
        found += ["--device", f"nvidia.com/gpu={gpu}"]
    for bind in binds:
        found += ["--volume", f"{bind.source}:{bind.target}:ro"]
    _, program = interpreter_binds()
    orders = {
        "command": runner_command(order, CHANNEL),
        "variables": variables(order),
        "processors": sorted(order.processors),
    }
    keeper = [program, "-I", "-S", "-B", "-u", f"/{KEEPER.name}", json.dumps(orders)]
    return [*found, "--rootfs", str(root), *keeper]


def _tmpfs(size: int) -> str:
    return f"rw,size={size},mode=1777,nosuid,nodev,notmpcopyup"


def check_host() -> None:
    """Raise BoxUnavailableError if podman is missing or too old, or without a filter."""
    if version_in(_ask("--version")) < OLDEST_PODMAN:
        raise BoxUnavailableError(PODMAN_NEEDED)
    require_filter()


@functools.cache
def has_cgroup() -> bool:
    """Say whether podman can limit memory and processes of a container here."""
    said = _ask("info", "--format", "{{.Host.CgroupsVersion}} {{.Host.CgroupControllers}}")
    return said.startswith("v2 ") and {"memory", "pids"} <= set(re.findall(r"\w+", said))


def why_no_cgroup() -> str | None:
    """Return why containers lack a cgroup, if they do."""
    return None if has_cgroup() else "podman has none of version 2 with memory, pids"


def _ask(*arguments: str) -> str:
    try:
        said = subprocess.run(
            ["podman", *arguments],  # noqa: S607
            env={"PATH": SEARCHED},
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return ""
    return said.stdout.strip()
