"""Fetch the files that a reference trains on: `finishline benchmark fetch`."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from finishline.cli.definitions import find_benchmark
from finishline.cli.errors import CliError, ExitCode
from finishline.cli.processes import child_events, python_module, require_training_packages
from finishline.cli.screen import Screen
from finishline.rules.submissions.claim import reference_of

SECONDS_BETWEEN_LINES = 2.0


def fetch_data(screen: Screen, act: str, named: str, data: Path, folder: Path | None) -> ExitCode:
    """Fetch files where their licence allows it, or `check` them, by their published hashes."""
    require_training_packages("benchmark fetch")
    _, benchmark = find_benchmark(named, folder)
    arguments = [act, reference_of(benchmark).reference, "--data-dir", str(data.absolute())]
    files, answer, said_at = [], {}, 0.0
    for event in child_events(python_module("worker.data_sets", *arguments)):
        kind = event.get("kind")
        if kind == "file":
            files.append(event)
        elif kind == "answer":
            answer = event
        elif kind == "progress" and time.monotonic() > said_at:
            said_at = time.monotonic() + SECONDS_BETWEEN_LINES
            of = f" of {event['total'] / 1e6:,.0f}" if event["total"] else ""
            screen.say(f"  {event['name']}: {event['have'] / 1e6:,.0f}{of} MB")
        elif kind == "exit" and (event["code"] not in (0, 1) or not answer):
            why = event["said"] or f"exit code {event['code']}"
            raise CliError(why)
    document = {"benchmark": benchmark.benchmark_id, "folder": str(data.absolute())} | {
        "files": [{k: v for k, v in each.items() if k != "kind"} for each in files],
        "whole": answer["whole"],
        "how": answer["how"],
    }
    lines = [f"Data of {benchmark.benchmark_id} in {data.absolute()}:"]
    lines += [line for each in files for line in _lines(each)]
    screen.answer(document, [*lines, *([answer["how"]] if answer["how"] else [])])
    return ExitCode.OK if answer["whole"] else ExitCode.REFUSED


def _lines(found: dict[str, Any]) -> Iterator[str]:
    usable = found["state"] in {"as published", "here"}
    words = [
        f"{found['path']}: {found['state']}",
        f"{found['size_bytes']:,} bytes" if found["size_bytes"] else "",
        f"{found['pictures']:,} pictures" if found["pictures"] is not None else "",
        found["digest"] or "",
        "" if usable or not found["expected"] else f"expected {found['expected']}",
    ]
    yield "  " + ", ".join(filter(None, words))
    if not usable and found["command"]:
        yield f"    {found['command']}"
