"""Archives on this machine: found without links, read in pieces, their records shown."""

import csv
import io
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
from rich.console import RenderableType

from finishline.cli.errors import CliError
from finishline.cli.listings import table_of
from finishline.cli.screen import open_console
from finishline.rules.archive.files import (
    COMPRESSED,
    MAX_FOLDERS_DEEP,
    MLCOMMONS,
    SUFFIXES,
    Archive,
    ArchiveFile,
    Place,
    shown,
)
from finishline.rules.archive.find import LOG_SUFFIXES
from finishline.rules.archive.score import Found, Record, find_scorable
from finishline.rules.errors import LogFormatError
from finishline.rules.logs import check_file_name
from finishline.rules.text import count_text


def find_in(path: Path) -> Found:
    """Find the submissions at a path. Raises CliError if it is absent."""
    return find_scorable(open_archive(path), asked_for_file=not path.is_dir())


def open_archive(path: Path) -> Archive:
    """List the files at a path, and report compressed ones on stderr. Raises CliError."""
    try:
        root = path.resolve(strict=True)
        is_file = not root.is_dir()
        compressed: list[str] = []
        files = [_file(path.name, root.parts, root.lstat())] if is_file else _walk(root, compressed)
        listed = None if is_file else root
        archive = Archive(files, _read, lambda place: _outside(place, listed), compressed)
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CliError(
            f"Cannot read {path} ({reason}). Expected an archive, a submission or a log."
        ) from error
    if compressed:
        count, first = count_text(len(compressed), "compressed file"), compressed[0]
        told = f"Not read: {count}, the first {first}. Unpack those of results (gunzip)."
        open_console(stderr=True).print(told, soft_wrap=True)
    return archive


def _walk(root: Path, compressed: list[str]) -> Iterator[ArchiveFile]:
    """Yield files with a known suffix in order, never through links. Adds to `compressed`."""
    for folder, folders, names in os.walk(root):
        place = Path(folder).parts
        below = place[len(root.parts) :]
        is_deepest = len(below) == MAX_FOLDERS_DEEP
        folders[:] = sorted(name for name in folders if not (is_deepest or name.startswith(".")))
        for name in sorted(names):
            path = "/".join((*below, name))
            if name.lower().endswith(SUFFIXES):
                with suppress(OSError):  # It was there a moment ago.
                    yield _file(path, (*place, name), os.lstat(f"{folder}/{name}"))
            elif name.lower().endswith(COMPRESSED):
                compressed.append(shown(path))


def _file(path: str, place: Place, status: os.stat_result) -> ArchiveFile:
    refused = None
    if not stat.S_ISREG(status.st_mode):
        link = stat.S_ISLNK(status.st_mode)
        refused = "a symbolic link" if link else "not a regular file"
    try:
        check_file_name(path)
    except LogFormatError as error:
        refused = error.message
    return ArchiveFile(shown(path), place, status.st_size, refused)


def _outside(place: Place, root: Path | None) -> ArchiveFile | None:
    """Return a file outside `root`, which the listing leaves out. Files below `root` are listed."""
    if root is not None and place[: len(root.parts)] == root.parts:
        return None
    path = Path(*place)
    try:
        status = path.lstat()
    except OSError:
        return None
    return _file(path.name, place, status) if stat.S_ISREG(status.st_mode) else None


def _read(file: ArchiveFile, chunk_bytes: int) -> Iterator[bytes]:
    path = "/".join(("", *file.place[1:]))
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise _unreadable(file, error) from error
    try:
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode):
            raise _unreadable(file, "not a regular file")
        size = min(status.st_size + 1, chunk_bytes)
        while chunk := os.read(opened, size):
            yield chunk
            if len(chunk) < size:
                return  # Only the end of a regular file gives less than `size`.
    except OSError as error:
        raise _unreadable(file, error) from error
    finally:
        os.close(opened)


def _unreadable(file: ArchiveFile, why: object) -> LogFormatError:
    reason = why.strerror if isinstance(why, OSError) else str(why)
    return LogFormatError(
        f"cannot be read ({reason})", file=file.path, expected="a readable file", code="unreadable"
    )


COLUMNS = (
    "path", "benchmark", "kind", "reached", "tta_seconds", "tta_epoch", "tta_display", "cost_usd",
    "latency_ms", "cost_usd_per_10000", "metric", "best_metric", "organisation", "system",
    "division", "n_runs", "olympic_mean_seconds", "normalised_seconds", "rcp_verdict",
    "rcp_message", "rcp_factor", "cv_percent", "reached_fraction", "global_batch_size", "eligible",
    "runs_reached", "runs_started", "errors", "warnings", "first_problem",
)  # fmt: skip
FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r")


