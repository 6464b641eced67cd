"""Cost of archives: scoring published packages, importing them, and copying a server.

`python -m perf.archives [PACKAGES...] [--only score|import|export]` measures

* score: processor seconds to score the packages, against merely reading their files and counting
  MLLOG lines, in turn. Where `mlperf-logging` is installed, its three tools run on the same files;
* import: runs a second of `finishline import mlperf` into a server on SQLite. Packages are copied
  under other names until there are 1,669 runs, as in MLPerf Training v5.1;
* export: the peak memory of an administrator's export, check, backup and restore on a server of
  20,000 submissions, which must not grow with the database.

The packages are those of FINISHLINE_ARCHIVES (mlperf/v5.1), or the folder beside the checkout.
Exits with 1 where a bar is missed.
"""

import argparse
import contextlib
import hashlib
import importlib.util
import io
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import orjson
from sqlalchemy import insert

from finishline.cli.records import find_in
from finishline.rules.archive.definitions import shipped_definitions
from finishline.rules.archive.score import score_found
from finishline.rules.benchmarks.benchmark import load_benchmarks
from perf.harness import CHECKOUT, Bars, in_turn, processor_seconds_of
from perf.servers import (
    PYTHON,
    cpu_seconds,
    environment_of,
    make_tokens,
    running_database,
    running_server,
)
from server.base.artifacts import ArtifactStore
from server.base.database import Database
from server.base.models import BenchmarkDefinition, RunRow, Submission, User

BARS = Bars("archives")
ALLOWED_RATIO = 12.0  # Each broken line is named, see docs/decisions/0032.
ALLOWED_SHARE = 1 / 100  # of the time of the three published tools together
IMPORTED_RUNS, WANTED_RUNS_PER_SECOND = 1669, 200
RUNS, EVALUATIONS = 5, 20
RUNS_WITH_ONE_LOG, ROWS_AT_ONCE = 100, 2000
WANTED_MIB = 400.0
DEFINITION = hashlib.sha256(b"").hexdigest()
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)

# In the tools' own process, so that their imports are left out as ours are.
TOOLS = """
import contextlib, glob, io, json, logging, os, sys, time
from mlperf_logging.compliance_checker import mlp_compliance
from mlperf_logging.rcp_checker import rcp_checker
from mlperf_logging.result_summarizer import result_summarizer
root, ruleset = sys.argv[1], "5.1.0"
sets = sorted({os.path.dirname(f) for f in glob.glob(root + "/*/results/*/*/result_*.txt")})
logging.disable(logging.CRITICAL)
seconds = {}
def timed(name, call):
    started = time.process_time()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        call()
    seconds[name] = seconds.get(name, 0.0) + time.process_time() - started
def comply():
    for folder in sets:
        for file in sorted(glob.glob(folder + "/result_*.txt")):
            checker = mlp_compliance.make_checker("training", ruleset, True, False)
            mlp_compliance.main(file, f"training_{ruleset}/common.yaml", checker)
def rcp():
    for folder in sets:
        points = "pruned_rcps"
        rcp_checker.check_directory(folder, "training", ruleset, False, False, rcp_pass=points)
def summarize():
    for folder in sorted(glob.glob(root + "/*/")):
        result_summarizer.summarize_results(folder.rstrip("/"), "training", ruleset)
for name, call in (("compliance", comply), ("rcp", rcp), ("summarizer", summarize)):
    timed(name, call)
print(json.dumps(seconds))
"""


def main() -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("packages", nargs="*", type=Path)
    parser.add_argument("--only", choices=("score", "import", "export"))
    parser.add_argument("--repeats", type=int, default=7, help="of scoring")
    parser.add_argument("--runs", type=int, default=IMPORTED_RUNS, help="to import")
    parser.add_argument("--submissions", type=int, default=20_000, help="of the copied server")
    given = parser.parse_args()
    archives = Path(os.environ.get("FINISHLINE_ARCHIVES", CHECKOUT.parent / "shared" / "archives"))
    packages = given.packages or [archives / "mlperf" / "v5.1"]
    if given.only != "export" and not all(package.is_dir() for package in packages):
        BARS.say("no packages, neither scoring nor importing is measured")
    else:
        if given.only in (None, "score"):
            measure_scoring(packages, given.repeats)
        if given.only in (None, "import"):
            measure_importing(packages[0], given.runs)
    if given.only in (None, "export"):
        measure_copies(given.submissions)
    return BARS.exit_code


