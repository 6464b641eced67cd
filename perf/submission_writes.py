"""Submissions a second through the API beside a bare route that stores the same.

`python -m perf.submission_writes` measures SQLite with one server process, as `finishline up` has
it, and PostgreSQL with two. A submission has 5 run logs of 100 evaluations as the digits reference
writes them, 51 kB each, and 8 users send one after the other. The bare route
(perf/submission_bare.py) is served by as many processes of uvicorn, takes the same requests, writes
the same 6 files with fsync and inserts the very rows that the server stored, in one transaction,
with the same settings of the same database. The two take turns; the median of the ratios counts.
Exit code 1 where it is below 0.65.

The server does beside: know the token and its quota, check and score 1,540 lines of logs, look for
copies of earlier logs.

On ext4 a new file is ten times as dear, 0.2 ms and more, where many were deleted in the minutes
before, as tests do: it passes over their places. TMPDIR names another file system.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from perf.harness import Bars, in_turn, percentiles, print_table
from perf.servers import (
    Server,
    cpu_seconds,
    environment_of,
    make_tokens,
    running_database,
    running_server,
)
from perf.submission_bare import ROWS, keep_rows
from perf.submission_load import Requests, send_for

WANTED_RATIO = 0.65
CLIENTS = 8
PROCESSES = {"sqlite": 1, "postgresql": 2}
BARE_APP = ("--factory", "perf.submission_bare:make_app")


def main() -> int:
    """Measure both databases and print; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each load")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=sorted(PROCESSES))
    asked = parser.parse_args()
    bars = Bars("submission writes")
    for kind in [asked.only] if asked.only else PROCESSES:
        with tempfile.TemporaryDirectory() as folder:
            ratio = measure(kind, Path(folder), seconds=asked.seconds, rounds=asked.rounds)
        bars.hold(f"{kind}: ratio", ratio, at_least=WANTED_RATIO)
    return bars.exit_code


class Load:
    """People who submit to one kind of server, and the figures of it."""

    def __init__(self, servers: Sequence[Server], tokens: Sequence[str]) -> None:
        self._servers, self._tokens, self._requests = servers, tokens, Requests()
        self.cpu: list[float] = []
        self.seconds: list[float] = []

    def rate(self, seconds: float) -> float:
        """Submissions a second. Stops the measurement if one is not taken."""
        processes = [server.process for server in self._servers]
        ports = [server.port for server in self._servers]
        before, began = cpu_seconds(*processes), time.perf_counter()
        load = send_for(ports, self._requests, tokens=self._tokens, seconds=seconds)
        answered = asyncio.run(load)
        took = time.perf_counter() - began
        if answered.faults:
            raise SystemExit(f"submission writes: {answered.faults[0]}")
        count = len(answered.seconds)
        self.cpu.append((cpu_seconds(*processes) - before) / count)
        self.seconds += answered.seconds
        return count / took

    def row(self, name: str, rates: Sequence[float]) -> list[str]:
        """The figures of its rounds."""
        p50, p99 = (1e3 * each for each in percentiles(self.seconds))
        cpu = 1e3 * statistics.median(self.cpu)
        rate = statistics.median(rates)
        return [name, f"{rate:.0f}", f"{p50:.0f} ms", f"{p99:.0f} ms", f"{cpu:.1f} ms"]


def measure(kind: str, folder: Path, *, seconds: float, rounds: int) -> float:
    """The median ratio of some rounds on one database."""
    with ExitStack() as stack:
        url = stack.enter_context(running_database(kind, folder))
        tokens = list(make_tokens(url, {f"perf{n}": "submitter" for n in range(CLIENTS)}).values())
        environment = environment_of(url, folder, **{ROWS: str(folder / "rows")})

        def load(*app: str) -> Load:
            started = [running_server(environment, *app) for _ in range(PROCESSES[kind])]
            servers = [stack.enter_context(each) for each in started]
            made = Load(servers, tokens)
            made.rate(1.0)  # Warms it up.
            made.cpu, made.seconds = [], []
            return made

        ours = load()
        keep_rows(url, folder / "rows")
        bare = load(*BARE_APP)
        cases = {"server": lambda: ours.rate(seconds), "bare route": lambda: bare.rate(seconds)}
        rates = in_turn(cases, rounds)
        head = (kind, "submissions/s", "p50", "p99", "CPU each")
        rows = [ours.row("server", rates["server"]), bare.row("bare route", rates["bare route"])]
        print_table(head, rows)
        pairs = zip(rates["server"], rates["bare route"], strict=True)
        return statistics.median(one / other for one, other in pairs)


if __name__ == "__main__":
    sys.exit(main())
