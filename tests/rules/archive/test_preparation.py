"""The preparation of a published run that is longer than the rules leave free."""

from collections.abc import Callable
from typing import Any

import pytest

from finishline.rules.archive.definitions import shipped_definition
from finishline.rules.logs import parse_run_log
from finishline.rules.scoring.scoring import score

Record = dict[str, Any]
Score = Callable[..., list[Record]]
Log = Callable[..., str]
START_MS = 1_700_000_000_000
MINUTE_MS = 60_000


@pytest.fixture
def prepared_log(make_log: Log, make_line: Log) -> Log:
    """A run of 10 minutes whose ranks log init_start so many minutes before it, in that order."""

    def build(*minutes: float, **options: Any) -> str:
        began = [make_line("init_start", START_MS - int(m * MINUTE_MS)) for m in minutes]
        measured = make_line("eval_start", START_MS + 500, epoch_num=1)
        started = make_line("run_start", START_MS)
        return "".join(began) + make_log(**options).replace(started, started + measured)

    return build


def only_run(records: list[Record]) -> tuple[float, list[Any]]:
    [record] = records
    told = [p["message"] for p in record["problems"] if p["code"] == "long_preparation"]
    return record["runs"][0]["tta_seconds"], told


@pytest.mark.parametrize(
    ("minutes", "counted"), [((29,), 0), ((30,), 0), ((35,), 5), ((32, 36, 33), 6)]
)
def test_what_is_over_thirty_minutes_is_on_the_clock_of_a_closed_run(
    score_tree: Score,
    prepared_log: Log,
    minutes: tuple[float, ...],
    counted: float,
) -> None:
    """Source: training_rules.adoc, "Run Results"; of several ranks the first to begin counts."""
    log = prepared_log(*minutes)
    for name in ("run.txt", "v5.1/ACME/results/big/retinanet/result_0.txt"):
        seconds, told = only_run(score_tree({name: log}))
        assert seconds == (10 + counted) * 60
        assert len(told) == (counted > 0)
    benchmark = shipped_definition("mlperf-v5.1-retinanet")
    run = parse_run_log(log.encode(), name="result_0.txt", benchmark=benchmark)
    result = score([run], benchmark, division="closed", price_usd_per_hour=None)
    assert result.runs[0].tta_seconds == seconds


def test_an_open_run_has_four_hours(score_tree: Score, prepared_log: Log) -> None:
    path = "v5.1/ACME/results/big/retinanet/result_0.txt"
    for minutes, counted in ((239, 0), (245, 5)):
        log = prepared_log(minutes, division="open")
        assert only_run(score_tree({path: log}))[0] == (10 + counted) * 60


def test_a_line_that_hides_when_it_began_is_no_way_round(
    score_tree: Score, prepared_log: Log
) -> None:
    log = 'a framework wrote "init_start"\n' + prepared_log(35)
    path = "v5.1/ACME/results/big/retinanet/result_0.txt"
    assert only_run(score_tree({path: log}))[0] == 15 * 60
