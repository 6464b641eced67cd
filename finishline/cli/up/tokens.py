"""The three tokens a laptop needs, made once and kept in files that only their owner can read."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from finishline.cli.client import ServerClient
from finishline.cli.errors import CliError, ExitCode
from finishline.cli.up.paths import VarPaths

# file name -> (user, role)
BOOTSTRAPPED = {
    "organiser": ("organiser", "organiser"),
    "worker": ("worker", "worker"),
    "demo": ("demo", "submitter"),
}

MakeToken = Callable[[str, str], str]


def token_path(paths: VarPaths, name: str) -> Path:
    """The file that holds a bootstrapped token and nothing else."""
    return paths.tokens / f"{name}.token"


def read_token(path: Path) -> str | None:
    """The token in a file, or None if there is no such file or nothing in it."""
    try:
        return path.read_text(encoding="ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def write_token(path: Path, token: str) -> None:
    """Keep a token in a file of mode 0600, never readable by others for a moment."""
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(token + "\n")
    fresh.replace(path)


def ensure_tokens(paths: VarPaths, *, url: str, make_token: MakeToken) -> Mapping[str, Path]:
    """The file of each bootstrapped token; those the server does not accept are made anew.

    A kept token outlives its database when someone deletes only that.
    """
    files = {name: token_path(paths, name) for name in BOOTSTRAPPED}
    for name, path in files.items():
        user, role = BOOTSTRAPPED[name]
        kept = read_token(path)
        if kept is None or not _is_accepted(kept, url, role):
            write_token(path, make_token(user, role))
    return files


def _is_accepted(token: str, url: str, role: str) -> bool:
    try:
        with ServerClient(url, token) as server:
            return bool(server.get("/me").get("role") == role)
    except CliError as error:
        if error.exit_code is ExitCode.NOT_ALLOWED:
            return False
        raise


def token_in(output: str) -> str:
    """The token in the one JSON line that the server's administration prints."""
    for line in reversed(output.splitlines()):
        try:
            return str(json.loads(line)["token"])
        except (ValueError, KeyError, TypeError):
            continue
    raise CliError(
        "The server's administration printed no token; see tokens.log in its folder of logs.",
        exit_code=ExitCode.SERVER,
    )
