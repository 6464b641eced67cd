"""The systemd unit that keeps `finishline up` running after its user has signed out."""

import getpass
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from finishline.cli.errors import CliError, ExitCode

NAME = re.compile(r"[a-z][a-z0-9-]{0,63}")
TEMPLATE = """[Unit]
Description=Finishline, a time-to-accuracy competition server
After=network-online.target
Wants=network-online.target

[Service]
ExecStart={command}
WorkingDirectory={folder}
# Settings of docs/running.md, NAME=VALUE each, if there is such a file.
EnvironmentFile=-{folder}/settings.env
{user}Restart=on-failure
RestartSec=5
TimeoutStopSec=60

[Install]
WantedBy={target}
"""


@dataclass(frozen=True)
class Unit:
    """A unit of the whole system that runs as `user`, or one of this user's own with None."""

    name: str
    user: str | None

    @property
    def file(self) -> Path:
        """The file that systemd reads."""
        if self.user is not None:
            return Path("/etc/systemd/system") / f"{self.name}.service"
        config = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
        return Path(config) / "systemd" / "user" / f"{self.name}.service"

    @property
    def systemctl(self) -> list[str]:
        """The command that manages it."""
        return ["systemctl"] if self.user is not None else ["systemctl", "--user"]

    def text(self, command: Sequence[str], folder: Path) -> str:
        """The unit that runs a command in a folder."""
        return TEMPLATE.format(
            command=" ".join(quoted(word) for word in command),
            folder=str(folder).replace("%", "%%"),
            user="" if self.user is None else f"User={self.user}\n",
            target="default.target" if self.user is None else "multi-user.target",
        )


def quoted(word: str) -> str:
    """A word of a command line as systemd reads it."""
    for special, instead in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("$", "$$")):
        word = word.replace(special, instead)
    return f'"{word}"'


def unit_of(name: str, user: str | None) -> Unit:
    """The unit of that name. Raises CliError: root names a user, as no box is started as root."""
    if not NAME.fullmatch(name):
        raise _refused(f"--name {name!r}: expected small letters, digits and dashes")
    if os.geteuid() != 0:
        if user not in {None, getpass.getuser()}:
            raise _refused("--user is for root; your own service runs as you")
        return Unit(name, None)
    if user is None:
        raise _refused("name the user that the server runs as with --user; root should run none")
    return Unit(name, user)


def install(unit: Unit, text: str) -> None:
    """Write the unit, enable and start it. Raises CliError; then no file is left."""
    require_systemd()
    unit.file.parent.mkdir(parents=True, exist_ok=True)
    before = unit.file.read_text() if unit.file.exists() else None
    unit.file.write_text(text)
    try:
        _run([*unit.systemctl, "daemon-reload"])
        _run([*unit.systemctl, "enable", unit.name])
        _run([*unit.systemctl, "restart", unit.name])
    except CliError:
        if before is None:
            unit.file.unlink()
        else:
            unit.file.write_text(before)
        raise


def remove(unit: Unit) -> None:
    """Stop, disable and remove the unit; data stay. Raises CliError if there is none."""
    require_systemd()
    if not unit.file.exists():
        raise CliError(f"There is no {unit.file}.", exit_code=ExitCode.NOT_FOUND)
    _run([*unit.systemctl, "disable", "--now", unit.name])
    unit.file.unlink()
    _run([*unit.systemctl, "daemon-reload"])


def require_systemd() -> None:
    """Raise CliError where no systemd runs."""
    if shutil.which("systemctl") is None:
        raise CliError(
            "systemctl is not here, so nothing can be installed: `finishline service install "
            "--print` writes the unit for you to adapt.",
            exit_code=ExitCode.SERVER,
        )


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        why = said[-1] if said else f"exit code {done.returncode}"
        raise CliError(f"{' '.join(command)}: {why}", exit_code=ExitCode.SERVER)


def _refused(sentence: str) -> CliError:
    return CliError(f"{sentence}.", exit_code=ExitCode.USAGE)
