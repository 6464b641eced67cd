"""The round of packages that lie in no folder named after it."""

from collections.abc import Callable
from typing import Any

import pytest

Record = dict[str, Any]
Score = Callable[..., list[Record]]
Log = Callable[..., str]


def package(organisation: str, benchmark: str, log: str) -> dict[str, str]:
    return {f"{organisation}/results/big/{benchmark}/result_0.txt": log}


def rounds(records: list[Record]) -> dict[str, str | None]:
    return {record["path"].split("/")[0]: record["version"] for record in records}


def told(records: list[Record]) -> list[str]:
    return [p["code"] for record in records for p in record["problems"]]


@pytest.mark.parametrize(("beside", "version"), [("bert", "4.1"), ("flux1", "5.1")])
def test_a_benchmark_of_one_round_tells_the_round_of_those_beside_it(
    score_tree: Score, make_log: Log, beside: str, version: str
) -> None:
    log = make_log(benchmark="llama2_70b_lora")
    files = package("ACME", "llama2_70b_lora", log) | package("Other", beside, make_log())
    records = score_tree(files)
    assert rounds(records) == {"ACME": version, "Other": version}
    assert "round_not_told" not in told(records)


def test_an_organisation_tells_its_own_round_in_a_folder_of_several(
    score_tree: Score, make_log: Log
) -> None:
    files = {}
    for organisation, beside in (("ACME", "gpt3"), ("Other", "rgat")):
        files |= package(organisation, "dlrm_dcnv2", make_log(benchmark="dlrm_dcnv2"))
        files |= package(organisation, beside, make_log())
    assert rounds(score_tree(files)) == {"ACME": "4.1", "Other": "5.1"}


def test_what_nobody_tells_is_scored_by_the_newest_round_with_a_warning(
    score_tree: Score, make_log: Log
) -> None:
    records = score_tree(package("ACME", "dlrm_dcnv2", make_log(benchmark="dlrm_dcnv2")))
    [record] = records
    assert record["version"] == "5.1"
    [problem] = [p for p in record["problems"] if p["code"] == "round_not_told"]
    assert problem["severity"] == "warning"
    assert problem["expected"] == "a folder named after it: v4.1 or v5.1"


def test_the_name_of_a_folder_stands_above_what_lies_in_it(
    score_tree: Score, make_log: Log
) -> None:
    log = make_log(benchmark="llama2_70b_lora")
    files = package("ACME", "llama2_70b_lora", log) | package("ACME", "flux1", make_log())
    records = score_tree({f"training_results_v4.1/{path}": log for path, log in files.items()})
    assert {r["benchmark"]: r["version"] for r in records}["llama2_70b_lora"] == "4.1"
    assert "round_not_told" not in told(records)


def test_the_round_of_a_log_by_itself_may_be_unknown(score_tree: Score, make_log: Log) -> None:
    assert "round_not_told" in told(score_tree({"a.txt": make_log(benchmark="dlrm_dcnv2")}))
    assert "round_not_told" not in told(score_tree({"a.txt": make_log()}))
