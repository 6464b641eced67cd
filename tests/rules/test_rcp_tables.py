"""RCP tables of mlperf-logging: JSON that is read as data."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from rules.benchmark import load_benchmarks
from rules.convergence import ReferencePoint
from rules.errors import RuleError
from rules.rcp_tables import load_rcp_table, parse_rcp_table

RECORD: dict[str, Any] = {
    "Benchmark": "retinanet",
    "Creator": "NVIDIA",
    "BS": 320,
    "Hyperparams": {"opt_base_learning_rate": 1e-4},
    "Epochs to converge": [4, 4.5, 5],
}


def encode(**changes: Any) -> bytes:
    record = {name: value for name, value in (RECORD | changes).items() if value is not None}
    return json.dumps({"retinanet_ref_320": record}).encode()


def test_a_table_is_read_by_batch_size_whatever_it_counts() -> None:
    table = {
        "second": RECORD,
        "first": {"BS": 8, "samples to converge": [3072, 2688]},
    }

    assert parse_rcp_table(json.dumps(table).encode(), file="rcps_x.json") == (
        ReferencePoint(8, (3072.0, 2688.0)),
        ReferencePoint(320, (4.0, 4.5, 5.0)),
    )


@pytest.mark.parametrize(
    ("content", "field"),
    [
        (b"not json", None),
        (b"[]", None),
        (b"{}", None),
        (b'{"a": []}', "a"),
        (b'{"a": {"BS": 1, "BS": 2, "Epochs to converge": [1]}}', "BS"),
        (encode(BS="320"), "retinanet_ref_320.BS"),
        (encode(BS=0), "retinanet_ref_320.BS"),
        (encode(**{"Epochs to converge": None}), "retinanet_ref_320.Epochs to converge"),
        (encode(**{"Epochs to converge": []}), "retinanet_ref_320.Epochs to converge"),
        (encode(**{"Epochs to converge": [4, "5"]}), "retinanet_ref_320.Epochs to converge"),
        (encode(**{"Epochs to converge": [4, 0]}), "retinanet_ref_320.Epochs to converge"),
        (encode(**{"samples to converge": [4]}), "retinanet_ref_320.Epochs to converge"),
    ],
)
def test_a_wrong_table_names_file_and_field(content: bytes, field: str | None) -> None:
    with pytest.raises(RuleError) as caught:
        parse_rcp_table(content, file="rcps_retinanet.json")

    assert (caught.value.file, caught.value.field) == ("rcps_retinanet.json", field)


def test_two_records_of_one_batch_size_are_refused() -> None:
    content = json.dumps({"a": RECORD, "b": RECORD}).encode()

    with pytest.raises(RuleError, match="one record per batch size"):
        parse_rcp_table(content, file="rcps_retinanet.json")


def test_a_table_is_found_under_the_name_in_logs_or_ours(tmp_path: Path) -> None:
    (tmp_path / "rcps_retinanet.json").write_bytes(encode())

    assert load_rcp_table(tmp_path, "retinanet")[0].batch_size == 320
    assert load_rcp_table(tmp_path, "mlperf-v5.1-retinanet")[0].batch_size == 320


@pytest.mark.parametrize("name", ["bert", "x/../rcps_retinanet", "/etc/passwd", "", "retinanet\0"])
def test_a_table_that_is_not_there_is_named_with_those_that_are(tmp_path: Path, name: str) -> None:
    (tmp_path / "rcps_retinanet.json").write_bytes(encode())
    (tmp_path / "rcps_x").mkdir()

    with pytest.raises(RuleError, match="no RCP table") as caught:
        load_rcp_table(tmp_path, name)
    assert caught.value.expected == "retinanet"


def test_the_shipped_points_are_those_of_the_package(benchmarks_dir: Path) -> None:
    """Runs where mlperf-logging is installed; finding it does not import it."""
    package = importlib.util.find_spec("mlperf_logging")
    if package is None or not package.submodule_search_locations:
        pytest.skip("mlperf-logging is not installed")
    root = Path(package.submodule_search_locations[0])
    checked = 0
    for benchmark in load_benchmarks(benchmarks_dir).values():
        if benchmark.rcp is not None:
            folder = root / "rcp_checker" / f"training_{benchmark.version}.0"
            points = load_rcp_table(folder, benchmark.benchmark_id)
            assert benchmark.rcp.points == points, benchmark.benchmark_id
            checked += 1
    assert checked == 21
