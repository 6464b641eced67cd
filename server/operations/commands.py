"""Commands of `python -m server.admin`: `export`, `backup`, `restore` and `check`.

Each prints one JSON line on stdout with the outcome, and its progress on stderr.
"""

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

from server.base.errors import ContentError
from server.base.services import Services
from server.operations.backup import Choice, back_up, restore
from server.operations.copies import Manifest
from server.operations.export import Wanted, export_everything, export_nightly
from server.operations.integrity import check_server

COMMANDS = frozenset({"export", "backup", "restore", "check"})
KEEP = 14
SECRETS = (
    "This backup contains the private signing key and the hashes of all tokens: store it where "
    "only you can read it."
)
KEEP_MISSING = "go on where the store has lost a log, and list it in the manifest"


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the four commands and their options."""
    _add_export(commands)
    _add_backup(commands)
    back = commands.add_parser("restore", help="restore a server from a backup")
    back.add_argument("path", type=Path, help="the folder of backups")
    back.add_argument("--at", metavar="NAME", help="which backup; the latest, if absent")
    back.add_argument(
        "--force",
        action="store_true",
        help="replace existing data, which is kept under another name",
    )
    check = commands.add_parser(
        "check", help="check the store, the audit log and every proof against the database"
    )
    check.add_argument("--no-proofs", action="store_true", help="skip the proofs, which take long")
    check.add_argument("--no-files", action="store_true", help="skip the store")


def _add_export(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    export = commands.add_parser(
        "export", help="write everything but secrets to a folder, for others to study"
    )
    export.add_argument("path", type=Path, nargs="?", help="the folder to make, or NAME.tar")
    export.add_argument(
        "--nightly",
        type=Path,
        metavar="DIR",
        help="make a dated folder in DIR, and remove old ones",
    )
    export.add_argument(
        "--keep", type=positive, default=KEEP, help="with --nightly: number to keep"
    )
    export.add_argument("--public", action="store_true", help="public data only")
    export.add_argument("--keep-missing", action="store_true", help=KEEP_MISSING)


def _add_backup(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    backup = commands.add_parser(
        "backup", help="add a backup of everything, secrets and all, to a folder of backups"
    )
    backup.add_argument("path", type=Path, help="the folder of backups; created if missing")
    backup.add_argument("--keep", type=positive, help="number of backups to keep (default: all)")
    backup.add_argument(
        "--without-logs",
        action="store_true",
        help="the raw logs are kept safe in another way, such as a bucket's versions",
    )
    backup.add_argument("--keep-missing", action="store_true", help=KEEP_MISSING)


def run_command(services: Services, arguments: argparse.Namespace) -> int:
    """Run one of them; returns the exit code."""
    run = {"export": run_export, "backup": run_backup, "restore": run_restore, "check": run_check}
    return run[arguments.command](services, arguments)


def run_export(services: Services, arguments: argparse.Namespace) -> int:
    """Export to one place. Raises ContentError unless exactly one is named."""
    path: Path = arguments.path
    if (path is None) == (arguments.nightly is None):
        raise ContentError("Name one place: PATH, or --nightly DIR.")
    if arguments.nightly is not None:
        path, manifest = export_nightly(
            services,
            arguments.nightly,
            keep=arguments.keep,
            public=arguments.public,
            keep_missing=arguments.keep_missing,
            say=say,
        )
    else:
        wanted = Wanted(arguments.public, arguments.keep_missing)
        manifest = export_everything(services, path, wanted, say)
    rows = sum(manifest.tables.values())
    print_summary(path, manifest, rows=rows, audit_head=asdict(manifest.audit_head))
    return 0


def run_backup(services: Services, arguments: argparse.Namespace) -> int:
    """Add a backup to a folder of backups."""
    choice = Choice(
        logs=not arguments.without_logs,
        keep_missing=arguments.keep_missing,
        keep=arguments.keep,
    )
    path, manifest = back_up(services, arguments.path, choice, say)
    say(SECRETS)
    print_summary(path, manifest, made_at=manifest.made_at)
    return 0


def run_restore(services: Services, arguments: argparse.Namespace) -> int:
    """Make a server as a backup has it."""
    path, manifest = restore(
        services, arguments.path, name=arguments.at, force=arguments.force, say=say
    )
    print_summary(path, manifest, made_at=manifest.made_at)
    return 0


def run_check(services: Services, arguments: argparse.Namespace) -> int:
    """Name each fault and orphan on stderr; returns 1 with a fault."""
    started = time.monotonic()
    findings = check_server(
        services, files=not arguments.no_files, proofs=not arguments.no_proofs, say=say
    )
    for line in findings.faults:
        say(f"fault: {line}")
    for line in findings.orphans:
        say(f"orphan: {line}")
    summary = {
        "looked_at": findings.looked_at,
        "faults": len(findings.faults),
        "orphans": len(findings.orphans),
        "seconds": round(time.monotonic() - started, 1),
    }
    print(json.dumps(summary))
    return 1 if findings.faults else 0


def print_summary(path: Path, manifest: Manifest, **more: object) -> None:
    """Print one JSON line about an export or a backup."""
    summary = {
        "path": str(path),
        "content": manifest.content,
        "schema_revision": manifest.schema_revision,
        "logs": manifest.logs.files,
        "log_bytes": manifest.logs.size_bytes,
        "missing_logs": len(manifest.logs.missing),
    }
    print(json.dumps(summary | more))


def say(line: str) -> None:
    """Print a line of progress."""
    print(line, file=sys.stderr, flush=True)


def positive(text: str) -> int:
    """A count of at least 1. Raises ArgumentTypeError."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number}; at least 1 has to stay")
    return number
