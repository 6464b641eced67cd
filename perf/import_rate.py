"""Runs per second that `finishline import mlperf` brings into a server on SQLite.

`python -m perf.import_rate [PACKAGES]` copies the packages under other names, every log with a line
of its own, until there are 1,669 runs (as in MLPerf Training v5.1); starts a real server with an
empty database; imports with the real command, twice: the second time everything is there already.
Prints runs a second and the CPU seconds of both processes. Exit code 1 below the wanted rate.

The packages are those of FINISHLINE_ARCHIVES (mlperf/v5.1), or the folder beside the checkout.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from perf.harness import Bars, archived_packages
from perf.servers import (
    PYTHON,
    Server,
    cpu_seconds,
    environment_of,
    make_tokens,
    running_database,
    running_server,
)

RUNS = 1669
WANTED_RUNS_PER_SECOND = 200
BARS = Bars("import rate")


def main() -> int:
    """Measure and print; returns the exit code."""
    packages = archived_packages([Path(given) for given in sys.argv[1:]])
    if not packages:
        BARS.say("no packages, nothing measured")
        return 0
    with tempfile.TemporaryDirectory() as name, running_database("sqlite", Path(name)) as url:
        copies = Path(name) / "training_results_v5.1"
        runs = replicate(packages[0], copies, wanted=RUNS)
        size = sum(path.stat().st_size for path in copies.rglob("result_*.txt"))
        BARS.say(f"{runs} runs, {size / 1e6:.0f} MB")
        environment = environment_of(url, Path(name))
        environment["FINISHLINE_TOKEN"] = make_tokens(url, {"perf": "organiser"})["perf"]
        with running_server(environment) as server:
            environment["FINISHLINE_URL"] = server.url
            rate = import_once("empty", copies, server, environment)
            import_once("again", copies, server, environment)
    BARS.hold("imported", rate, " runs/s", at_least=WANTED_RUNS_PER_SECOND)
    return BARS.exit_code


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


def import_once(name: str, copies: Path, server: Server, environment: dict[str, str]) -> float:
    """Runs a second of one import, from the command's start to its end."""
    before, children = (
        cpu_seconds(server.process),
        os.times().children_user + os.times().children_system,
    )
    started = time.monotonic()
    done = subprocess.run(
        [*PYTHON, "finishline.cli.main", "import", "mlperf", str(copies), "--json"],
        env=environment,
        capture_output=True,
        check=False,
    )
    seconds = time.monotonic() - started
    if done.returncode != 0:
        raise SystemExit(f"import rate: {done.stderr.decode()[-500:]}{done.stdout.decode()[-500:]}")
    document = json.loads(done.stdout)
    runs = sum(each["runs"] for each in document["imported"] + document["already_there"])
    command = children_seconds() - children
    BARS.say(
        f"{name}: {len(document['imported'])} imported, "
        f"{len(document['already_there'])} there already, {runs} runs in {seconds:.1f} s: "
        f"{runs / seconds:.0f} runs/s; CPU: server {cpu_seconds(server.process) - before:.1f} s, "
        f"command {command:.1f} s"
    )
    return float(runs / seconds)


def children_seconds() -> float:
    """CPU seconds that commands which have ended used so far."""
    used = os.times()
    return used.children_user + used.children_system


if __name__ == "__main__":
    sys.exit(main())
