"""The order for a sandbox: a code submission, its limits, and the files and variables it sees.

Also the environments that this host offers: the families of packages installed here.
"""

import functools
import json
import platform
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from finishline.rules.canonical import sha256_of
from finishline.rules.trainings.manifest import FAMILIES, family_of
from worker.sandbox.packages import (
    COMPILER_VARIABLES,
    SITE,
    Bind,
    compiler_binds,
    gcc_version,
    interpreter_binds,
    library_binds,
    masked_folders,
    package_binds,
    requirements_of,
)
from worker.sandbox.protocol import Limits
from worker.sandbox.usage import BoxCgroup

RUNNER = Path(__file__).parent / "inside" / "runner.py"
PACKAGE = "/package"
SCRATCH = "/scratch"
Backend = Literal["bwrap", "oci"]
AnyBackend = Backend | Literal["plain"]


class BoxUnavailableError(Exception):
    """This host cannot start a sandbox. The message says why and what to do."""


@dataclass(frozen=True)
class Order:
    """A code submission to run in a sandbox.

    `packages` are the environment's, with their versions. `extra` are further read-only files, and
    `gpus` the UUIDs of a container's GPUs. Empty `processors` mean all.
    """

    package: Path
    module: str
    packages: dict[str, str | None]
    preload: Sequence[str] = ()
    limits: Limits = field(default_factory=Limits)
    extra: Sequence[Bind] = ()
    runner: Path = RUNNER
    backend: AnyBackend = "bwrap"
    gpus: Sequence[str] = ()
    has_compiler: bool = False
    processors: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Started:
    """A started sandbox. All its processes are below `pid`, and closing `held` ends a container."""

    process: "subprocess.Popen[bytes]"
    channel: socket.socket
    pid: int
    stop: Callable[[], None]
    held: socket.socket | None = None
    cgroup: BoxCgroup | None = None


def spawn(
    command: Sequence[str],
    *,
    variables: Mapping[str, str],
    folder: Path | None = None,
    descriptors: Sequence[int] = (),
) -> "subprocess.Popen[bytes]":
    """Start a sandbox's program in its own session. Its output is the log."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=folder,
        env=variables,
        pass_fds=descriptors,
        start_new_session=True,
    )


@contextmanager
def channel_pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Open the worker's end and the sandbox's end, which an error closes along with the other."""
    end, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with inside:
        try:
            yield end, inside
        except BaseException:
            end.close()
            raise


def runner_command(order: Order, channel: int) -> list[str]:
    """Return the command inside a sandbox whose channel has this number."""
    _, program = interpreter_binds()
    orders = json.dumps(runner_orders(order, channel))
    return [program, "-I", "-S", "-B", "-u", f"/{order.runner.name}", orders]


def runner_orders(order: Order, channel: int) -> dict[str, Any]:
    """Return the orders of the program inside, whose channel has this number."""
    limits = resource_limits(order.limits)
    if order.gpus:  # Their driver maps more than it holds.
        del limits["RLIMIT_DATA"]
    return {
        "channel": channel,
        "module": order.module,
        "site": SITE,
        "package": PACKAGE,
        "preload": list(order.preload),
        "limits": limits,
    }


def resource_limits(limits: Limits) -> dict[str, int]:
    """Return the limits that the runner sets first, by their names in `resource`."""
    return {
        "RLIMIT_NPROC": limits.processes,
        "RLIMIT_CPU": limits.cpu_seconds,
        "RLIMIT_NOFILE": limits.open_files,
        "RLIMIT_FSIZE": limits.file_bytes,
        "RLIMIT_DATA": limits.memory_bytes,
        "RLIMIT_CORE": 1,  # A core_pattern with a pipe starts a program of the host in spite of 0.
        "RLIMIT_MEMLOCK": 65_536,
        "RLIMIT_MSGQUEUE": 0,
        "RLIMIT_SIGPENDING": 256,
    }


def seen_binds(order: Order) -> list[Bind]:
    """Return the read-only files and folders that a sandbox sees. The system's come first."""
    return [
        *system_binds(),
        *(compiler_binds() if order.has_compiler else ()),
        *package_binds(order.packages),
        Bind(order.runner, f"/{order.runner.name}"),
        Bind(order.package, PACKAGE),
        *order.extra,
    ]


def system_binds() -> list[Bind]:
    """Return the binds of the shared libraries and the interpreter."""
    libraries, _ = library_binds()
    interpreter, _ = interpreter_binds()
    return [*libraries, *interpreter]


def hidden_folders() -> list[str]:
    """Return folders that look empty in a sandbox, below those that it sees."""
    return masked_folders(system_binds())


def variables(order: Order) -> dict[str, str]:
    """Return the whole environment of the processes in a sandbox."""
    threads = str(order.limits.threads)
    return {
        "PATH": "/nowhere",
        "HOME": SCRATCH,
        "TMPDIR": SCRATCH,
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        "TORCHINDUCTOR_CACHE_DIR": f"{SCRATCH}/inductor",
    } | (COMPILER_VARIABLES if order.has_compiler else {})


def filter_path(machine: str | None = None) -> Path:
    """Return the file of a machine's seccomp filter. A test rebuilds its bytes."""
    return Path(__file__).parent / f"{machine or platform.machine()}.bpf"


def require_filter() -> None:
    """Raise BoxUnavailableError if this machine has no seccomp filter."""
    if not filter_path().exists():
        raise BoxUnavailableError(f"no filter for {filter_path().stem}")


@dataclass(frozen=True)
class Environment:
    """An environment of this host: exact versions of packages, Python and compiler."""

    name: str
    python: str
    packages: Mapping[str, str]
    compiler: str | None = None

    @property
    def sha256(self) -> str:
        """Hash name, Python's minor version, and the versions of packages and compiler."""
        compiler = [] if self.compiler is None else [self.compiler]
        return sha256_of([self.name, self.python, sorted(self.packages.items()), *compiler])

    def order(
        self,
        package: Path,
        *,
        module: str,
        limits: Limits,
        backend: AnyBackend = "bwrap",
        gpus: Sequence[str] = (),
    ) -> Order:
        """Build the order for a code submission of this environment."""
        family = family_of(self.name)
        return Order(
            package=package.resolve(),
            module=module,
            packages=dict(self.packages),
            preload=family.preload if family is not None else (),
            limits=limits,
            backend=backend,
            gpus=gpus,
            has_compiler=self.compiler is not None,
        )


@functools.cache
def installed_environments(*, compiler: bool = False) -> Mapping[str, Environment]:
    """List environments by name. With `compiler` each comes once more with an installed gcc."""
    found: dict[str, Environment] = {}
    gcc = gcc_version() if compiler else None
    for family, made in FAMILIES.items():
        try:
            version = metadata.version(made.distributions[0])
        except metadata.PackageNotFoundError:
            continue
        name = f"{family}-{'.'.join(version.split('.')[:2])}{_build(family, version)}"
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        found[name] = Environment(name, python, requirements_of(made.distributions))
        if gcc is not None:
            found[f"{name}-gcc"] = replace(found[name], name=f"{name}-gcc", compiler=f"gcc {gcc}")
    return found


def _build(family: str, version: str) -> str:
    if family != "torch":
        return ""
    local = version.partition("+")[2]
    kind = "cpu" if local == "cpu" else "rocm" if local.startswith("rocm") else "cuda"
    return f"-{kind}"
