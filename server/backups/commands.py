"""`python -m server.admin backup` and `restore`."""

import argparse
import json
import sys
from pathlib import Path

from server.backups.restore import restore
from server.backups.service import Choice, back_up
from server.dependencies import Parts
from server.exports.commands import positive

COMMANDS = ("backup", "restore")
SECRETS = (
    "This backup has the private signing key and the hashes of all tokens in it: keep it where "
    "nobody else can read it."
)


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """The two commands and their options."""
    backup = commands.add_parser(
        "backup", help="add a backup of everything, secrets and all, to a folder of backups"
    )
    backup.add_argument("path", type=Path, help="the folder of backups; made if it is not there")
    backup.add_argument("--keep", type=positive, help="how many stay; all, if absent")
    backup.add_argument(
        "--tables",
        action="store_true",
        help="write the tables of SQLite as files, which PostgreSQL takes as well",
    )
    backup.add_argument(
        "--without-logs",
        action="store_true",
        help="the raw logs are kept safe in another way, such as a bucket's versions",
    )
    backup.add_argument(
        "--keep-missing",
        action="store_true",
        help="go on where the store has lost a log, and list it in the manifest",
    )
    back = commands.add_parser("restore", help="make a server as a backup has it")
    back.add_argument("path", type=Path, help="the folder of backups")
    back.add_argument("--at", metavar="NAME", help="which backup; the latest, if absent")
    back.add_argument(
        "--force", action="store_true", help="replace what is there; it is kept under another name"
    )


def run_command(parts: Parts, arguments: argparse.Namespace) -> int:
    """Run one of them; one JSON line on stdout says what it came to."""
    if arguments.command == "restore":
        path, manifest = restore(
            parts, arguments.path, name=arguments.at, force=arguments.force, say=_say
        )
        _say("Run 'python -m server.admin migrate', then start the servers.")
    else:
        choice = Choice(
            logs=not arguments.without_logs,
            tables=arguments.tables,
            keep_missing=arguments.keep_missing,
            keep=arguments.keep,
        )
        path, manifest = back_up(parts, arguments.path, choice, _say)
        _say(SECRETS)
    summary = {
        "path": str(path),
        "made_at": manifest.made_at,
        "content": manifest.content,
        "schema_revision": manifest.schema_revision,
        "logs": manifest.logs.files,
        "log_bytes": manifest.logs.size_bytes,
        "missing_logs": len(manifest.logs.missing),
    }
    print(json.dumps(summary))
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
