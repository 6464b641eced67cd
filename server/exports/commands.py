"""`python -m server.admin export`."""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from server.dependencies import Parts
from server.errors import ContentError
from server.exports.manifest import Manifest
from server.exports.nightly import export_nightly
from server.exports.service import Wanted, export_everything

COMMANDS = ("export",)
KEEP = 14


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """The command and its options."""
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
    export.add_argument("--keep", type=positive, default=KEEP, help="with --nightly: how many stay")
    export.add_argument(
        "--public", action="store_true", help="without what is not everybody's to know"
    )
    export.add_argument(
        "--keep-missing",
        action="store_true",
        help="go on where the store has lost a log, and list it in the manifest",
    )


def run_command(parts: Parts, arguments: argparse.Namespace) -> int:
    """Run it; one JSON line on stdout says what it came to."""
    if (arguments.path is None) == (arguments.nightly is None):
        raise ContentError("Name one place: PATH, or --nightly DIR.")
    if arguments.nightly is not None:
        path, manifest = export_nightly(
            parts,
            arguments.nightly,
            keep=arguments.keep,
            public=arguments.public,
            keep_missing=arguments.keep_missing,
            say=_say,
        )
    else:
        path = arguments.path
        wanted = Wanted(arguments.public, arguments.keep_missing)
        manifest = export_everything(parts, path, wanted, _say)
    _print(path, manifest)
    return 0


def _print(path: Path, manifest: Manifest) -> None:
    summary = {
        "path": str(path),
        "content": manifest.content,
        "schema_revision": manifest.schema_revision,
        "rows": sum(table.rows for table in manifest.tables),
        "logs": manifest.logs.files,
        "log_bytes": manifest.logs.size_bytes,
        "missing_logs": len(manifest.logs.missing),
        "audit_head": asdict(manifest.audit_head),
    }
    print(json.dumps(summary))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def positive(text: str) -> int:
    """A count of at least 1. Raises ArgumentTypeError."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number}; at least 1 has to stay")
    return number
