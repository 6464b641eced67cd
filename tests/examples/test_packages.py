"""The example packages and the references: valid, and as good as their tables say."""

import os
import re
from pathlib import Path

import pytest
import torch

from finishline.client.files import read_folder
from finishline.rules.benchmarks.benchmark import load_benchmark
from finishline.rules.trainings.package import read_package
from perf.packages import shipped_manifest, train_boxed, train_trusted
from worker.sandbox.bubblewrap import find_bubblewrap
from worker.sandbox.local import open_task, racer_of, train_run
from worker.sandbox.order import BoxUnavailableError

ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / "examples" / "packages"
REFERENCE = ROOT / "benchmarks" / "teacher" / "reference"
EXAMPLES = sorted(path.parent for path in PACKAGES.glob("*/training.toml"))
REFERENCES = sorted(path.parent for path in ROOT.glob("benchmarks/*/reference/training.toml"))
NONCE = "7" * 64


@pytest.fixture
def box():
    """Skip where there is no bubblewrap; fail if it must be there."""
    try:
        find_bubblewrap()
    except BoxUnavailableError as error:
        if os.environ.get("FINISHLINE_REQUIRE_BOX"):
            raise
        pytest.skip(f"{error}; no package is trained")


def run(package, *, control=False):
    """One run in the box, in the installed version of the package's environment."""
    manifest = shipped_manifest(package)
    file = ROOT / "benchmarks" / f"{manifest.benchmark}.toml"
    benchmark = load_benchmark(file)
    with open_task(file.with_suffix(""), benchmark) as task:
        racer = racer_of(package, manifest, benchmark)
        return train_run(task, benchmark, racer, nonce=NONCE, index=0, seed=1, control=control)


@pytest.mark.parametrize("package", EXAMPLES + REFERENCES, ids=str)
def test_a_shipped_package_breaks_no_rule(package):
    files, problems = read_folder(package)
    found, more = read_package(files, benchmarks=["digits", "fashion", "teacher"])

    assert [*problems, *more] == []
    assert found is not None


def test_every_example_has_a_line_in_the_table():
    text = (PACKAGES / "README.md").read_text()
    assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == [path.name for path in EXAMPLES]


def test_the_carried_start_is_tried_on_the_very_net_of_the_fast_package():
    fast, carried = ((PACKAGES / f"teacher_{name}/net.py") for name in ("fast", "carried"))
    assert fast.read_bytes() == carried.read_bytes()


@pytest.mark.usefixtures("box")
def test_the_fast_net_reaches_the_target_on_both_halves_in_one_evaluation():
    found = run(PACKAGES / "teacher_fast")

    assert found.status == "reached", found.log_tail
    assert len(found.asks) == 1
    assert 96.5 <= found.asks[0].second_half < 98


@pytest.mark.usefixtures("box")
def test_products_of_two_inputs_are_not_enough():
    found = run(PACKAGES / "teacher_quadratic_ridge")

    assert found.status == "not_reached", found.log_tail
    assert 66 < found.asks[-1].quality < 72


@pytest.mark.usefixtures("box")
@pytest.mark.parametrize("name", ["answers", "weights"])
def test_carried_knowledge_of_digits_reaches_all_and_nothing_on_the_control(name):
    package = PACKAGES / f"digits_{name}"
    found, control = run(package), run(package, control=True)

    assert (found.status, found.asks[0].quality) == ("reached", 100.0)
    assert control.status == "not_reached"
    assert control.asks[0].quality < 40


@pytest.mark.usefixtures("box")
@pytest.mark.parametrize(
    "name", ["nearest", pytest.param("convolutions", marks=pytest.mark.nightly)]
)
def test_packages_that_learn_do_so_on_the_control(name):
    control = run(PACKAGES / f"digits_{name}", control=True)

    assert max((ask.quality for ask in control.asks), default=0) > 90, control.log_tail


@pytest.mark.usefixtures("box")
def test_the_reference_of_digits_in_the_box_is_the_trusted_one_bit_for_bit():
    boxed = train_boxed(seed=1)
    threads = torch.get_num_threads()
    try:
        _, curve = train_trusted(1, boxed.asks[-1].quality)
    finally:
        torch.set_num_threads(threads)

    assert boxed.status == "reached", boxed.log_tail
    assert [ask.quality for ask in boxed.asks] == curve


@pytest.mark.usefixtures("box")
def test_a_few_steps_of_the_reference_learn_something_and_miss_the_target(tmp_path):
    tmp_path.chmod(0o755)
    for source in REFERENCE.iterdir():
        if source.is_file():
            text = source.read_text().replace("7_000", "300")
            (tmp_path / source.name).write_text(text)

    found = run(tmp_path)

    assert found.status == "not_reached", found.log_tail
    assert [ask.number for ask in found.asks] == [1, 2, 3]
    assert 20 < found.asks[-1].quality < 90
    assert found.asks[-1].second_half == pytest.approx(found.asks[-1].quality, abs=2)
    assert found.asks[-1].second_half != found.asks[-1].quality
