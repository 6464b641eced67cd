"""DAWNBench entries made for these tests: every task, and what can be wrong with one."""

import json
from collections.abc import Callable
from typing import Any

import pytest

Record = dict[str, Any]
Score = Callable[..., list[Record]]
ENTRY = {"version": "v1.0", "author": "A", "authorEmail": "a@example.org", "framework": "F",
         "model": "M", "hardware": "H", "timestamp": "2018-4-20", "costPerHour": 3.0}  # fmt: skip
HEADERS = {
    "CIFAR10": "epoch\thours\ttop1Accuracy",
    "ImageNet": "epoch\thours\ttop1Accuracy\ttop5Accuracy",
    "SQuAD": "epoch\thours\tf1Score",
}


def codes(record: Record) -> set[str]:
    return {problem["code"] for problem in record["problems"]}


def train(task: str, *rows: str, **changes: Any) -> dict[str, bytes | str]:
    return {
        f"{task}/train/x.json": json.dumps(ENTRY | changes),
        f"{task}/train/x.tsv": "\n".join((HEADERS[task], *rows)),
    }


@pytest.mark.parametrize(
    ("task", "below", "at"),
    [
        ("CIFAR10", "93.99", "94.0"),
        ("ImageNet", "70\t92.999", "75\t93"),
        ("SQuAD", "0.7499", "0.75"),
    ],
)
def test_every_task_has_its_own_target(score_tree: Score, task: str, below: str, at: str) -> None:
    [record] = score_tree(train(task, f"1\t0.5\t{below}", f"2.5\t1.0\t{at}", f"3\t2.0\t{below}"))
    assert (record["tta_seconds"], record["tta_epoch"], record["cost_usd"]) == (3600.0, 2.5, 3.0)
    assert (record["tta_display"], record["eligible"]) == ("1:00:00", True)
    [record] = score_tree(train(task, f"1\t0.5\t{below}"))
    assert (record["reached"], record["eligible"], record["tta_seconds"]) == (False, False, None)
    assert codes(record) == {"below_threshold"}


def test_hours_of_zero_and_a_missing_price_are_fine(score_tree: Score) -> None:
    [record] = score_tree(train("CIFAR10", "0\t0\t95", costPerHour=None))
    assert (record["tta_seconds"], record["cost_usd"], record["problems"]) == (0.0, None, [])


@pytest.mark.parametrize(
    ("task", "said", "cost"),
    [
        ("CIFAR10", {"top1Accuracy": 95.0}, 1e-5),
        ("ImageNet", {"top5Accuracy": 93.1, "top1Accuracy": 70.0}, None),
        ("SQuAD", {"f1Score": 0.8}, 0.0),
    ],
)
def test_inference_has_latency_and_cost(
    score_tree: Score, task: str, said: dict[str, Any], cost: float | None
) -> None:
    entry = ENTRY | said | {"latency": 12.5, "cost": cost}
    [record] = score_tree({f"{task}/inference/y.json": json.dumps(entry), "README.md": ""})
    assert (record["latency_ms"], record["eligible"], record["kind"]) == (12.5, True, "inference")
    assert record["cost_usd_per_10000"] == (None if cost is None else cost * 10_000)


def test_an_f1_score_in_percent_is_a_fraction_and_flagged(score_tree: Score) -> None:
    entry = ENTRY | {"latency": 1.0, "f1Score": 82.52}
    [record] = score_tree({"SQuAD/inference/y.json": json.dumps(entry)})
    assert record["best_metric"] == pytest.approx(0.8252)
    assert (codes(record), record["eligible"]) == ({"f1_score_in_percent"}, True)


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"version": "v2"}, {"bad_version"}),
        ({"costPerHour": "0.9"}, {"number_as_string"}),
        ({"costPerHour": -1}, {"bad_value"}),
        ({"timestamp": "20.4.2018"}, {"bad_timestamp"}),
        ({"author": None, "model": ""}, {"missing_field", "bad_value"}),
        ({"author": None, "autohr": "Ada"}, {"missing_field"}),
        (
            {"version": "v0", "costPerHour": "NA", "misc": 3},
            {"bad_version", "number_as_string", "bad_misc"},
        ),
    ],
)
def test_every_bad_field_is_told_at_once(
    score_tree: Score, changes: dict[str, Any], wanted: set[str]
) -> None:
    [record] = score_tree(train("CIFAR10", "1\t1\t95", **changes))
    assert (codes(record), record["eligible"]) == (wanted, False)
    assert record["tta_seconds"] == 3600.0


@pytest.mark.parametrize(
    ("rows", "code", "line"),
    [
        (("1\t1\t95", "2\t0.5\t95"), "hours_decrease", 3),
        (("1\t1\t0.95",), "wrong_unit", 2),
        (("1\tNA\t95",), "bad_tsv", 2),
        (("1\t-1\t95",), "bad_tsv", 2),
        (("1\t1\tnan",), "bad_tsv", 2),
        (("1\t1e999\t95",), "bad_tsv", 2),
        (("1\t\t1\t95",), "bad_tsv", 2),
        ((), "bad_tsv", 1),
    ],
)
def test_a_curve_that_is_none_gives_no_time(
    score_tree: Score, rows: tuple[str, ...], code: str, line: int
) -> None:
    [record] = score_tree(train("CIFAR10", *rows))
    [problem] = record["problems"]
    place = (problem["code"], problem["line"], problem["file"])
    assert place == (code, line, "CIFAR10/train/x.tsv")
    assert (record["tta_seconds"], record["eligible"]) == (None, False)


def test_both_halves_of_an_entry_must_be_there(score_tree: Score) -> None:
    files = train("CIFAR10", "1\t1\t95")
    for name, code in (("json", "missing_json"), ("tsv", "missing_tsv")):
        left = {path: text for path, text in files.items() if not path.endswith(name)}
        [record] = score_tree(left)
        assert (codes(record), record["eligible"]) == ({code}, False)


def test_the_folder_given_may_be_the_innermost_one(score_tree: Score) -> None:
    files = train("ImageNet", "1\t1\t70\t95")
    inner = {path.rpartition("/")[2]: text for path, text in files.items()}
    [record] = score_tree(inner, root=("/", "archive", "ImageNet", "train"))
    assert (record["path"], record["benchmark"], record["kind"]) == ("x.json", "ImageNet", "train")


def test_outside_such_folders_a_curve_tells_its_task_by_its_columns(score_tree: Score) -> None:
    rows = {"CIFAR10": "1\t1\t95", "ImageNet": "1\t1\t70\t95", "SQuAD": "1\t1\t0.8"}
    for task, row in rows.items():
        inner = {path.rpartition("/")[2]: text for path, text in train(task, row).items()}
        [record] = score_tree(inner)
        assert (record["benchmark"], record["eligible"]) == (task, True)


def test_a_json_that_belongs_to_nothing_is_left_alone(score_tree: Score) -> None:
    assert score_tree({"package.json": "{}", "a/scaling.json": "{}"}) == []
