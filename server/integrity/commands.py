"""`python -m server.admin check`: is everything that was promised still there and unchanged?"""

import argparse
import json
import sys
import time

from server.dependencies import Parts
from server.exports.progress import now_and_then
from server.exports.snapshot import snapshot
from server.integrity.evidence import check_evidence, check_records
from server.integrity.files import check_files
from server.integrity.findings import Findings
from server.proofs.service import current_signer

COMMANDS = ("check",)


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """The command and its options."""
    check = commands.add_parser(
        "check", help="hold the store, the audit log and every proof against the database"
    )
    check.add_argument(
        "--no-proofs", action="store_true", help="leave out the proofs: they take long"
    )
    check.add_argument("--no-files", action="store_true", help="leave out the store")


def run_command(parts: Parts, arguments: argparse.Namespace) -> int:
    """One JSON line on stdout with the counts; each fault and orphan on stderr; 1 with a fault."""
    started = time.monotonic()
    findings = check_server(parts, files=not arguments.no_files, proofs=not arguments.no_proofs)
    for line in findings.faults:
        _say(f"fault: {line}")
    for line in findings.orphans:
        _say(f"orphan: {line}")
    summary = {
        "looked_at": findings.looked_at,
        "faults": findings.fault_count,
        "orphans": findings.orphan_count,
        "seconds": round(time.monotonic() - started, 1),
    }
    print(json.dumps(summary))
    return 1 if findings.fault_count else 0


def check_server(parts: Parts, *, files: bool, proofs: bool) -> Findings:
    """Everything that is asked for, while the server goes on."""
    findings = Findings()
    current_signer(parts)  # Listed before the keys are read, as the first proof would do it.
    with parts.database.read() as session:
        check_records(session, findings)
    if files:
        with snapshot(parts.database) as connection:
            check_files(connection, parts.artifacts, findings, now_and_then(_say, what="files"))
    if proofs:
        check_evidence(parts, findings, now_and_then(_say, what="proofs"))
    return findings


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
