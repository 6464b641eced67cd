"""Logs of MLPerf v0.6: seconds, a key and JSON after `:::MLL`."""

import json
from collections.abc import Callable

import pytest

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.quality import LoggedQuality
from finishline.rules.errors import LogFormatError
from finishline.rules.logs import parse_run_log
from finishline.rules.logs.mlp06 import read_mlp06_chunks
from finishline.rules.scoring.run import Run

Parse = Callable[..., Run]
MINIGO = LoggedQuality(offline=True, timed_by_result=True)
MASKRCNN = LoggedQuality(logged_names=("BBOX", "SEGM"))


def line(key: str, seconds: object, value: object = None, **metadata: object) -> str:
    return f":::MLL {seconds} {key}: {json.dumps({'value': value, 'metadata': metadata})}\n"


HEAD = (
    line("submission_benchmark", "0.0", "resnet9")
    + line("submission_division", "0.0", "closed")
    + line("run_set_random_seed", 1558635870.25, 41)
    + line("global_batch_size", 1558635870.5, 256)
    + line("opt_base_learning_rate", 1558635870.5, 0.5)
    + line("init_start", 1558635870.5)
    + line("init_stop", 1558635880)
    + line("run_start", 1558635880.5)
)
EVALUATIONS = (
    line("eval_start", "1558635900.5", epoch_num=1)
    + line("eval_accuracy", "1558635901.5", 90.25, epoch_num=1)
    + line("eval_stop", "1558635901.5", epoch_num=1)
)
STOP = line("run_stop", "1558635921.125", status="success")
LOG = f"loading\n{HEAD}0: {EVALUATIONS}{STOP}"


@pytest.fixture
def read(resnet9: Benchmark) -> Parse:
    """Reads a v0.6 log handed in, or published in an archive."""

    def parse(log: str, *, archive: bool = False) -> Run:
        return parse_run_log(log.encode(), name="r.txt", benchmark=resnet9, archive=archive)

    return parse


def test_a_run_has_its_times_in_seconds_and_says_what_it_was_made_with(read: Parse) -> None:
    run = read(LOG)
    assert (run.stop_seconds, run.status, run.clock) == (40.625, "success", "mlperf")
    [evaluation] = run.evaluations
    assert (evaluation.epoch, evaluation.seconds, evaluation.quality) == (1.0, 21.0, 90.25)
    assert (run.benchmark, run.division, run.seed, run.batch_size) == ("resnet9", "closed", 41, 256)
    assert run.hyperparameters == {"opt_base_learning_rate": 0.5}
    assert run.ledger is not None
    assert (run.ledger.init, run.ledger.eval) == (10.0, 1.0)


def test_metadata_in_the_spelling_of_python_is_read(read: Parse) -> None:
    python = STOP.replace('{"status": "success"}', "{'lineno': 53, 'status': 'success'}")
    assert python != STOP
    assert read(LOG.replace(STOP, python)) == read(LOG)


@pytest.mark.parametrize("value", ['"90.25"', '{"accuracy": 90.25}'])
def test_a_quality_may_be_a_text_or_in_a_table(read: Parse, value: str) -> None:
    log = LOG.replace("90.25", value)
    assert read(log).evaluations == read(LOG).evaluations


def offline(log: str, target: LoggedQuality) -> Run:
    def refuse(error: LogFormatError) -> None:
        raise error

    return read_mlp06_chunks(
        [log.encode()], name="r.txt", allowed={}, report=refuse, target=target
    ).run


TABLE = {"BBOX": 0.378, "SEGM": 0.34}


@pytest.mark.parametrize("value", [[0.378, 0.34], TABLE, {"accuracy": TABLE}])
def test_several_qualities_are_a_list_or_a_table(value: object) -> None:
    log = HEAD + line("eval_accuracy", 1558635901.5, value, epoch_num=12) + STOP
    [evaluation] = offline(log, MASKRCNN).evaluations
    assert (evaluation.quality, evaluation.others) == (0.378, {"SEGM": 0.34})


@pytest.mark.parametrize("stop", ["", STOP])
def test_minigo_stops_where_the_model_that_passed_was_saved(stop: str) -> None:
    """With or without a run_stop of the measuring, which comes later."""
    result = line("eval_result", 1558635920.5, iteration=1, timestamp=12.75)
    run = offline(HEAD + EVALUATIONS + result + stop, MINIGO)
    assert (run.stop_seconds, run.status) == (12.75, "success")
    assert [evaluation.quality for evaluation in run.evaluations] == [90.25]


@pytest.mark.parametrize("seconds", [0, -1.0, 41.0, "12.75", None])
def test_a_result_that_nothing_was_saved_for_stops_no_run(seconds: object) -> None:
    result = line("eval_result", 1558635920.5, timestamp=seconds)
    assert offline(HEAD + EVALUATIONS + result + STOP, MINIGO).stop_seconds == 40.625
    assert offline(HEAD + EVALUATIONS + result, MINIGO).stop_seconds is None


def test_nobody_else_can_name_the_moment_it_stopped(read: Parse) -> None:
    result = line("eval_result", 1558635920.5, iteration=1, timestamp=1.0)
    for archive in (False, True):
        assert read(HEAD + EVALUATIONS + result + STOP, archive=archive).stop_seconds == 40.625
    aborted = STOP.replace("success", "aborted")
    with pytest.raises(LogFormatError, match="a second run_stop"):
        offline(HEAD + EVALUATIONS + result + aborted, MINIGO)


@pytest.mark.parametrize(
    ("old", "new", "number", "code"),
    [
        ('"status": "success"', '"status": "success', 12, "bad_json"),
        ('"status": "success"', '"status": "aborted", "status": "success"', 12, "repeated_key"),
        (":::MLL 1558635921.125", ":::MLL 1558635900.5", 12, "times_decrease"),
        (":::MLL 1558635921.125", ":::MLL 1558635880.25", 12, "times_decrease"),
        ('"value": 90.25', '"value": "much"', 10, None),
        ('"resnet9"', '"other"', 1, "wrong_benchmark"),
        ('{"value": 90.25, "metadata": {"epoch_num": 1}}', "[1]", 10, "bad_line"),
        ('"value": 90.25', f'"x": "{"x" * 20_000}", "value": 90.25', 10, "long_line"),
    ],
)
def test_a_tampered_line_is_refused_also_in_an_archive(
    read: Parse, old: str, new: str, number: int, code: str | None
) -> None:
    log = HEAD + EVALUATIONS + STOP
    assert log.count(old) == 1
    for archive in (False, True):
        with pytest.raises(LogFormatError) as caught:
            read(log.replace(old, new), archive=archive)
        assert (caught.value.line, caught.value.code) == (number, code)


def test_what_no_figure_needs_may_be_broken_in_an_archive_alone(read: Parse) -> None:
    for odd in (
        ":::MLL 1558635871.5 cache_clear: {value: true}\n",
        ':::MLL 1558635871.5 global_batch_size: {"value": 256, "metadata":[12:01:18] split\n',
    ):
        assert read(odd + LOG, archive=True).stop_seconds == 40.625
        with pytest.raises(LogFormatError) as caught:
            read(odd + LOG)
        assert (caught.value.line, caught.value.code) == (1, "bad_json")


def test_a_log_that_has_lines_of_the_later_format_is_one_of_it(read: Parse) -> None:
    hidden = ":::MLLOG " + json.dumps({"key": "seed", "time_ms": 1, "value": 1, "metadata": {}})
    with pytest.raises(LogFormatError, match="no run_start"):
        read(LOG + hidden)
