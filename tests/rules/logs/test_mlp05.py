"""MLPerf v0.5 logs: lines with a time in seconds and an optional JSON value."""

from pathlib import Path

import pytest

from finishline.rules.archive.definitions import shipped_definition
from finishline.rules.errors import LogFormatError
from finishline.rules.logs.mllog_run import Reading
from finishline.rules.logs.mlp05 import read_mlp05_chunks

LOG = """\
:::MLPv0.5.0 resnet 1541720383.838108063 (<string>:1) run_clear_caches
:::MLPv0.5.0 resnet 1541720386.718659639 (/a (b)/mlperf_log_utils.py:49) run_start
:::MLPv0.5.0 resnet 1541720386.719199657 (utils.py:49) run_set_random_seed: 14209
:::MLPv0.5.0 resnet 1541720417.535266876 (utils.py:49) eval_target: 0.749
:::MLPv0.5.0 resnet 1541720500.0 (utils.py:49) eval_accuracy: {"epoch": 2, "value": 0.25282}
:::MLPv0.5.0 resnet 1541720700.0 (utils.py:49) eval_accuracy: {"value": 0.7511, "epoch": 62}
:::MLPv0.5.0 resnet 1541720701.25 (utils.py:49) run_stop: {"success": true}
:::MLPv0.5.0 resnet 1541720702.0 (utils.py:49) run_final
"""
STOP = 'run_stop: {"success": true}'


def read(log: str, *, names: tuple[str, ...] = ("resnet",)) -> tuple[Reading, list[LogFormatError]]:
    problems: list[LogFormatError] = []
    reading = read_mlp05_chunks(
        [log.encode()], name="r", allowed={"submission_benchmark": names}, report=problems.append
    )
    return reading, problems


def test_the_run_lasts_from_run_start_to_run_stop() -> None:
    reading, problems = read(LOG)
    assert reading.run.stop_seconds == 1541720701.25 - 1541720386.718659639
    assert reading.run.started_ms == 1541720386718.659639
    assert (reading.run.status, reading.run.seed, reading.seeds) == ("success", 14209, (14209,))
    assert [(e.epoch, e.quality) for e in reading.run.evaluations] == [(2, 0.25282), (62, 0.7511)]
    assert (reading.trusted, problems) == (True, [])


@pytest.mark.parametrize(
    ("stop", "status"),
    [
        ("run_stop", None),
        ("run_stop: {}", None),
        ('run_stop: {"success": "true"}', "success"),
        ('run_stop: {"success": false}', "aborted"),
    ],
)
def test_run_stop_may_tell_of_success_or_not(stop: str, status: str | None) -> None:
    assert read(LOG.replace(STOP, stop))[0].run.status == status


@pytest.mark.parametrize(
    ("value", "quality"),
    [
        ("0.75", 0.75),
        ('{"epoch": 1, "value": {"BBOX": 0.38, "SEGM": 0.34}}', 0.38),
        ('{"epoch": -1, "value": 20}', 20.0),
    ],
)
def test_a_quality_is_a_number_or_one_of_several(value: str, quality: float) -> None:
    reading, problems = read(LOG.replace('{"value": 0.7511, "epoch": 62}', value))
    assert reading.run.evaluations[-1].quality == quality
    assert problems == []


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ('{"value": 0.7511, "epoch": 62}', '{"value": "x"}', 6),
        ('{"value": 0.7511, "epoch": 62}', "{oops", 6),
        ('{"value": 0.7511, "epoch": 62}', "[" * 5000, 6),
        ("run_final", "run_stop", 8),
        ("run_clear_caches", 'run_stop: {"success": true}', 1),
        ("run_final", "run_start", 8),
        ("run_final", "eval_accuracy: 0.9", 8),
        ("resnet 1541720702.0 (utils.py:49) run_final", "ssd 1.0 () seed: 1", 8),
    ],
)
def test_what_contradicts_is_reported_with_its_line(old: str, new: str, line: int) -> None:
    assert [problem.line for problem in read(LOG.replace(old, new))[1]][:1] == [line]


def test_a_run_that_stops_twice_or_before_it_starts_is_not_trusted() -> None:
    assert not read(LOG.replace("run_final", "run_stop"))[0].trusted
    assert not read(LOG.replace("1541720701.25", "1541720301.25"))[0].trusted
    assert not read(LOG.replace("run_start", "run_begin"))[0].trusted


def test_another_benchmark_is_reported() -> None:
    [problem] = read(LOG, names=("ssd",))[1]
    assert (problem.code, problem.line, problem.expected) == ("wrong_benchmark", 2, "ssd")


def test_a_line_of_a_hundred_thousand_parentheses_takes_no_time() -> None:
    line = ":::MLPv0.5.0 resnet 1.0 (" + ") seed " * 100_000 + "\n"
    assert read(line + LOG)[0].run.status == "success"


def test_a_line_that_two_loggers_wrote_counts_once() -> None:
    """Source: published logs of a DGX-2, which have each line bare and after INFO:."""
    doubled = "".join(f"{line}\nINFO:mlperf_compliance:{line}\n" for line in LOG.splitlines())
    reading, problems = read(doubled)
    assert reading.run.stop_seconds == 1541720701.25 - 1541720386.718659639
    assert [e.quality for e in reading.run.evaluations] == [0.25282, 0.7511]
    assert (reading.trusted, problems) == (True, [])


def test_an_evaluation_outside_the_run_is_left_out_and_noticed() -> None:
    """Source: a published log of a TPU pod, which evaluates while it warms up."""
    problems: list[LogFormatError] = []
    notices: list[LogFormatError] = []
    reading = read_mlp05_chunks(
        [LOG.replace("run_clear_caches", 'eval_accuracy: {"value": 0.9, "epoch": 3}').encode()],
        name="r",
        allowed={},
        report=problems.append,
        notice=notices.append,
    )
    assert [e.quality for e in reading.run.evaluations] == [0.25282, 0.7511]
    assert (problems, [notice.line for notice in notices]) == ([], [1])


@pytest.mark.parametrize(
    ("value", "qualities"),
    [
        ('{"BBOX": 0.378, "SEGM": 0.34}', (0.378, {"SEGM": 0.34})),
        ('{"segm": 0.34, "bbox": 0.378, "time": "x"}', (0.378, {"SEGM": 0.34})),
        ('{"BBOX": 0.378}', (0.378, {})),
        ('{"BBOX": 0.378, "SEGM": "0.34"}', (0.378, {})),
        ("0.378", (0.378, None)),
    ],
)
def test_an_evaluation_in_several_metrics_has_them_all(
    benchmarks_dir: Path, value: str, qualities: tuple[float, dict[str, float] | None]
) -> None:
    maskrcnn = shipped_definition("mlperf-v0.5-maskrcnn")
    log = LOG.replace('{"value": 0.7511, "epoch": 62}', f'{{"epoch": 62, "value": {value}}}')
    problems: list[LogFormatError] = []
    reading = read_mlp05_chunks(
        [log.encode()], name="r", allowed={}, report=problems.append, target=maskrcnn.target
    )
    last = reading.run.evaluations[-1]
    assert ((last.quality, last.others), last.epoch, problems) == (qualities, 62.0, [])
