"""Every published MLPerf v5.1 log at hand, against what the reference checker made of it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import LogFormatError
from finishline.rules.logs import parse_run_log
from finishline.rules.scoring.run import Run

AsMlperf = Callable[[str], Benchmark]


@pytest.fixture(scope="module")
def groups(archives: Path) -> list[dict[str, Any]]:
    return json.loads((archives / "mlperf" / "expected_v51.json").read_text())["groups"]  # type: ignore[no-any-return]


@pytest.fixture
def read_group(
    archives: Path, as_mlperf: AsMlperf
) -> Callable[[dict[str, Any]], list[tuple[dict[str, Any], Run]]]:
    """The runs of one result set, each beside what is expected of it."""

    def read(group: dict[str, Any]) -> list[tuple[dict[str, Any], Run]]:
        return [
            (
                item,
                parse_run_log(
                    (archives / "mlperf" / "v5.1" / item["file"]).read_bytes(),
                    name=item["file"],
                    benchmark=as_mlperf(group["benchmark"]),
                ),
            )
            for item in group["runs"]
        ]

    return read


def test_every_run_has_the_time_and_settings_of_the_checker(
    groups: list[dict[str, Any]],
    read_group: Callable[[dict[str, Any]], list[tuple[dict[str, Any], Run]]],
) -> None:
    pairs = [pair for group in groups for pair in read_group(group)]
    assert len(pairs) == 189
    for item, run in pairs:
        assert (run.stop_seconds is None) == (item["tta_min"] is None)
        if run.stop_seconds is not None:
            assert run.stop_seconds / 60 == pytest.approx(item["tta_min"], rel=1e-12), item["file"]
        assert [run.seed] == item["seeds"]
        assert run.batch_size == item["gbs"]
        assert run.division == item["division_in_log"]
        assert run.benchmark == item["benchmark_in_log"]
        assert run.status == item["status"]
        assert len(run.evaluations) == item["n_eval"]


def test_every_run_converged_where_the_checker_says(
    groups: list[dict[str, Any]],
    read_group: Callable[[dict[str, Any]], list[tuple[dict[str, Any], Run]]],
) -> None:
    """Epochs or samples of the last evaluation; the checker rounds to three decimals."""
    converged = 0
    for item, run in (pair for group in groups for pair in read_group(group)):
        assert (run.status == "success") == item["converged"]
        if not item["converged"]:
            continue
        last = run.evaluations[-1]
        place = last.samples if item["conv"] >= 1000 else last.epoch
        assert place == pytest.approx(item["conv"], rel=0, abs=0.0005), item["file"]
        assert last.quality == item["final_eval"]
        converged += 1
    assert converged == 187


def test_the_ledger_of_every_run_adds_up_to_its_time(
    groups: list[dict[str, Any]],
    read_group: Callable[[dict[str, Any]], list[tuple[dict[str, Any], Run]]],
) -> None:
    for item, run in (pair for group in groups for pair in read_group(group)):
        for evaluation in run.evaluations:
            ledger = evaluation.ledger
            assert ledger is not None
            assert ledger.train + ledger.eval == pytest.approx(evaluation.seconds, abs=1e-6)
            assert min(ledger.init, ledger.train, ledger.eval) >= 0
        if run.stop_seconds is not None:
            assert run.ledger is not None
            assert run.ledger.total() - run.ledger.init == pytest.approx(run.stop_seconds)
        assert set(run.hyperparameters) >= {"opt_base_learning_rate"}, item["file"]


REFUSED = {
    "division_traversal": (5, "submission_division"),
    "division_unknown": (5, "submission_division"),
    "benchmark_unknown": (3, "submission_benchmark"),
    "line_is_list": (65, None),
    "line_missing_keys": (65, "key"),
    "time_null": (65, "time_ms"),
    "deep_nest": (65, None),
    "eval_value_string": (65, "eval_accuracy"),
    "bad_json": (65, None),
    "nan_stop": (64, None),
    "stop_before_start": (64, "time_ms"),
    "stop_before_evals": (27, "eval_accuracy"),
    "two_run_stops": (27, "eval_accuracy"),
    "two_run_stops_early_eval": (28, "eval_accuracy"),
    "long_line_60k": (65, None),
}
NOT_FOOLED = {"hidden_gbs": "success", "hidden_eval": "success", "status_aborted": "aborted"}


@pytest.mark.parametrize("name", REFUSED)
def test_a_hostile_log_is_refused_with_its_line(
    archives: Path, as_mlperf: AsMlperf, name: str
) -> None:
    content = (archives / "mlperf" / "hostile" / f"{name}.txt").read_bytes()
    with pytest.raises(LogFormatError) as caught:
        parse_run_log(content, name=f"{name}.txt", benchmark=as_mlperf("llama2_70b_lora"))
    assert (caught.value.line, caught.value.field) == REFUSED[name]


@pytest.mark.parametrize("name", NOT_FOOLED)
def test_a_log_that_hides_or_aborts_is_read_as_what_it_is(
    archives: Path, as_mlperf: AsMlperf, name: str
) -> None:
    """The log they were made from: batch size 8, 3,840 samples, 33.9 minutes."""
    content = (archives / "mlperf" / "hostile" / f"{name}.txt").read_bytes()
    run = parse_run_log(content, name=f"{name}.txt", benchmark=as_mlperf("llama2_70b_lora"))
    assert (run.batch_size, run.evaluations[-1].samples) == (8, 3840)
    assert run.stop_seconds == pytest.approx(2035.848)
    assert run.status == NOT_FOOLED[name]


def test_every_hostile_log_is_accounted_for(archives: Path) -> None:
    found = {path.stem for path in (archives / "mlperf" / "hostile").glob("*.txt")}
    assert found == REFUSED.keys() | NOT_FOOLED.keys()
