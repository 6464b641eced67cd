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


@pytest.mark.parametrize(
    ("beside", "version"),
    [(["gpt3"], "4.1"), (["bert", "retinanet"], "5.0"), (["flux1"], "5.1")],
)
def test_benchmarks_that_only_one_round_has_tell_the_round_of_those_beside_them(
    score_tree: Score, make_log: Log, beside: list[str], version: str
) -> None:
    files = package("ACME", "llama2_70b_lora", make_log(benchmark="llama2_70b_lora"))
    for name in beside:
        files |= package("Other", name, make_log())
    records = score_tree(files)
    assert rounds(records) == {"ACME": version, "Other": version}
    assert {record["version"] for record in records} == {version}
    assert "round_not_told" not in told(records)


def test_benchmarks_that_several_rounds_have_are_all_of_the_newest_of_those(
    score_tree: Score, make_log: Log
) -> None:
    files = package("ACME", "llama2_70b_lora", make_log(benchmark="llama2_70b_lora"))
    files |= package("ACME", "bert", make_log(benchmark="bert"))
    records = score_tree(files)
    assert [record["version"] for record in records] == ["5.0", "5.0"]
    problems = [p for r in records for p in r["problems"] if p["code"] == "round_not_told"]
    assert [p["expected"] for p in problems] == ["a folder named after it: v4.1 or v5.0"] * 2


def test_an_organisation_tells_its_own_round_in_a_folder_of_several(
    score_tree: Score, make_log: Log
) -> None:
    files = {}
    for organisation, beside in (("ACME", "gpt3"), ("Other", "flux1")):
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
    assert problem["expected"] == "a folder named after it: v4.1 or v5.0 or v5.1"


@pytest.mark.parametrize("folder", ["v5.0", "training_results_v5.0"])
def test_the_benchmarks_of_v50_are_told_by_their_folder_from_those_of_other_rounds(
    score_tree: Score, make_log: Log, folder: str
) -> None:
    for name in ("llama2_70b_lora", "bert", "stable_diffusion", "rgat", "llama31_405b"):
        files = package(f"{folder}/ACME", name, make_log(benchmark=name))
        [record] = score_tree(files)
        assert record["definition"]["id"] == f"mlperf-v5.0-{name}"
        assert "round_not_told" not in told([record])


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
    alone = make_log(benchmark="flux1")
    assert "round_not_told" not in told(score_tree({"a.txt": alone}))
