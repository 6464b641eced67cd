"""Cost of the worker's stopwatch and of its counters, by the seconds of an epoch.

The digits reference is trained in turn bare, under the worker, and under the worker without
counters, each in a process of its own with one thread. Compared are seconds per epoch. The worker's
side has everything a replay has: event lines, reader thread, ledger, outbox, posts to a server, and
telemetry: the host's own sensors, or where it has none a counter in a file that stands in for the
kernel's, so that the thread and its readings are paid for on every host.
"""

import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from finishline.rules.benchmarks.benchmark import Benchmark, load_benchmark
from finishline.rules.verification.messages import Lease, ReplayJob, TargetSpec, Training
from perf.harness import DIGITS, Bars, in_turn, median_ratio, run
from worker.child_process import Host, child_environment
from worker.link import WorkerLink
from worker.machine.sensors import EVERY_SECONDS, Sensors, open_powercap, open_sensors
from worker.outbox import Announcer, Outbox
from worker.training import train_run

ALLOWED_RATIO = 1.01
ALLOWED_COUNTERS_RATIO = 1.005
TOKEN = "perf"  # noqa: S105 - the server below takes anything
UNREACHABLE = 101.0  # percent: every run trains all its epochs

BARE = """
import json, sys, time
from pathlib import Path
from reference_models import Measurement, load_reference
reference = load_reference("digits")
config = reference.configure({})
stamps = []
for item in reference.train(config, seed=int(sys.argv[1]), device="cpu", data_dir=Path()):
    if isinstance(item, Measurement):
        stamps.append(time.perf_counter())
print(json.dumps(stamps))
"""


def bare_epoch_seconds(seed: int) -> float:
    """Return seconds per epoch of the bare generator."""
    answer = subprocess.run(
        [sys.executable, "-c", BARE, str(seed)],
        env=child_environment(threads=1),
        # As the worker starts its own: the kernel shares a busy processor among sessions.
        start_new_session=True,
        capture_output=True,
        check=True,
    )
    return epoch_seconds(json.loads(answer.stdout))


def worker_epoch_seconds(
    seed: int, benchmark: Benchmark, server: WorkerLink, sensors: Sensors | None
) -> float:
    """Return seconds per epoch under the worker's stopwatch."""
    job = endless_job(seed, benchmark)
    grant = Lease(attempt_id="perf", fence=1, token=TOKEN, lease_seconds=8.0, job=job)
    post = partial(server.post_events, grant)
    with Outbox(post, heartbeat_seconds=2.0, hurry=partial(post, once=True)) as outbox:
        run = train_run(
            job,
            0,
            host=Host(device="cpu", data_dir=Path(), sensors=sensors),
            announcer=Announcer(outbox.put),
            stop=lambda: outbox.stop_reason,
        )
    assert run.status == "not_reached", run
    return epoch_seconds([item.seconds for item in run.evaluations])


def endless_job(seed: int, benchmark: Benchmark) -> ReplayJob:
    """Return the digits job with an unreachable target."""
    return ReplayJob(
        attempt_id="perf",
        verification_id="perf",
        submission_id="perf",
        benchmark_id=benchmark.benchmark_id,
        benchmark_sha256=benchmark.sha256,
        data_set_sha256=benchmark.data_set.sha256,
        trainings=[Training("digits", benchmark.defaults(), seed)],
        target=TargetSpec("top1Accuracy", UNREACHABLE, "higher"),
        clock="mlperf",
        division="closed",
        control_points=[],
        run_limit_seconds=600.0,
    )


def epoch_seconds(stamps: list[float]) -> float:
    """Return the mean of the faster half of the gaps, which a busy neighbour spoils least."""
    gaps = sorted(later - earlier for earlier, later in itertools.pairwise(stamps))
    return statistics.mean(gaps[: len(gaps) // 2])


@contextmanager
def accepting_server() -> Iterator[WorkerLink]:
    """Serve "go on" to every post in this process. Yields a client."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            body = b'{"proceed": true, "reason": null}'
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    threading.Thread(target=http.serve_forever, daemon=True).start()
    with WorkerLink(f"http://127.0.0.1:{http.server_port}", token=TOKEN) as client:
        yield client
    http.shutdown()
    http.server_close()


@contextmanager
def host_sensors() -> Iterator[Sensors]:
    """Return the sensors of this host, or a counter in a file."""
    found = open_sensors("cpu")
    if found is not None:
        yield found
        return
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "intel-rapl:0"
        package.mkdir()
        (package / "energy_uj").write_text("1000")
        (package / "max_energy_range_uj").write_text("1000000")
        played = open_powercap(Path(folder))
        assert played is not None
        yield played


def measure(bars: Bars, *, pairs: int = 10) -> None:
    """Train in turn, and compare the ratios with their bars."""
    benchmark = load_benchmark(DIGITS)
    with accepting_server() as server, host_sensors() as sensors:
        bars.say(f"{type(sensors).__name__}, readings at {1 / EVERY_SECONDS:g} Hz")
        seeds = defaultdict[str, Iterator[int]](itertools.count)  # The same for each case.

        def under_worker(name: str, found: Sensors | None) -> float:
            return worker_epoch_seconds(next(seeds[name]), benchmark, server, found)

        cases = {
            "bare": lambda: bare_epoch_seconds(next(seeds["bare"])),
            "worker": lambda: under_worker("worker", sensors),
            "no counters": lambda: under_worker("no counters", None),
        }
        seconds = in_turn(cases, pairs)
    for name, other, bar in (
        ("an epoch under the worker over a bare one", "bare", ALLOWED_RATIO),
        ("an epoch with counters over one without", "no counters", ALLOWED_COUNTERS_RATIO),
    ):
        ratio = median_ratio(seconds["worker"], seconds[other])
        bars.hold(f"{name}, median of {pairs}", ratio, at_most=bar)


if __name__ == "__main__":
    run(measure)
