"""Cost of scoring published MLPerf packages, against merely reading their files.

`python -m perf.score_archives [PACKAGES...]` reads every result file and counts its MLLOG lines
(the limit: nothing can be scored for less), then scores the same packages, in turn, in one process;
prints the least CPU seconds of each and their ratio. Where `mlperf-logging` is installed, its
compliance checker, RCP checker and result summarizer are run on the same files, in a process of
their own. Exit code 1 above the allowed ratios.

The packages are those of FINISHLINE_ARCHIVES (mlperf/v5.1), or the folder beside the checkout.
"""

import argparse
import contextlib
import importlib.util
import io
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import orjson

from finishline.cli.records import find_in, score_found
from finishline.rules.archive.definitions import shipped_definitions
from finishline.rules.benchmarks.benchmark import load_benchmarks
from perf.harness import CHECKOUT, Bars, archived_packages, in_turn, processor_seconds_of

ALLOWED_RATIO = 4.0
ALLOWED_SHARE = 1 / 100  # of the time of the three published tools together
BENCHMARKS = shipped_definitions() | load_benchmarks(CHECKOUT / "benchmarks")

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
    """Measure, print, and judge; returns the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("packages", nargs="*", type=Path)
    parser.add_argument("--repeats", type=int, default=7)
    given = parser.parse_args()
    bars, packages = Bars("score archives"), archived_packages(given.packages)
    if not packages:
        bars.say("no packages, nothing measured")
        return 0
    files = [str(path) for package in packages for path in package.rglob("result_*.txt")]
    work = {"read and count": lambda: _count(files), "score": lambda: _score(packages)}
    cases = {name: partial(processor_seconds_of, work[name]) for name in work}
    limit, ours = (min(taken) for taken in in_turn(cases, given.repeats).values())
    size = sum(Path(file).stat().st_size for file in files)
    bars.say(
        f"{len(files)} logs, {size / 1e6:.1f} MB: read and count {1e3 * limit:.1f} ms, "
        f"score {1e3 * ours:.1f} ms of CPU"
    )
    bars.say(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")
    bars.hold("ratio", ours / limit, at_most=ALLOWED_RATIO)
    tools = _tools(packages)
    if tools is None:
        bars.say("mlperf-logging is not installed, so it is not measured beside")
        return bars.exit_code
    bars.say(", ".join(f"{name} {seconds:.2f} s" for name, seconds in tools.items()))
    bars.hold("share of the published tools", ours / sum(tools.values()), at_most=ALLOWED_SHARE)
    return bars.exit_code


def _count(files: list[str]) -> int:
    marks = 0
    for name in files:
        with open(name, "rb") as file:  # noqa: PTH123 - the least there is to do
            marks += file.read().count(b":::MLLOG")
    return marks


def _score(packages: list[Path]) -> int:
    written = 0
    for package in packages:
        found = find_in(package)
        for record in score_found(found, BENCHMARKS, pruned=True, every_line=False):
            written += len(orjson.dumps(record))
    return written


def _tools(packages: list[Path]) -> dict[str, float] | None:
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
    print(f"score archives: mlperf-logging failed: {ran.stderr.strip()[-300:]}")
    return None


if __name__ == "__main__":
    sys.exit(main())
