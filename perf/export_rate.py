"""Speed and memory of exporting, backing up, restoring and checking a server.

`python -m perf.export_rate [SUBMISSIONS]` fills a SQLite database with so many submissions (20,000)
of 5 runs and 20 evaluations each and the store with one log for every hundred runs; then runs the
commands of an administrator, each as a process of its own: export, a check, a backup of SQLite, one
of its tables, a restore of those into SQLite and into PostgreSQL, and an export
from there.
Prints rows and MB a second and the most memory each needed. Exit code 1 if a command fails or
needs more memory than is wanted: none may hold a table, so it must not grow with the database.
"""

import hashlib
import os
import secrets
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import insert

from perf.harness import Bars, print_table
from perf.servers import PYTHON, environment_of, running_database
from server.base.artifacts import ArtifactStore
from server.base.database import Database
from server.base.models import BenchmarkDefinition, RunRow, Submission, User
from tests.support.postgresql import running_postgresql

SUBMISSIONS = 20_000
RUNS = 5
EVALUATIONS = 20
RUNS_WITH_ONE_LOG = 100
ROWS_AT_ONCE = 2000
WANTED_MIB = 400.0
DEFINITION = hashlib.sha256(b"").hexdigest()
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Used:
    """Resources used by a process: seconds, CPU seconds, and peak memory in MiB."""

    seconds: float
    cpu_seconds: float
    peak_mib: float


@dataclass(frozen=True)
class Installation:
    """Places of a server's database and files."""

    database_url: str
    folder: Path

    def run(self, name: str, *arguments: str) -> Used:
        """Run an administrator's command; ends the program if it fails."""
        command = [*PYTHON, "server.admin", *arguments]
        environment = environment_of(self.database_url, self.folder)
        began = time.monotonic()
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        assert process.stderr is not None
        errors = process.stderr.read().decode()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"export rate: {name} failed: {errors[-500:]}")
        return Used(time.monotonic() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def main() -> int:
    """Measure and print; returns the exit code."""
    submissions = int(sys.argv[1]) if len(sys.argv) > 1 else SUBMISSIONS
    bars, table = Bars("export rate"), []
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        first = Installation(stack.enter_context(running_database("sqlite", folder)), folder)
        logs = fill(first, submissions)
        rows = submissions * (RUNS + 1)
        size = (folder / "finishline.db").stat().st_size / 1e6
        bars.say(f"{submissions} submissions, {rows} rows, {size:.0f} MB, {logs} logs")
        second = Installation(f"sqlite:///{folder / 'second' / 'finishline.db'}", folder / "second")
        third = Installation(stack.enter_context(running_postgresql()), folder / "third")
        second.folder.mkdir()
        tables = str(folder / "tables")
        for installation, what, *arguments in (
            (first, "export", "export", str(folder / "export")),
            (first, "check", "check"),
            (first, "backup", "backup", str(folder / "backups")),
            (first, "backup of tables", "backup", "--tables", tables),
            (second, "restore of tables into SQLite", "restore", tables),
            (third, "restore of tables into PostgreSQL", "restore", tables),
            (third, "export from PostgreSQL", "export", str(folder / "exported")),
        ):
            used = installation.run(what, *arguments)
            table.append((what, used))
    print_table(
        ("command", "seconds", "of CPU", "rows/s", "MB/s of database", "peak MiB"),
        [
            (what, f"{used.seconds:.1f}", f"{used.cpu_seconds:.1f}", f"{rows / used.seconds:.0f}",
             f"{size / used.seconds:.0f}", f"{used.peak_mib:.0f}")
            for what, used in table
        ],
    )  # fmt: skip
    most = max(used.peak_mib for _, used in table)
    bars.hold("peak memory", most, " MiB", at_most=WANTED_MIB)
    return bars.exit_code


def fill(server: Installation, submissions: int) -> int:
    """Make the rows and logs; how many logs there are."""
    database = Database(server.database_url)
    with database.write() as session:
        session.execute(insert(User).values(id=1, name="ada", created_at=MOMENT))
        definition = {"benchmark_id": "digits", "version": "1", "content": "", "sha256": DEFINITION}
        session.execute(insert(BenchmarkDefinition).values(**definition, created_at=MOMENT))
    logs = make_logs(server, submissions * RUNS // RUNS_WITH_ONE_LOG)
    for start in range(0, submissions, ROWS_AT_ONCE):
        numbers = range(start, min(start + ROWS_AT_ONCE, submissions))
        with database.write() as session:
            session.execute(insert(Submission), [submission(each, logs) for each in numbers])
            session.execute(
                insert(RunRow),
                [run(each, index, logs) for each in numbers for index in range(RUNS)],
            )
    database.close()
    return len(logs)


def make_logs(server: Installation, count: int) -> list[str]:
    """Logs of 4 KB each, straight into their places: how fast they arrive is not measured here."""
    store, names = ArtifactStore(server.folder / "artifacts"), []
    for _ in range(max(count, 1)):
        content = secrets.token_bytes(2048).hex().encode()
        name = hashlib.sha256(content).hexdigest()
        path = store.path_of(name)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        names.append(name)
    return names


def submission(number: int, logs: list[str]) -> dict[str, Any]:
    """A row as a server has it, with a result of the usual length."""
    steps = [
        {"step": f"run {index}", "seconds": 1.5 * index, "words": "x" * 80} for index in range(9)
    ]
    return {
        "id": f"s{number:011d}", "user_id": 1, "benchmark_id": "digits",
        "benchmark_sha256": DEFINITION, "division": "closed", "model": f"=net {number}",
        "framework": "torch", "system": {"name": "host", "processor_count": 2},
        "hyperparameters": {"batch_size": 64}, "claim_sha256": logs[number % len(logs)],
        "status": "claimed", "eligible": True, "tta_seconds": 0.1 * number,
        "result": {"steps": steps},
        "request_sha256": "c" * 64, "submitted_at": MOMENT,
    }  # fmt: skip


def run(number: int, index: int, logs: list[str]) -> dict[str, Any]:
    """A run's row with its curve."""
    curve = [
        [epoch, epoch * 1152, epoch / 7, 90 + epoch / 3] for epoch in range(1, EVALUATIONS + 1)
    ]
    return {
        "submission_id": f"s{number:011d}", "index": index, "file": f"run_{index}.log",
        "seed": number, "log_sha256": logs[(number * RUNS + index) // RUNS_WITH_ONE_LOG],
        "log_bytes": 4096, "reached": True, "tta_seconds": 0.1 * number, "best_quality": 97.5,
        "curve": curve,
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
