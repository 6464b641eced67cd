"""The folder that `finishline up` keeps everything in, and its lock."""

import fcntl
import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from typer import Option

from finishline.cli.errors import CliError, ExitCode
from server.base.artifacts import make_private

DEFAULT_VAR = Path("var")
Var = Annotated[Path, Option("--var", help="Folder for the database, tokens, logs and artifacts.")]
BehindProxy = Annotated[
    bool, Option("--behind-proxy", help="Believe a proxy on this machine on clients' addresses.")
]


class VarPaths:
    """Paths under the var folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.database = root / "finishline.db"
        self.artifacts = root / "artifacts"  # Raw run logs as they were submitted.
        self.data = root / "data"  # Data sets a worker has fetched.
        self.logs = root / "logs"  # Output of the services.
        self.tokens = root / "tokens"  # One file for each bootstrapped token.
        self.signing_key = root / "signing-key.pem"  # The private key that signs proofs.
        self.redis = root / "redis"  # The broker's working folder.
        self.backups = root / "backups"  # Unless another folder is named.
        self.lock = root / "up.lock"  # Held by the supervisor while it runs.

    def token(self, name: str) -> Path:
        """The file that holds a bootstrapped token and nothing else."""
        return self.tokens / f"{name}.token"

    @property
    def database_url(self) -> str:
        """The address of the database."""
        return f"sqlite:///{self.database}"

    def settings(self) -> dict[str, str]:
        """Settings of the server that say where it keeps everything."""
        return {
            "database_url": self.database_url,
            "artifacts_dir": str(self.artifacts),
            "signing_key": str(self.signing_key),
        }

    def environment(self) -> dict[str, str]:
        """The same as variables."""
        return {f"FINISHLINE_{name.upper()}": value for name, value in self.settings().items()}


def prepare_var(root: Path) -> VarPaths:
    """Make the folder, its owner's alone, with its subfolders.

    Logs under an embargo, draws that are sealed and secrets of webhooks are in it. Raises CliError
    if the folder is not writable, not the user's, or one that others can read.
    """
    paths = VarPaths(root.absolute())
    try:
        make_private(paths.root)
        if paths.root.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):  # Such as /tmp.
            raise CliError(
                f"Others can look into {paths.root}, and the server keeps secrets there. Hint: "
                "choose a folder of your own with --var, or run "
                f"`chmod 700 {paths.root}` if it is one.",
                exit_code=ExitCode.SERVER,
            )
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


@contextmanager
def lock_var(paths: VarPaths, *, url: str) -> Iterator[None]:
    """Hold the folder for one supervisor. Raises CliError if another holds it.

    The kernel lets go of the lock when its holder dies, so a file left behind locks nothing.
    """
    with paths.lock.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            raise CliError(
                f"Another `finishline up` already runs in {paths.root}{file.read()}. Stop it, or "
                "choose another folder with --var.",
                exit_code=ExitCode.SERVER,
            ) from error
        file.truncate(0)
        file.write(f": {url}, process {os.getpid()}")
        file.flush()
        yield
        file.truncate(0)


def require_free_port(host: str, port: int) -> None:
    """Raise CliError unless a server could listen there."""
    try:
        kind, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(kind, socket.SOCK_STREAM) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
    except OSError as error:
        if isinstance(error, PermissionError):
            why = f"Port {port} needs more rights than you have; choose one above 1023 with --port."
        elif isinstance(error, socket.gaierror):
            why = f"{host!r} is not an address of this machine ({error.strerror}); "
            why += "try --host 127.0.0.1."
        else:
            why = f"Port {port} on {host} cannot be used ({error.strerror}): stop the program that "
            why += f"listens there, or choose another port, for example --port {port + 1}."
        raise CliError(why, exit_code=ExitCode.SERVER) from error
