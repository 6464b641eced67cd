"""Logs of Stable Diffusion: FID and CLIP in lines of their own, measured once the run is over."""

import json

import pytest

from finishline.rules.archive.definitions import shipped_definition
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import LogFormatError
from finishline.rules.logs.mllog import read_mllog_chunks
from finishline.rules.logs.mllog_run import Reading

STOP_MS = 400_000


def line(key: str, time_ms: int, value: object = None, **metadata: object) -> str:
    table = {"namespace": "", "time_ms": time_ms, "event_type": "POINT_IN_TIME", "key": key,
             "value": value, "metadata": metadata}  # fmt: skip
    return f":::MLLOG {json.dumps(table)}\n"


def measured(metric: object, value: float, samples: int, time_ms: int) -> str:
    return line("eval_accuracy", time_ms, value, samples_count=samples, metric=metric)


HEAD = line("submission_benchmark", 0, "stable_diffusion") + line("run_start", 100_000)
STOP = line("run_stop", STOP_MS, status="success")
EVALUATIONS = (
    measured("FID", 96.7, 1024, 600_000)
    + measured("CLIP", 0.147, 1024, 610_000)
    + measured("FID", 88.5, 2048, 700_000)
    + measured("CLIP", 0.161, 2048, 720_000)
)


@pytest.fixture(scope="module")
def stable_diffusion() -> Benchmark:
    """The definition that is shipped."""
    return shipped_definition("mlperf-v4.1-stable_diffusion")


def read(log: str, benchmark: Benchmark) -> tuple[Reading, list[LogFormatError]]:
    problems: list[LogFormatError] = []
    reading = read_mllog_chunks(
        [log.encode()],
        name="r",
        allowed={},
        report=problems.append,
        detail="last",
        target=benchmark.target,
    )
    return reading, problems


def test_the_lines_of_one_moment_are_one_evaluation(stable_diffusion: Benchmark) -> None:
    reading, problems = read(HEAD + EVALUATIONS + STOP, stable_diffusion)
    told = [(e.samples, e.quality, e.others, e.seconds) for e in reading.run.evaluations]
    assert told == [(1024, 96.7, {"CLIP": 0.147}, 510.0), (2048, 88.5, {"CLIP": 0.161}, 620.0)]
    assert (reading.evaluations, problems) == (2, [])


def test_a_run_may_stop_before_its_checkpoints_are_measured(stable_diffusion: Benchmark) -> None:
    """Source: training_rules.adoc: "evaluation is done offline, the time is not counted"."""
    reading, problems = read(HEAD + EVALUATIONS + STOP, stable_diffusion)
    assert (reading.run.stop_seconds, reading.run.status) == (300.0, "success")
    assert (reading.trusted, problems) == (True, [])


def test_checkpoints_may_be_measured_in_any_order(stable_diffusion: Benchmark) -> None:
    lines = EVALUATIONS.splitlines(keepends=True)
    reading, _ = read(HEAD + "".join(reversed(lines)) + STOP, stable_diffusion)
    assert [e.samples for e in reading.run.evaluations] == [1024, 2048]


@pytest.mark.parametrize("metric", [None, "IS", 3])
def test_a_line_of_no_known_metric_is_reported(stable_diffusion: Benchmark, metric: object) -> None:
    log = HEAD + EVALUATIONS + measured(metric, 1.0, 4096, 730_000) + STOP
    reading, [problem] = read(log, stable_diffusion)
    assert (problem.line, problem.field, problem.code) == (7, "metadata.metric", "missing_metric")
    assert problem.expected == "FID and CLIP of every evaluation"
    assert len(reading.run.evaluations) == 2


def test_an_evaluation_without_the_main_metric_is_reported_and_one_without_others_kept(
    stable_diffusion: Benchmark,
) -> None:
    log = HEAD + measured("CLIP", 0.2, 1024, 1) + measured("FID", 80.0, 2048, 2) + STOP
    reading, [problem] = read(log, stable_diffusion)
    assert (problem.line, problem.message) == (3, "no FID")
    [kept] = reading.run.evaluations
    assert not stable_diffusion.target.is_reached_at(kept)
