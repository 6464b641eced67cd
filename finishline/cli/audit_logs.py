"""Audit logs in files: written as a server lists them, checked without it."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from finishline.cli.client import ServerClient
from finishline.cli.errors import CliError, ExitCode
from finishline.cli.screen import Screen
from finishline.rules.canonical import read_json
from finishline.rules.errors import RuleError
from finishline.rules.proof.hash_chain import Chain, check_chain, has_head
from finishline.rules.text import count_text

LOG_LIMIT_BYTES = 1024 * 1024 * 1024
PAGE = 1000

Record = dict[str, Any]


def fetch_log(server: ServerClient) -> list[Record]:
    """Every record of a server's audit log, oldest first. Raises CliError."""
    records: list[Record] = []
    before: int | None = None
    while True:
        page = server.get("/audit", before=before, limit=PAGE)
        records += page["records"]
        before = page["next_before"]
        if before is None:
            return records[::-1]


def write_log(path: Path, records: list[Record]) -> None:
    """Keep records in a file that `audit --log` reads. Raises CliError."""
    try:
        path.write_text(json.dumps({"records": records}, ensure_ascii=False, indent=1) + "\n")
    except OSError as error:
        raise CliError(
            f"Cannot write {path} ({error.strerror}).", exit_code=ExitCode.REFUSED
        ) from error


def read_log(path: Path) -> list[Record]:
    """The records in a file, oldest first. Raises CliError."""
    try:
        if path.stat().st_size > LOG_LIMIT_BYTES:
            raise ValueError(f"more than {LOG_LIMIT_BYTES} bytes")
        records = read_json(path.read_bytes(), file=path.name)["records"]
        return sorted((_record(item) for item in records), key=lambda item: int(item["id"]))
    except (OSError, RuleError, KeyError, TypeError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise CliError(
            f"No audit log in {path} ({why}). Expected a file written by "
            "`finishline audit-log --out`.",
            exit_code=ExitCode.REFUSED,
        ) from error


def _record(item: object) -> Record:
    if not isinstance(item, Mapping) or not isinstance(item.get("id"), int):
        raise ValueError("a record without an id")
    return dict(item)


def check_log_file(path: Path, *, head: str | None, screen: Screen) -> int:
    """Check the log in a file, and show its faults; returns the exit code."""
    records = read_log(path)
    chain = check_chain(records)
    missing = head is not None and not has_head(records, head)
    problems = [str(problem) for problem in chain.problems]
    if missing:
        problems.append(f"head {head} is not in the log: the log was cut off or rewritten")
    view = {
        "whole": not problems,
        "records": chain.records,
        "head": asdict(chain.head),
        "redacted": chain.redacted,
        "problems": problems,
    }
    screen.answer(view, _lines(chain, problems))
    return int(ExitCode.REFUSED if problems else ExitCode.OK)


def _lines(chain: Chain, problems: list[str]) -> list[RenderableType]:
    told = f"{count_text(chain.records, 'record')}, head {chain.head.sha256}"
    if chain.redacted:
        told += f"; in {count_text(chain.redacted, 'record')} the name of an erased person"
    if not problems:
        return [told, Text("Every record matches its hash.", style="bold green")]
    return [told, *(Text(f"  {problem}", style="bold red") for problem in problems)]
