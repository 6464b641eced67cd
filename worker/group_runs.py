"""Runs of a measuring module in several processes of this machine."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from worker.bench import BenchError
from worker.child_process import child_environment
from worker.group import ORDERS, launch_options

RESULT = "result.json"
GROUP_SECONDS = 600.0


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
