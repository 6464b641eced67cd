"""Runs of a published set that are one training under two names."""

from collections.abc import Callable
from typing import Any

import pytest

Record = dict[str, Any]
Score = Callable[..., list[Record]]
Log = Callable[..., str]
START_MS = 1_700_000_000_000


@pytest.fixture
def curve_log(make_log: Log, make_line: Log) -> Log:
    """A run of 10 minutes with an evaluation at each of four epochs more, so late in milliseconds.

    All end alike: at the same moment with the same quality.
    """

    def build(late_ms: int = 0, **options: Any) -> str:
        started = make_line("run_start", START_MS)
        curve = [
            make_line("eval_accuracy", START_MS + 100 * i + late_ms, 0.02 * i, epoch_num=i / 10)
            for i in range(1, 5)
        ]
        return make_log(**options).replace(started, started + "".join(curve))

    return build


def told(records: list[Record]) -> list[tuple[str, str, str]]:
    return [
        (p["file"].rpartition("/")[2], p["message"], p["severity"])
        for record in records
        for p in record["problems"]
        if p["code"] == "same_log"
    ]


def test_a_run_that_differs_from_another_in_its_seed_alone_is_an_error(
    score_tree: Score, make_package: Callable[..., dict[str, str]], curve_log: Log
) -> None:
    """Published: tinycorp's tinybox_green, BERT of v4.1, result_3.txt and result_8.txt."""
    logs = [curve_log(i, seed=i) for i in range(4)]
    alike = make_package([*logs, curve_log(2, seed=4)])
    first = "ACME/results/big/retinanet/result_2.txt"
    message = f"every quality and time is that of {first}"
    assert told(score_tree(alike)) == [("result_4.txt", message, "error")]
    assert not score_tree(alike)[0]["eligible"]
    assert told(score_tree(make_package([*logs, curve_log(9, seed=4)]))) == []
    assert told(score_tree(make_package())) == []
