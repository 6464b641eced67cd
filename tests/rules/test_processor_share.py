"""The share of its processor that a training had, in its log and as a remark."""

import pytest

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import LogFormatError
from finishline.rules.logs import parse_run_log
from finishline.rules.logs.mllog_write import write_run_log
from finishline.rules.scoring.energy import find_shared, processor_share
from finishline.rules.scoring.run import Evaluation, Run


@pytest.mark.parametrize(
    ("cpu_seconds", "seconds", "threads", "expected"),
    [
        (9.0, 10.0, 1, 0.9),
        (10.1, 10.0, 1, 1.0),  # Two clocks, read one after the other.
        (15.0, 10.0, 2, 0.75),
        (None, 10.0, 1, None),
        (0.0, 0.0, 1, None),
        (1.0, None, 1, None),
    ],
)
def test_a_share_is_processor_seconds_over_seconds_for_each_thread(
    cpu_seconds: float | None, seconds: float | None, threads: int, expected: float | None
) -> None:
    assert processor_share(cpu_seconds, seconds, threads=threads) == expected


def logged(digits: Benchmark, share: float | None) -> Run:
    run = Run("run_0.log", "mlperf", (Evaluation(1.0, 0.8, 97.6),), "success", 0.8)
    text = write_run_log(
        Run(**{**vars(run), "processor_share": share}), benchmark=digits, started_at_ms=1000
    )
    return parse_run_log(text.encode(), name="run_0.log", benchmark=digits)


@pytest.mark.parametrize(("share", "remarks"), [(0.62, 1), (0.899, 1), (0.9, 0), (None, 0)])
def test_a_run_with_less_than_nine_tenths_of_its_processor_is_remarked_on(
    digits: Benchmark, share: float | None, remarks: int
) -> None:
    run = logged(digits, share)

    assert run.processor_share == share
    assert len(find_shared([run])) == remarks


def test_the_remark_says_the_share_and_what_to_do(digits: Benchmark) -> None:
    [remark] = find_shared([logged(digits, 0.62)])
    assert "62% of its processor" in str(remark)
    assert "train again" in str(remark)


@pytest.mark.parametrize("value", ["-0.1", "1.5", '"half"', "true"])
def test_a_share_that_is_none_is_refused(digits: Benchmark, value: str) -> None:
    text = write_run_log(
        Run("run_0.log", "mlperf", (Evaluation(1.0, 0.8, 97.6),), "success", 0.8),
        benchmark=digits,
        started_at_ms=1000,
    )
    line = ':::MLLOG {"time_ms": 2000, "event_type": "POINT_IN_TIME", "key": "processor_share", '
    with pytest.raises(LogFormatError) as caught:
        parse_run_log(
            (text + line + f'"value": {value}}}\n').encode(), name="run_0.log", benchmark=digits
        )
    assert caught.value.field == "processor_share"
    assert caught.value.expected == "a number from 0 to 1"
