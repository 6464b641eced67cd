"""`finishline admin service`: keep `finishline up` running with systemd."""

import getpass
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from finishline.cli.errors import CliError, ExitCode, UsageError
from finishline.cli.processes import python_module
from finishline.cli.screen import as_it_is, open_screen
from server.commands.paths import DEFAULT_VAR, BehindProxy, Var

app = typer.Typer(help="Keeps `finishline up` running with systemd.", no_args_is_help=True)

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
Name = Annotated[str, typer.Option("--name", help="Name of the service.")]
User = Annotated[
    str | None, typer.Option("--user", help="User that the server runs as (for root).")
]


@app.command("add")
def install(
    var: Var = DEFAULT_VAR,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=1, max=65535, help="Port to listen on.")
    ] = 8000,
    devices: Annotated[
        str, typer.Option("--devices", help="Devices that train, as of `finishline up`.")
    ] = "cpu",
    behind_proxy: BehindProxy = False,
    name: Name = "finishline",
    user: User = None,
    printed: Annotated[
        bool, typer.Option("--print", help="Print the unit and install nothing.")
    ] = False,
) -> int:
    """Write a unit that runs `finishline up`, and start it, now and after each start of the host.

    An ordinary user gets a user service. Root names with --user who runs it.
    """
    unit, folder = unit_of(name, user), var.absolute()
    options = ["--var", str(folder), "--host", host, "--port", str(port), "--devices", devices]
    options += ["--behind-proxy"] if behind_proxy else []
    text = unit.text(python_module("finishline.cli.main", "up", *options), folder)
    screen = open_screen(as_json=False)
    if printed:
        screen.say(as_it_is(text))
        return int(ExitCode.OK)
    if not folder.exists():
        # The service could not make it where another user owns its parent.
        folder.mkdir(parents=True, mode=0o700)
        if user is not None:
            shutil.chown(folder, user)
    install_unit(unit, text)
    manage = " ".join(unit.systemctl)
    told = f"{unit.file} runs it. State: {manage} status {name}; log: journalctl"
    screen.say(as_it_is(f"{told}{'' if unit.user else ' --user'} -u {name}"))
    if unit.user is None:
        screen.say(as_it_is("To keep it running after you sign out: loginctl enable-linger"))
    return int(ExitCode.OK)


@app.command()
def remove(name: Name = "finishline", user: User = None) -> int:
    """Stop the service and remove its unit. Data in the var folder stay."""
    unit = unit_of(name, user)
    require_systemd()
    if not unit.file.exists():
        raise CliError(f"There is no {unit.file}.", exit_code=ExitCode.NOT_FOUND)
    _run([*unit.systemctl, "disable", "--now", unit.name])
    unit.file.unlink()
    _run([*unit.systemctl, "daemon-reload"])
    open_screen(as_json=False).say(as_it_is(f"{unit.file} is removed; its data stay."))
    return int(ExitCode.OK)


@dataclass(frozen=True)
class Unit:
    """A unit of the whole system that runs as `user`, or one of this user's own with None."""

    name: str
    user: str | None

    @property
    def file(self) -> Path:
        if self.user is not None:
            return Path("/etc/systemd/system") / f"{self.name}.service"
        config = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
        return Path(config) / "systemd" / "user" / f"{self.name}.service"

    @property
    def systemctl(self) -> list[str]:
        return ["systemctl"] if self.user is not None else ["systemctl", "--user"]

    def text(self, command: Sequence[str], folder: Path) -> str:
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
        raise UsageError(f"--name {name!r}: expected small letters, digits and dashes.")
    if os.geteuid() != 0:
        if user not in {None, getpass.getuser()}:
            raise UsageError("--user is for root; your own service runs as you.")
        return Unit(name, None)
    if user is None:
        raise UsageError("name the user that the server runs as with --user; root should run none.")
    return Unit(name, user)


def install_unit(unit: Unit, text: str) -> None:
    """Write the unit, enable and start it. Raises CliError and then leaves no file."""
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


def require_systemd() -> None:
    """Raise CliError where no systemd runs."""
    if shutil.which("systemctl") is None:
        raise CliError(
            "systemctl is not here, so nothing can be installed: `finishline admin service add "
            "--print` writes the unit for you to adapt.",
            exit_code=ExitCode.SERVER,
        )


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        why = said[-1] if said else f"exit code {done.returncode}"
        raise CliError(f"{' '.join(command)}: {why}", exit_code=ExitCode.SERVER)
