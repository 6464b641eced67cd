"""The folder that `finishline up` keeps everything in, and its lock."""

import json
import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from finishline.cli.errors import CliError, ExitCode
from server.base.artifacts import make_private


@dataclass(frozen=True)
class VarPaths:
    """Paths under the var folder."""

    root: Path

    @property
    def database(self) -> Path:
        """The SQLite file."""
        return self.root / "finishline.db"

    @property
    def artifacts(self) -> Path:
        """Raw run logs as they were submitted."""
        return self.root / "artifacts"

    @property
    def data(self) -> Path:
        """Data sets a worker has fetched."""
        return self.root / "data"

    @property
    def logs(self) -> Path:
        """Folder of the services' output."""
        return self.root / "logs"

    @property
    def tokens(self) -> Path:
        """One file for each bootstrapped token."""
        return self.root / "tokens"

    @property
    def signing_key(self) -> Path:
        """The private key that the server signs proofs with."""
        return self.root / "signing-key.pem"

    @property
    def roofs(self) -> Path:
        """The roofs that the worker measured of this machine, once for each hardware class."""
        return self.root / "roofs.json"

    @property
    def redis(self) -> Path:
        """The broker's working folder."""
        return self.root / "redis"

    @property
    def backups(self) -> Path:
        """Folder of the backups that no other folder is named for."""
        return self.root / "backups"

    def settings(self) -> dict[str, str]:
        """Settings of the server that say where it keeps everything."""
        return {
            "FINISHLINE_DATABASE_URL": f"sqlite:///{self.database}",
            "FINISHLINE_ARTIFACTS_DIR": str(self.artifacts),
            "FINISHLINE_SIGNING_KEY": str(self.signing_key),
        }

    @property
    def lock(self) -> Path:
        """Held by the supervisor while it runs."""
        return self.root / "up.lock"


def prepare_var(root: Path) -> VarPaths:
    """Make the folder, its owner's alone, with its subfolders.

    Logs under an embargo, draws that are sealed and secrets of webhooks lie in it. Raises CliError
    if the folder is not writable, not the user's, or one that others can read.
    """
    paths = VarPaths(root.absolute())
    try:
        make_private(paths.root)
        _require_private(paths.root)
        for folder in (paths.artifacts, paths.data, paths.logs, paths.redis, paths.tokens):
            make_private(folder)
        paths.database.touch(mode=0o600)
        (paths.redis / "users.acl").touch(mode=0o600)
        with tempfile.TemporaryFile(dir=paths.root) as probe:
            probe.write(b"x")
    except OSError as error:
        raise CliError(
            f"Cannot write in {paths.root} ({error.strerror}); "
            "choose another folder with --var, or let your user write there.",
            exit_code=ExitCode.SERVER,
        ) from error
    return paths


def _require_private(folder: Path) -> None:
    """Raise CliError for a folder that others can look into, such as /tmp."""
    if folder.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise CliError(
            f"Others can look into {folder}, and the server keeps secrets there. Hint: choose a "
            f"folder of your own with --var, or run `chmod 700 {folder}` if it is one.",
            exit_code=ExitCode.SERVER,
        )


@contextmanager
def lock_var(paths: VarPaths, *, url: str) -> Iterator[None]:
    """Hold the folder for one supervisor. Raises CliError if another one holds it.

    The kernel lets go of the lock when its holder dies, so a file left behind locks nothing.
    """
    import fcntl  # POSIX alone has it, and other commands read the folder anywhere.

    descriptor = os.open(paths.lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise _already_running(paths) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "url": url}).encode(), 0)
        yield
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _already_running(paths: VarPaths) -> CliError:
    holder: dict[str, object] = {}
    with suppress(OSError, ValueError):
        holder = json.loads(paths.lock.read_text())
    pid, url = holder.get("pid", "unknown"), holder.get("url", "its address")
    return CliError(
        f"Another `finishline up` (process {pid}) already runs in {paths.root}: "
        f"use it at {url}, stop it with `kill {pid}`, or choose another folder with --var.",
        exit_code=ExitCode.SERVER,
    )


def require_free_port(host: str, port: int) -> None:
    """Raise CliError unless a server could listen there."""
    try:
        kind, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(kind, socket.SOCK_STREAM) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
    except PermissionError as error:
        raise CliError(
            f"Port {port} needs more rights than you have; choose one above 1023 with --port.",
            exit_code=ExitCode.SERVER,
        ) from error
    except socket.gaierror as error:
        raise CliError(
            f"{host!r} is not an address of this machine ({error.strerror}); try --host 127.0.0.1.",
            exit_code=ExitCode.SERVER,
        ) from error
    except OSError as error:
        raise CliError(
            f"Port {port} on {host} cannot be used ({error.strerror}): stop the program that "
            f"listens there, or choose another port, for example --port {port + 1}.",
            exit_code=ExitCode.SERVER,
        ) from error
