"""Every published DAWNBench figure at hand, and the four CIFAR10 boards in their order."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from finishline.rules.ranking.ranking import Metric, Standing, rank

Record = dict[str, Any]
Score = Callable[..., list[Record]]


@pytest.fixture
def records(score_tree: Score, published: Callable[[str], dict[str, bytes]]) -> dict[str, Record]:
    return {record["path"]: record for record in score_tree(published("dawnbench/entries"))}


@pytest.fixture(scope="module")
def published_figures(expected: Callable[[str], Any]) -> dict[str, Any]:
    return expected("dawnbench/expected.json")  # type: ignore[no-any-return]


FIGURES = {
    "train": {
        "tta_seconds": "tta_seconds", "tta_epoch": "tta_epoch", "tta_metric": "tta_metric",
        "tta_row": "tta_row", "cost_usd": "cost_usd", "best_metric": "best_metric",
        "evaluations": "rows",
    },
    "inference": {
        "latency_ms": "latency_ms", "cost_usd_per_10000": "cost_usd_per_10000",
        "best_metric": "accuracy",
    },
}  # fmt: skip


def test_every_figure_is_the_published_one(
    records: dict[str, Record], published_figures: dict[str, Any]
) -> None:
    assert len(records) == len(published_figures["entries"]) == 26
    for item in published_figures["entries"]:
        record = records[item["path"]]
        for ours, theirs in FIGURES[item["kind"]].items():
            if item[theirs] is None:
                assert record[ours] is None, (item["path"], ours)
            else:
                assert math.isclose(record[ours], item[theirs], rel_tol=1e-9), (item["path"], ours)
        named = (record["benchmark"], record["kind"], record["metric"])
        assert named == (item["task"], item["kind"], item["metric"])
        assert record["tta_display"] == item.get("tta_display")
        assert (record["eligible"], record["problems"]) == (True, [])


BOARDS: list[tuple[str, str, Metric, str]] = [
    ("training_time", "train", "tta", "tta_seconds"),
    ("training_cost", "train", "cost", "cost_usd"),
    ("inference_latency", "inference", "latency", "latency_ms"),
    ("inference_cost", "inference", "inference_cost", "cost_usd_per_10000"),
]


@pytest.mark.parametrize(("board", "kind", "metric", "figure"), BOARDS)
def test_the_boards_have_the_published_order(
    records: dict[str, Record],
    published_figures: dict[str, Any],
    board: str,
    kind: str,
    metric: Metric,
    figure: str,
) -> None:
    standings = [
        Standing(
            submission_id=record["path"],
            status="claimed",
            submitted_at=record["timestamp"],
            tta_seconds=record[figure] if metric == "tta" else None,
            cost_usd=record[figure] if metric == "cost" else None,
            latency_ms=record[figure] if metric == "latency" else None,
            eligible=record["eligible"],
            cost_usd_per_10000=record[figure] if metric == "inference_cost" else None,
        )
        for record in records.values()
        if record["kind"] == kind
    ]
    ranked = [item for item in rank(standings, metric=metric) if item.rank is not None]
    wanted = published_figures["leaderboards"][f"CIFAR10/{board}"]
    assert [(item.rank, item.submission_id) for item in ranked] == [
        (item["rank"], item["path"]) for item in wanted
    ]


def test_every_malformed_state_is_refused_for_its_own_reason(
    score_tree: Score,
    published: Callable[[str], dict[str, bytes]],
    published_figures: dict[str, Any],
) -> None:
    files = published("dawnbench/malformed")
    for number, state in published_figures["malformed"].items():
        own = {path: text for path, text in files.items() if path.startswith(f"{number}/")}
        [record] = score_tree({path.partition("/")[2]: text for path, text in own.items()})
        assert record["path"].startswith(state["base"])
        assert not record["eligible"]
        codes = {problem["code"] for problem in record["problems"]}
        assert codes - {"more"} == {problem["code"] for problem in state["problems"]}, number
        assert all(p["expected"] for p in record["problems"] if p["code"] != "more")


def test_all_malformed_states_at_once_hinder_no_entry(
    score_tree: Score, published: Callable[[str], dict[str, bytes]]
) -> None:
    tree = {f"a/{path}": text for path, text in published("dawnbench/entries").items()}
    tree |= {f"b/{path}": text for path, text in published("dawnbench/malformed").items()}
    records = score_tree(tree)
    assert sum(record["eligible"] for record in records) == 26
    assert len(records) == 26 + 11