def measure_scoring(packages: list[Path], repeats: int) -> None:
    """Compare scoring with reading and counting, and with the published tools."""
    benchmarks = shipped_definitions() | load_benchmarks(CHECKOUT / "benchmarks")
    files = [path for package in packages for path in package.rglob("result_*.txt")]

    def count() -> int:
        return sum(path.read_bytes().count(b":::MLLOG") for path in files)

    def score() -> int:
        records = (score_found(find_in(package), benchmarks) for package in packages)
        return sum(len(orjson.dumps(record)) for each in records for record in each)

    cases = {"count": partial(processor_seconds_of, count)}
    cases["score"] = partial(processor_seconds_of, score)
    limit, ours = (min(taken) for taken in in_turn(cases, repeats).values())
    BARS.say(f"{len(files)} logs: {1e3 * limit:.1f} ms of CPU to count, {1e3 * ours:.1f} to score")
    BARS.hold("scoring over reading and counting", ours / limit, at_most=ALLOWED_RATIO)
    tools = published_tools(packages)
    if tools is None:
        BARS.say("mlperf-logging is not installed, so it is not measured")
        return
    BARS.say(", ".join(f"{name} {seconds:.2f} s" for name, seconds in tools.items()))
    BARS.hold("share of the published tools", ours / sum(tools.values()), at_most=ALLOWED_SHARE)


def published_tools(packages: list[Path]) -> dict[str, float] | None:
    """CPU seconds of the published tools, None where they are not installed."""
    python = os.environ.get("FINISHLINE_MLPERF_PYTHON", sys.executable)
    if python == sys.executable and importlib.util.find_spec("mlperf_logging") is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "packages"  # A copy: the RCP checker writes beside the logs.
        for package in packages:
            shutil.copytree(package, root, dirs_exist_ok=True)
        ran = subprocess.run(
            [python, "-c", TOOLS, str(root)], capture_output=True, text=True, check=False
        )
    with contextlib.suppress(ValueError, IndexError):
        return dict(json.load(io.StringIO(ran.stdout.splitlines()[-1])))
    raise SystemExit(f"archives: mlperf-logging failed: {ran.stderr.strip()[-300:]}")


def measure_importing(package: Path, wanted: int) -> None:
    """Import a package's copies into an empty server, and then again."""
    with tempfile.TemporaryDirectory() as name, running_database("sqlite", Path(name)) as url:
        copies = Path(name) / "training_results_v5.1"
        BARS.say(f"{replicate(package, copies, wanted=wanted)} runs to import")
        environment = environment_of(url, Path(name))
        environment["FINISHLINE_TOKEN"] = make_tokens(url, {"perf": "organiser"})["perf"]
        with running_server(environment) as server:
            environment["FINISHLINE_URL"] = server.url
            for which in ("imported", "imported again"):
                before, began = cpu_seconds(server.process), time.monotonic()
                done = subprocess.run(
                    [*PYTHON, "finishline.cli.main", "import", "mlperf", str(copies), "--json"],
                    env=environment, capture_output=True, check=False,
                )  # fmt: skip
                seconds = time.monotonic() - began
                if done.returncode != 0:
                    raise SystemExit(f"archives: {(done.stderr + done.stdout).decode()[-500:]}")
                document = json.loads(done.stdout)
                runs = sum(e["runs"] for e in document["imported"] + document["already_there"])
                BARS.say(f"server {cpu_seconds(server.process) - before:.1f} s of CPU")
                bar = WANTED_RUNS_PER_SECOND if which == "imported" else None
                BARS.hold(which, runs / seconds, " runs/s", at_least=bar)


def replicate(package: Path, copies: Path, *, wanted: int) -> int:
    """Copy a package under other organisations until there are at least this many runs."""
    made = number = 0
    while made < wanted:
        for organisation in sorted(path for path in package.iterdir() if path.is_dir()):
            for path in filter(Path.is_file, organisation.rglob("*")):
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


