"""Cost of archives: scoring published packages, importing them, and copying a server.

* score: processor seconds to score the packages, against merely reading their files and counting
  MLLOG lines, in turn. Where `mlperf-logging` is installed, its three tools run on the same files;
* import: runs a second of `finishline import mlperf` into a server on SQLite. Packages are copied
  under other names until there are 1,669 runs, as in MLPerf Training v5.1;
* export: the peak memory of an administrator's export, check, backup and restore on a server of
  20,000 submissions, which must not grow with the database.

`--only` measures a part. The packages are in FINISHLINE_ARCHIVES (mlperf/v5.1), or of
the folder next to the checkout.
"""

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
from collections.abc import Callable
from functools import partial
from pathlib import Path

import orjson

from finishline.cli.records import find_in
from finishline.rules.archive.definitions import shipped_definitions
from finishline.rules.archive.score import score_found
from finishline.rules.benchmarks.benchmark import load_benchmarks
from perf.boards import RUNS, fill_board
from perf.harness import CHECKOUT, Bars, in_turn, run
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
from server.base.signing import load_signer

ALLOWED_RATIO = 12.0  # Each broken line is named, see docs/decisions/0032.
ALLOWED_SHARE = 1 / 100  # of the time of the three published tools together
WANTED_RUNS_PER_SECOND = 200
EVALUATIONS, RUNS_WITH_ONE_LOG = 20, 100
WANTED_MIB = 400.0

# In the tools' own process, so that both sides leave their imports out.
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


def measure(
    bars: Bars,
    *,
    only: str = "",
    packages: str = "",
    repeats: int = 7,
    runs: int = 1669,
    submissions: int = 20_000,
) -> None:
    """Measure scoring, importing and copies, or a part."""
    archives = Path(os.environ.get("FINISHLINE_ARCHIVES", CHECKOUT.parent / "shared" / "archives"))
    package = Path(packages) if packages else archives / "mlperf" / "v5.1"
    if only != "export" and not package.is_dir():
        bars.not_measured(f"scoring and importing: no packages in {package}")
    else:
        if only in ("", "score"):
            hold_scoring(bars, package, repeats)
        if only in ("", "import"):
            hold_importing(bars, package, runs)
    if only in ("", "export"):
        hold_copies(bars, submissions)


def hold_scoring(bars: Bars, package: Path, repeats: int) -> None:
    """Compare scoring with reading and counting, and with the published tools."""
    benchmarks = shipped_definitions() | load_benchmarks(CHECKOUT / "benchmarks")
    files = list(package.rglob("result_*.txt"))

    def count() -> int:
        return sum(path.read_bytes().count(b":::MLLOG") for path in files)

    def score() -> int:
        records = score_found(find_in(package), benchmarks)
        return sum(len(orjson.dumps(record)) for record in records)

    cases = {"count": partial(processor_seconds_of, count)}
    cases["score"] = partial(processor_seconds_of, score)
    limit, ours = (min(taken) for taken in in_turn(cases, repeats).values())
    bars.say(f"{len(files)} logs: {1e3 * limit:.1f} ms of CPU to count, {1e3 * ours:.1f} to score")
    bars.hold("scoring over reading and counting", ours / limit, at_most=ALLOWED_RATIO)
    tools = published_tools(package)
    if tools is None:
        bars.say("mlperf-logging is not installed, so it is not measured")
        return
    bars.say(", ".join(f"{name} {seconds:.2f} s" for name, seconds in tools.items()))
    bars.hold("share of the published tools", ours / sum(tools.values()), at_most=ALLOWED_SHARE)


