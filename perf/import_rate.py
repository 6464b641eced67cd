"""How many runs a second `finishline import mlperf` brings into a server on SQLite.

`python perf/import_rate.py [PACKAGES]` copies the packages under other names, every log with a line
of its own, until there are 1,669 runs (as in MLPerf Training v5.1); starts a real server with an
empty database; imports with the real command, twice: the second time everything is there already.
Prints runs a second and the CPU seconds of both processes. Exit code 1 below the wanted rate.

The packages are those of FINISHLINE_ARCHIVES (mlperf/v5.1), or the folder beside the checkout.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import psutil

RUNS = 1669
WANTED_RUNS_PER_SECOND = 200
CHECKOUT = Path(__file__).resolve().parents[1]
ARCHIVES = Path(os.environ.get("FINISHLINE_ARCHIVES", CHECKOUT.parent / "shared" / "archives"))


def main() -> int:
    """Measure and print; returns the exit code."""
    packages = Path(sys.argv[1]) if len(sys.argv) > 1 else ARCHIVES / "mlperf" / "v5.1"
    if not packages.is_dir():
        print(f"import rate: no packages at {packages}, nothing measured")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        copies = Path(folder) / "training_results_v5.1"
        runs = replicate(packages, copies, wanted=RUNS)
        size = sum(path.stat().st_size for path in copies.rglob("result_*.txt"))
        print(f"import rate: {runs} runs, {size / 1e6:.0f} MB")
        with running_server(Path(folder)) as (server, environment):
            rate = import_once("empty", copies, server, environment)
            import_once("again", copies, server, environment)
    print(f"import rate: {rate:.0f} runs/s ({WANTED_RUNS_PER_SECOND} are wanted)")
    return int(rate < WANTED_RUNS_PER_SECOND)


def replicate(packages: Path, copies: Path, *, wanted: int) -> int:
    """Copy packages under other organisations until there are at least this many runs."""
    made = number = 0
    while made < wanted:
        for organisation in sorted(path for path in packages.iterdir() if path.is_dir()):
            for path in organisation.rglob("*"):
                if not path.is_file():
                    continue
                name = f"{organisation.name}-{number}"
                copy = copies / name / path.relative_to(organisation)
                copy.parent.mkdir(parents=True, exist_ok=True)
                is_log = path.name.startswith("result_")
                # The line keeps logs from being stored as one, as real logs are not.
                mark = f"\ncopy {number}\n".encode() if is_log else b""
                copy.write_bytes(path.read_bytes() + mark)
                made += is_log
            if made >= wanted:
                break
        number += 1
    return made


@contextlib.contextmanager
def running_server(folder: Path) -> Iterator[tuple[psutil.Process, dict[str, str]]]:
    """A server with an empty SQLite database, and the environment to reach it as an organiser."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    environment = os.environ | {
        "FINISHLINE_DATABASE_URL": f"sqlite:///{folder / 'finishline.db'}",
        "FINISHLINE_ARTIFACTS_DIR": str(folder / "artifacts"),
        "FINISHLINE_URL": url,
    }
    admin = [sys.executable, "-m", "server.admin"]
    subprocess.run([*admin, "migrate"], env=environment, check=True, stdout=subprocess.DEVNULL)
    made = subprocess.run(
        [*admin, "token", "--user", "perf", "--role", "organiser"],
        env=environment,
        check=True,
        capture_output=True,
    )
    environment["FINISHLINE_TOKEN"] = json.loads(made.stdout)["token"]
    command = [sys.executable, "-m", "uvicorn", "server.app:app", "--port", str(port)]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen([*command, "--no-access-log"], env=environment, **quiet)
    try:
        wait_until_ready(url, server)
        yield psutil.Process(server.pid), environment
    finally:
        server.terminate()
        server.wait(timeout=20)


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_ready(url: str, server: "subprocess.Popen[bytes]") -> None:
    """Return once the server answers."""
    for _ in range(600):
        if server.poll() is not None:
            raise SystemExit("import rate: the server stopped by itself")
        with contextlib.suppress(httpx2.TransportError):
            httpx2.get(f"{url}/healthz", trust_env=False)
            return
        time.sleep(0.05)
    raise SystemExit("import rate: the server does not answer")


def import_once(
    name: str, copies: Path, server: psutil.Process, environment: dict[str, str]
) -> float:
    """Runs a second of one import, from the command's start to its end."""
    before, children = cpu_seconds(server), os.times().children_user + os.times().children_system
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "finishline.cli.main", "import", "mlperf", str(copies), "--json"],
        env=environment,
        capture_output=True,
        check=False,
    )
    seconds = time.monotonic() - started
    if done.returncode != 0:
        raise SystemExit(f"import rate: {done.stderr.decode()[-500:]}{done.stdout.decode()[-500:]}")
    document = json.loads(done.stdout)
    runs = sum(each["runs"] for each in document["imported"] + document["already_there"])
    command = os.times().children_user + os.times().children_system - children
    print(
        f"import rate: {name}: {len(document['imported'])} imported, "
        f"{len(document['already_there'])} there already, {runs} runs in {seconds:.1f} s: "
        f"{runs / seconds:.0f} runs/s; CPU: server {cpu_seconds(server) - before:.1f} s, "
        f"command {command:.1f} s"
    )
    return runs / seconds


def cpu_seconds(process: psutil.Process) -> float:
    """CPU seconds a process has used so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    sys.exit(main())
