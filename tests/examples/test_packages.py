"""The example packages and the teacher's reference: valid, and as good as their tables say."""

import os
import re
from pathlib import Path

import pytest

from finishline.client.packages import read_folder
from finishline.rules.benchmarks.benchmark import load_benchmark
from finishline.rules.trainings.package import read_package
from perf.teacher import shipped_manifest
from worker.box.local import draw_course, open_task, order_of
from worker.box.race import RaceResult, race
from worker.box.start import BoxUnavailableError, find_bubblewrap

ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / "examples" / "packages"
REFERENCE = ROOT / "benchmarks" / "teacher" / "reference"
ALL = [*sorted(path.parent for path in PACKAGES.glob("*/training.toml")), REFERENCE]
NONCE = "7" * 64


def run(package: Path) -> RaceResult:
    """One run in the box, in the installed version of the package's environment."""
    try:
        find_bubblewrap()
    except BoxUnavailableError as error:
        if os.environ.get("FINISHLINE_REQUIRE_BOX"):
            raise
        pytest.skip(f"{error}; no package is trained")
    manifest = shipped_manifest(package)
    file = ROOT / "benchmarks" / f"{manifest.benchmark}.toml"
    benchmark = load_benchmark(file)
    with open_task(file.with_suffix(""), benchmark) as task:
        course = draw_course(task, benchmark, manifest, nonce=NONCE, index=0)
        return race(order_of(package, manifest, benchmark), course, seed=1)


@pytest.mark.parametrize("package", ALL, ids=lambda path: path.name)
def test_a_shipped_package_breaks_no_rule(package: Path) -> None:
    files, problems = read_folder(package)
    found, more = read_package(files, benchmarks=["digits", "teacher"])

    assert [*problems, *more] == []
    assert found is not None


def test_every_example_has_a_line_in_the_table() -> None:
    text = (PACKAGES / "README.md").read_text()
    assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == [path.name for path in ALL[:-1]]


def test_the_carried_start_is_tried_on_the_very_net_of_the_fast_package() -> None:
    fast, carried = ((PACKAGES / f"teacher_{name}/net.py") for name in ("fast", "carried"))
    assert fast.read_bytes() == carried.read_bytes()


def test_the_fast_net_reaches_the_target_on_both_halves_in_one_evaluation() -> None:
    found = run(PACKAGES / "teacher_fast")

    assert found.status == "reached", found.log_tail
    assert len(found.asks) == 1
    assert 96.5 <= found.asks[0].second_half < 98


def test_products_of_two_inputs_are_not_enough() -> None:
    found = run(PACKAGES / "teacher_quadratic_ridge")

    assert found.status == "not_reached", found.log_tail
    assert 66 < found.asks[-1].quality < 72


def test_the_answers_of_digits_are_all_right() -> None:
    found = run(PACKAGES / "digits_answers")

    assert (found.status, found.asks[0].quality) == ("reached", 100.0)


def test_a_few_steps_of_the_reference_learn_something_and_miss_the_target(tmp_path: Path) -> None:
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
