"""Time of a server from its start to its first response, on a laptop's settings.

Measured: a fresh process running uvicorn, until /healthz answers; the median of seven, and the CPU
time it took, which says more on a machine that others use. A start before them is not counted: it
keeps the compiled modules, as an installation has them. Exit code 1 above 1.5 s.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

from perf.harness import Bars
from perf.servers import cpu_seconds, environment_of, running_database, running_server

STARTS = 7
LIMIT_SECONDS = 1.5


def main() -> int:
    """Print each start and the median; returns the exit code."""
    bars = Bars("server start")
    with tempfile.TemporaryDirectory() as name, running_database("sqlite", Path(name)) as url:
        compiled = {"PYTHONPYCACHEPREFIX": f"{name}/compiled"}
        environment = environment_of(url, Path(name), **compiled)
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        seconds_to_first_answer(environment)
        starts = [seconds_to_first_answer(environment) for _ in range(STARTS)]
    times, cpu_times = zip(*starts, strict=True)
    bars.say(" ".join(f"{seconds:.2f}" for seconds in times) + " s")
    bars.say(f"of CPU {statistics.median(cpu_times):.2f} s")
    bars.hold("median", statistics.median(times), " s", at_most=LIMIT_SECONDS)
    return bars.exit_code


def seconds_to_first_answer(environment: dict[str, str]) -> tuple[float, float]:
    """Start a server, wait for its first answer, stop it; by the clock, and of CPU."""
    began = time.perf_counter()
    with running_server(environment, pause=0.01) as server:
        return time.perf_counter() - began, cpu_seconds(server.process)


if __name__ == "__main__":
    sys.exit(main())
