"""Factories and benchmarks that tests of several rooms share."""

import gc
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from finishline.rules.archive.definitions import shipped_definitions
from finishline.rules.benchmarks.benchmark import Benchmark, load_benchmark, load_benchmarks
from finishline.rules.benchmarks.definition_tables import DataSet, ReachRule, RunsRule
from finishline.rules.benchmarks.quality import QualityTarget
from finishline.rules.run import Clock, Evaluation, Run
from tests.support.chromium import running_chromium

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
# Fixtures of the session that take seconds to make, in each process that needs one.
COSTLY = ("stack", "postgresql", "trained")
OWN_BENCHMARKS = sorted(path.stem for path in BENCHMARKS.glob("*.toml"))


def pytest_configure(config):
    """Hold no example of Hypothesis to a time: a busy machine takes long for any.

    Nobody is logged in to a server, whoever runs the tests.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # A shell's background job is deaf to it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    nobodys = tempfile.TemporaryDirectory(prefix="finishline-nobody-")
    config.add_cleanup(nobodys.cleanup)
    os.environ["XDG_CONFIG_HOME"] = nobodys.name
    if not config.pluginmanager.has_plugin("hypothesispytest"):
        return  # The environment of the vision tests has none.
    from hypothesis import settings

    settings.register_profile("finishline", deadline=None)
    settings.load_profile("finishline")


def pytest_collection_modifyitems(items):
    """Files of the browser and those with a costly fixture start first: they take longest."""
    first = {path_of(item) for item in items if {"browser", *COSTLY} & set(item.fixturenames)}
    items.sort(key=lambda item: path_of(item) not in first)


def path_of(item):
    """The file of a test. One process runs all tests of a file."""
    return item.nodeid.partition("::")[0]


def pytest_collection_finish():
    """What was imported stays for good: later collections of garbage need not look at it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def benchmarks_dir():
    """The folder of the definitions that every server offers."""
    return BENCHMARKS


@pytest.fixture(scope="session")
def archives():
    """The folder of published archives. A test that needs it is skipped without it."""
    beside = BENCHMARKS.parents[1] / "shared" / "archives"
    folder = Path(os.environ.get("FINISHLINE_ARCHIVES", beside))
    if not folder.is_dir() and not os.environ.get("FINISHLINE_REQUIRE_ARCHIVES"):
        pytest.skip(f"no archives at {folder}: set FINISHLINE_ARCHIVES to a folder that has them")
    return folder


@pytest.fixture(scope="session")
def shipped_benchmarks():
    """Every benchmark a definition is shipped of, those of archives too."""
    return shipped_definitions() | load_benchmarks(BENCHMARKS)


@pytest.fixture(scope="session")
def digits():
    """The digits benchmark: closed and open, 3 runs of which 1 is dropped at each end, replayed."""
    return load_benchmark(BENCHMARKS / "digits.toml")


@pytest.fixture(scope="session")
def cifar10():
    """The CIFAR-10 benchmark: DAWNBench's rules, one run, replayed but not calibrated."""
    return load_benchmark(BENCHMARKS / "cifar10.toml")


@pytest.fixture
def make_benchmark():
    """Builds a benchmark without a replay: 94 % of 10,000 items, 1 run, the DAWNBench clock."""

    def build(
        *,
        value=94.0,
        direction="higher",
        reach="first_crossing",
        evaluations=1,
        clock="dawnbench",
        count=1,
        dropped=0,
        **others,
    ):
        settings = {
            "benchmark_id": "cifar10",
            "title": "CIFAR-10",
            "version": "1",
            "task": "Image classification",
            "about": "For tests.",
            "data_set": DataSet("CIFAR-10", "https://example.org", 50_000, 10_000, None),
            "target": QualityTarget("top1Accuracy", value, "percent", direction, 0.01),
            "reach": ReachRule(reach, evaluations),
            "clock": Clock(clock),
            "runs": RunsRule(count, dropped),
            "divisions": ("closed", "open"),
            "log_names": ("cifar10",),
            "hyperparameters": {},
            "replay": None,
            "reference_runs": (),
            "sha256": "0" * 64,
        }
        return Benchmark(**(settings | others))

    return build


@pytest.fixture
def make_run():
    """Builds a run from its qualities: one evaluation an epoch, `seconds_per_epoch` apart."""

    def build(qualities, *, name="run_0.log", seconds_per_epoch=10.0, clock="dawnbench", **others):
        evaluations = tuple(
            Evaluation(epoch=float(epoch), seconds=epoch * seconds_per_epoch, quality=quality)
            for epoch, quality in enumerate(qualities, 1)
        )
        return Run(name=name, clock=clock, evaluations=evaluations, **others)

    return build


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A folder with an honest submission: three real trainings of the digits reference."""
    folder = tmp_path_factory.mktemp("trained") / "submission"
    command = ["-m", "finishline.cli.main", "run", "digits", "--runs", "3", "--out", str(folder)]
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def browser():
    """A Chromium for the tests of one file: asyncio refuses a loop beside its driver's."""
    with running_chromium() as opened:
        yield opened
