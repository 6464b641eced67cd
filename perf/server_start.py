"""Time of a server from its start to its first response, on a laptop's settings.

Measured: a fresh process running uvicorn, until /healthz answers. The median of seven, and the CPU
time it took, which says more on a machine that others use. A start before them is not counted: it
keeps the compiled modules, as an installation has them.
"""

import statistics
import time

from perf.harness import Bars, run
from perf.servers import cpu_seconds, environment_of, running_database, running_server

LIMIT_SECONDS = 1.5


def measure(bars: Bars, *, starts: int = 7) -> None:
    """Start servers, and print the median."""
    with running_database("sqlite") as (url, folder):
        environment = environment_of(url, folder, PYTHONPYCACHEPREFIX=f"{folder}/compiled")
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        found = [seconds_to_first_answer(environment) for _ in range(1 + starts)][1:]
    times, cpu_times = zip(*found, strict=True)
    bars.say(" ".join(f"{seconds:.2f}" for seconds in times) + " s")
    bars.say(f"of CPU {statistics.median(cpu_times):.2f} s")
    bars.hold("start to first answer", statistics.median(times), " s", at_most=LIMIT_SECONDS)


def seconds_to_first_answer(environment: dict[str, str]) -> tuple[float, float]:
    """Start a server, wait for its first answer, stop it. By the clock, and of CPU."""
    began = time.perf_counter()
    with running_server(environment, pause=0.01) as server:
        return time.perf_counter() - began, cpu_seconds(server)


if __name__ == "__main__":
    run(measure)
