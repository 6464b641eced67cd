"""Two results side by side."""

import json
from pathlib import Path
from typing import Any

import pytest

from finishline.cli.main import main


def kernel(seconds: float, **more: Any) -> dict[str, Any]:
    row = {"kind": "gemm", "pass": "forward", "precision": "fp32", "shape": {"m": 1, "n": 2}}
    return row | {"seconds": {"n": 3, "p50": seconds}} | more


def kernels(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"device": "cpu", "system": {"hardware_class": "cpu-2"}, "kernels": list(rows)}


def model(rate: float) -> dict[str, Any]:
    row = {"phase": "training", "batch_size": 8, "samples_per_second": rate}
    return {"model": "own.py:own", "precision": "fp32", "device": "cpu", "results": [row]}


def run(folder: Path, first: Any, second: Any, *more: str) -> int:
    for name, content in (("a.json", first), ("b.json", second)):
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return main(["bench", "--compare", str(folder / "a.json"), str(folder / "b.json"), *more])


def test_kernels_are_matched_by_shape_and_fewer_seconds_are_faster(tmp_path, capsys):
    first = kernels(kernel(0.4), kernel(1.0, shape={"m": 9, "n": 2}))
    second = kernels(kernel(1.0, **{"pass": "backward"}), kernel(0.1))
    assert run(tmp_path, first, second, "--json") == 0
    found = json.loads(capsys.readouterr().out)["comparison"]
    assert found["rows"] == [
        {"row": "gemm forward fp32, m 1, n 2", "a": 0.4, "b": 0.1, "speed_ratio": 4.0}
    ]
    assert found["only_in_a"] == ["gemm forward fp32, m 9, n 2"]
    assert found["only_in_b"] == ["gemm backward fp32, m 1, n 2"]
    assert found["a"] == {"file": "a.json", "kind": "kernels", "machine": "cpu-2"}
    assert run(tmp_path, first, second) == 0
    assert "cpu-2 (b.json)" in capsys.readouterr().out


def test_models_are_compared_by_samples_per_second(tmp_path, capsys):
    assert run(tmp_path, model(10.0), model(25.0), "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)["comparison"]["rows"]
    assert row["speed_ratio"] == 2.5
    assert row["row"] == "own.py:own fp32 training, batch 8"


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (kernels(kernel(0.0)), "b.json, field kernels[0].seconds.p50: got 0"),
        (kernels(kernel("fast")), "b.json, field kernels[0].seconds.p50: text 'fast'"),  # type: ignore[arg-type]
        (kernels(kernel(1.0, kind="gru")), "b.json: no row that a.json has too"),
        (model(1.0), "b.json: kernels in a.json, model here"),
        ({"benchmark": "digits"}, "b.json: no result of kernels"),
        ("[1]", "b.json"),
        ("{", "b.json"),
    ],
)
def test_a_wrong_file_is_one_sentence(tmp_path, capsys, second, said):
    assert run(tmp_path, kernels(kernel(1.0)), second) != 0
    found = capsys.readouterr().err
    assert said in found
    assert len(found.strip().splitlines()) == 1