def json_line(record: Record) -> str:
    try:
        return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE).decode()
    except TypeError:  # An integer beyond 64 bits, or half of a surrogate pair.
        return json.dumps(record) + "\n"


def csv_lines(records: Iterable[Record], columns: Iterable[str] = COLUMNS) -> Iterable[str]:
    yield _csv_line(columns)
    for record in records:
        flat = _flat(record)
        yield _csv_line([_cell(flat.get(column)) for column in columns])


def flat_csv_lines(records: Iterable[Record]) -> Iterable[str]:
    """Write CSV with the columns of the first record, its problems counted."""
    records = list(records)
    names = [name for name in records[0] if name != "problems"]
    return csv_lines(records, (*names, "errors", "warnings", "first_problem"))


# As mlperf-logging's result summarizer names them, with a column for each benchmark in between.
SYSTEM_COLUMNS = (
    "division", "availability", "submitter", "system", "host_processor_model_name",
    "host_processors_count", "accelerator_model_name", "accelerators_count", "framework", "notes",
)  # fmt: skip
URL_COLUMNS = ("details_url", "code_url")


def summary_lines(records: Iterable[Record]) -> Iterable[str]:
    """Write MLCommons' summary of a round: a row for each system, with minutes by benchmark.

    A set that breaks a rule has empty minutes. DAWNBench, MLPerf HPC and loose logs are left out.
    """
    rows: dict[tuple[Any, ...], Record] = {}
    benchmarks = set()
    for record in records:
        if not record.get("system") or record["suite"] or record["path"].endswith(LOG_SUFFIXES):
            continue
        key = tuple(record[name] for name in ("organisation", "system", "division", "version"))
        row = rows.setdefault(key, _summary_row(record))
        benchmarks.add(record["benchmark"])
        if record["eligible"]:
            row[record["benchmark"]] = record["normalised_seconds"] / 60
    columns = (*SYSTEM_COLUMNS, *sorted(benchmarks), *URL_COLUMNS)
    yield _csv_line(map(_cell, columns))
    for row in rows.values():
        yield _csv_line([_cell(row.get(column)) for column in columns])


def _summary_row(record: Record) -> Record:
    said = record["description"] or {}
    nodes = _whole(said.get("number_of_nodes"))
    counts = {
        f"{name}_count": nodes * each
        for name in ("host_processors", "accelerators")
        if nodes is not None and (each := _whole(said.get(f"{name}_per_node"))) is not None
    }
    organisation, system = record["organisation"], record["system"]
    tree = f"{MLCOMMONS}/training_results_v{record['version']}/blob"
    urls = {
        "details_url": f"{tree}/main/{quote(organisation)}/systems/{quote(system)}.json",
        "code_url": f"{tree}/master/{quote(organisation)}/benchmarks",
    }
    return {
        "division": record["division"],
        "availability": said.get("status"),
        "submitter": said.get("submitter") or organisation,
        "system": said.get("system_name") or system,
        "host_processor_model_name": said.get("host_processor_model_name"),
        "accelerator_model_name": said.get("accelerator_model_name"),
        "framework": said.get("framework"),
        "notes": ";".join(filter(None, (said.get("hw_notes"), said.get("sw_notes")))),
        **counts,
        **(urls if record["version"] else {}),
    }


def _whole(text: Any) -> int | None:
    return int(text) if str(text).isdecimal() else None


def record_table(records: Iterable[Record], name: str = "scores") -> RenderableType:
    return table_of(name, map(_flat, records))


def problem_text(problem: Mapping[str, Any]) -> str:
    """Format a problem as one line: severity, place, fault and expectation."""
    place = problem["file"] or ""
    if problem["line"] is not None:
        place += f" line {problem['line']}"
    if problem["field"] is not None:
        place += f", field {problem['field']}"
    expected = f"; expected {problem['expected']}" if problem["expected"] else ""
    return f"{problem['severity']}: {place}: {problem['message']}{expected} [{problem['code']}]"


def _flat(record: Record) -> Record:
    problems = record["problems"]
    rcp = record.get("rcp") or {}
    return record | {
        "rcp_verdict": rcp.get("verdict"),
        "rcp_message": rcp.get("message"),
        "rcp_factor": rcp.get("factor"),
        "errors": sum(problem["severity"] == "error" for problem in problems),
        "warnings": sum(problem["severity"] == "warning" for problem in problems),
        "first_problem": problem_text(problems[0]) if problems else None,
    }


def _cell(value: Any) -> str:
    """Write a cell that spreadsheets keep as text."""
    if isinstance(value, str):
        return f"'{value}" if value.startswith(FORMULA_SIGNS) else value
    if isinstance(value, dict | list):
        return json.dumps(value)
    return "" if value is None else str(value)


def _csv_line(cells: Iterable[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()
