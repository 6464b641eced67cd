"""Runs of a measuring module in several processes of this machine."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from worker.bench import BenchError
from worker.child_process import child_environment
from worker.group import ORDERS, launch_options

RESULT = "result.json"
GROUP_SECONDS = 600.0


def write_result(folder: Path, measure: Callable[[], Mapping[str, Any]]) -> None:
    """Measure in one of the processes, and end it; the first one writes the result, or its error.

    Raises as `measure` does.
    """
    result: Mapping[str, Any] = {}
    try:
        result = measure()
    except Exception as error:
        result = {"error": f"{error}".splitlines()[0] if f"{error}" else type(error).__name__}
        raise
    finally:
        if os.environ["RANK"] == "0":
            (folder / RESULT).write_text(json.dumps(result))
    sys.stdout.flush()
    os._exit(0)  # Tearing down torch takes time and can abort.


def run_group(module: str, orders: Mapping[str, Any], processes: int) -> dict[str, Any]:
    """Result that the first of the processes wrote. Raises BenchError with its last words."""
    with tempfile.TemporaryDirectory(prefix="finishline-group-") as folder:
        (Path(folder) / ORDERS).write_text(json.dumps(dict(orders)))
        group = ["-m", "worker.group", str(os.getpid()), folder, *launch_options(processes)]
        try:
            done = subprocess.run(
                [sys.executable, *group, "-m", module],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=child_environment(1),
                timeout=GROUP_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise BenchError(f"{processes} processes took longer than 10 minutes") from error
        sys.stderr.buffer.write(done.stderr)
        result = Path(folder) / RESULT
        found: dict[str, Any] = json.loads(result.read_text()) if result.is_file() else {}
    if not found or "error" in found:
        raise BenchError(found.get("error", f"{processes} processes ended without a result"))
    return found
