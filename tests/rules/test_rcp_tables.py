"""The reference points that are shipped are those of mlperf-logging's own tables."""

import importlib.util
import json
from pathlib import Path

import pytest

from finishline.rules.archive.definitions import shipped_definitions
from finishline.rules.scoring.convergence import ReferencePoint

# Which of the two a table has is an accident of its history; it has exactly one.
FIGURES = {"Epochs to converge", "samples to converge"}


def read_table(path: Path) -> tuple[ReferencePoint, ...]:
    found = []
    for record in json.loads(path.read_bytes()).values():
        (figures,) = FIGURES & record.keys()
        found.append(ReferencePoint(record["BS"], tuple(map(float, record[figures]))))
    return tuple(sorted(found, key=lambda point: point.batch_size))


def test_the_shipped_points_are_those_of_the_package() -> None:
    """Runs where mlperf-logging is installed; finding it does not import it."""
    package = importlib.util.find_spec("mlperf_logging")
    if package is None or not package.submodule_search_locations:
        pytest.skip("mlperf-logging is not installed")
    root = Path(package.submodule_search_locations[0])
    checked = 0
    for benchmark in shipped_definitions().values():
        if benchmark.rcp is not None:
            folder = root / "rcp_checker" / f"training_{benchmark.version}.0"
            table = folder / f"rcps_{benchmark.benchmark_id.rpartition('-')[2]}.json"
            assert benchmark.rcp.points == read_table(table), benchmark.benchmark_id
            checked += 1
    assert checked == 21