def processor_seconds_of(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def published_tools(package: Path) -> dict[str, float] | None:
    """Return the CPU seconds of the published tools, None if they are missing."""
    python = os.environ.get("FINISHLINE_MLPERF_PYTHON", sys.executable)
    if python == sys.executable and importlib.util.find_spec("mlperf_logging") is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "packages"  # A copy: the RCP checker writes next to the logs.
        shutil.copytree(package, root)
        command = [python, "-c", TOOLS, str(root)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
    with contextlib.suppress(ValueError, IndexError):
        return dict(json.load(io.StringIO(ran.stdout.splitlines()[-1])))
    raise SystemExit(f"archives: mlperf-logging failed: {ran.stderr.strip()[-300:]}")


def hold_importing(bars: Bars, package: Path, wanted: int) -> None:
    """Import a package's copies into an empty server, and then again."""
    with running_database("sqlite") as (url, folder):
        copies = folder / "training_results_v5.1"
        bars.say(f"{replicate(package, copies, wanted=wanted)} runs to import")
        environment = environment_of(url, folder)
        environment["FINISHLINE_TOKEN"] = make_tokens(url, {"perf": "organiser"})["perf"]
        with running_server(environment) as server:
            environment["FINISHLINE_URL"] = server.url
            for which, bar in (("imported", WANTED_RUNS_PER_SECOND), ("imported again", None)):
                before, began = cpu_seconds(server), time.monotonic()
                done = subprocess.run(
                    [*PYTHON, "finishline.cli.main", "import", "mlperf", str(copies), "--json"],
                    env=environment, capture_output=True, check=False,
                )  # fmt: skip
                seconds = time.monotonic() - began
                if done.returncode != 0:
                    raise SystemExit(f"archives: {(done.stderr + done.stdout).decode()[-500:]}")
                document = json.loads(done.stdout)
                runs = sum(e["runs"] for e in document["imported"] + document["already_there"])
                bars.say(f"server {cpu_seconds(server) - before:.1f} s of CPU")
                bars.hold(which, runs / seconds, " runs/s", at_least=bar)


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
                # The line makes each log different, as real logs are.
                mark = f"\ncopy {number}\n".encode() if is_log else b""
                copy.write_bytes(path.read_bytes() + mark)
                made += is_log
            if made >= wanted:
                break
        number += 1
    return made


def hold_copies(bars: Bars, submissions: int) -> None:
    """Compare the memory of commands that read or write a whole server with the bar."""
    with running_database("sqlite") as (url, folder):
        load_signer(folder / "signing-key.pem")
        logs = store_logs(folder, max(1, submissions * RUNS // RUNS_WITH_ONE_LOG))
        database = Database(url)
        fill_board(database, submissions, evaluations=EVALUATIONS, logs=logs)
        database.close()
        second = folder / "second"
        second.mkdir()
        first_server = environment_of(url, folder)
        second_server = environment_of(f"sqlite:///{second / 'finishline.db'}", second)
        for environment, *arguments in (
            (first_server, "export", f"{folder}/export"),
            (first_server, "check"),
            (first_server, "backup", f"{folder}/backups"),
            (second_server, "restore", f"{folder}/backups"),
        ):
            rows = submissions * (RUNS + 1)
            command = [*PYTHON, "finishline.cli.main", "admin", *arguments]
            mib, seconds = peak_of(command, environment)
            bars.say(f"{arguments[0]}: {seconds:.1f} s of CPU, {rows / seconds:.0f} rows/s")
            bars.hold(f"{arguments[0]}: peak memory", mib, " MiB", at_most=WANTED_MIB)


def store_logs(folder: Path, count: int) -> list[str]:
    """Put so many logs into a server's store. Their hashes."""
    store, hashes = ArtifactStore(folder / "artifacts"), []
    for _ in range(count):
        content = secrets.token_bytes(2048).hex().encode()
        hashes.append(hashlib.sha256(content).hexdigest())
        path = store.path_of(hashes[-1])
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    return hashes


def peak_of(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Return peak memory in MiB and processor seconds of a successful command."""
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    errors = process.stderr.read().decode()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"archives: {' '.join(command)} failed: {errors[-500:]}")
    return used.ru_maxrss / 1024, used.ru_utime + used.ru_stime


if __name__ == "__main__":
    run(measure)
