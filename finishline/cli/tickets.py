"""Tickets as the commands get and keep them: a JSON file that a training needs no network for."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from finishline.cli.client import ServerClient, View
from finishline.cli.errors import CliError, ExitCode, refusal
from finishline.cli.processes import python_module
from finishline.rules.errors import RuleError
from finishline.rules.submissions.tickets import Ticket, read_ticket

SYSTEM_FIELDS = ("accelerator", "accelerator_count", "processor", "processor_count")
PROBE_SECONDS = 30.0


def local_system(device: str | None) -> View:
    """Return the system of this machine with the device that trains, as a worker finds it."""
    command = python_module("worker.local", "--describe")
    if device is not None:
        command += ["--device", device]
    try:
        ended = subprocess.run(command, capture_output=True, timeout=PROBE_SECONDS, check=True)
        system: View = json.loads(ended.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise CliError(
            "This machine could not be described; name its class with --hardware-class.",
            exit_code=ExitCode.REFUSED,
        ) from error
    return system


def name_of_class(server: ServerClient, system: Mapping[str, Any]) -> str:
    """Return the server's name of this machine's hardware class, else the one made of its parts."""
    own = str(system["hardware_class"])
    try:
        listed = server.get("/hardware-classes")["hardware_classes"]
    except (CliError, KeyError, TypeError):
        return own
    wanted = [system[name] for name in SYSTEM_FIELDS]
    names = [str(each["name"]) for each in listed if [each.get(n) for n in SYSTEM_FIELDS] == wanted]
    return own if own in names or not names else names[0]


def write_ticket(path: Path, ticket: View) -> None:
    """Write a ticket file. Raises CliError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(ticket, indent=2) + "\n")
    except OSError as error:
        raise CliError(
            f"Cannot write {path} ({error.strerror}).", exit_code=ExitCode.REFUSED
        ) from error


def open_ticket(path: Path) -> Ticket:
    """Return the ticket in a file. Raises CliError naming file and field."""
    try:
        return read_ticket(path.read_bytes(), file=str(path))
    except RuleError as error:
        raise refusal(error) from error
    except OSError as error:
        raise CliError(
            f"Cannot read {path} ({error.strerror}); get one with `finishline ticket`.",
            exit_code=ExitCode.USAGE,
        ) from error