@dataclass(frozen=True)
class Installation:
    """Places of a server's database and files."""

    database_url: str
    folder: Path

    def run(self, name: str, *arguments: str, rows: int) -> None:
        """Run an administrator's command, and compare its memory with the bar."""
        environment = environment_of(self.database_url, self.folder)
        process = subprocess.Popen(
            [*PYTHON, "server.admin", *arguments], env=environment,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert process.stderr is not None
        errors = process.stderr.read().decode()
        _, status, used = os.wait4(process.pid, 0)
        seconds = used.ru_utime + used.ru_stime
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"archives: {name} failed: {errors[-500:]}")
        BARS.say(f"{name}: {seconds:.1f} s of CPU, {rows / seconds:.0f} rows/s")
        BARS.hold(f"{name}: peak memory", used.ru_maxrss / 1024, " MiB", at_most=WANTED_MIB)


def measure_copies(submissions: int) -> None:
    """Run the commands of an administrator that read or write a whole server."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        first = Installation(stack.enter_context(running_database("sqlite", folder)), folder)
        fill(first, submissions)
        second = Installation(f"sqlite:///{folder / 'second' / 'finishline.db'}", folder / "second")
        second.folder.mkdir()
        for installation, what, *arguments in (
            (first, "export", "export", f"{name}/export"),
            (first, "check", "check"),
            (first, "backup", "backup", f"{name}/backups"),
            (second, "restore", "restore", f"{name}/backups"),
        ):
            installation.run(what, *arguments, rows=submissions * (RUNS + 1))


def fill(server: Installation, submissions: int) -> None:
    """Make rows and logs. How fast they arrive is not measured here."""
    store, logs = ArtifactStore(server.folder / "artifacts"), []
    for _ in range(max(1, submissions * RUNS // RUNS_WITH_ONE_LOG)):
        content = secrets.token_bytes(2048).hex().encode()
        logs.append(hashlib.sha256(content).hexdigest())
        path = store.path_of(logs[-1])
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    steps = [{"step": f"run {i}", "seconds": 1.5 * i, "words": "x" * 80} for i in range(9)]
    curve = [
        [epoch, epoch * 1152, epoch / 7, 90 + epoch / 3] for epoch in range(1, EVALUATIONS + 1)
    ]
    submission = {
        "user_id": 1, "benchmark_id": "digits", "benchmark_sha256": DEFINITION,
        "division": "closed", "framework": "torch", "status": "claimed", "eligible": True,
        "system": {"name": "host", "processor_count": 2}, "hyperparameters": {"batch_size": 64},
        "result": {"steps": steps}, "request_sha256": "c" * 64, "submitted_at": MOMENT,
    }  # fmt: skip
    run = {"log_bytes": 4096, "reached": True, "best_quality": 97.5, "curve": curve}
    definition = {"benchmark_id": "digits", "version": "1", "content": "", "sha256": DEFINITION}
    database = Database(server.database_url)
    with database.write() as session:
        session.execute(insert(User).values(id=1, name="ada", created_at=MOMENT))
        session.execute(insert(BenchmarkDefinition).values(**definition, created_at=MOMENT))
    for start in range(0, submissions, ROWS_AT_ONCE):
        submitted, trained = [], []
        for number in range(start, min(start + ROWS_AT_ONCE, submissions)):
            own = {"id": f"s{number:011d}", "model": f"=net {number}", "tta_seconds": 0.1 * number}
            submitted.append(submission | own | {"claim_sha256": logs[number % len(logs)]})
            for index in range(RUNS):
                log = {"log_sha256": logs[(number * RUNS + index) // RUNS_WITH_ONE_LOG]}
                file = {"submission_id": own["id"], "index": index, "file": f"run_{index}.log"}
                trained.append(
                    run | log | file | {"seed": number, "tta_seconds": own["tta_seconds"]}
                )
        with database.write() as session:
            session.execute(insert(Submission), submitted)
            session.execute(insert(RunRow), trained)
    database.close()


if __name__ == "__main__":
    sys.exit(main())
