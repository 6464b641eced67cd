"""Logs of MLPerf training v0.5 and v0.6."""

import json

import pytest

from finishline.rules.archive.definitions import shipped_definition
from finishline.rules.errors import LogFormatError
from finishline.rules.logs import parse_run_log
from finishline.rules.logs.lines import MLP05, MLP06
from finishline.rules.logs.mllog import read_log

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
LAST = '{"value": 0.7511, "epoch": 62}'


def read(log, *, names=("resnet",), odd=None, target=None):
    problems = []
    reading = read_log(
        [log.encode()],
        MLP05,
        name="r",
        allowed={"submission_benchmark": names},
        report=problems.append,
        odd=problems.append if odd is None else odd.append,
        target=target,
    )
    return reading, problems


def test_the_run_lasts_from_run_start_to_run_stop():
    reading, problems = read(LOG)
    assert reading.run.stop_seconds == 1541720701.25 - 1541720386.718659639
    assert (reading.run.status, reading.run.seed, reading.run.seeds) == ("success", 14209, (14209,))
    assert [(e.epoch, e.quality) for e in reading.run.evaluations] == [(2, 0.25282), (62, 0.7511)]
    assert (reading.trusted, problems) == (True, [])


def test_words_in_another_line_are_no_line():
    hidden = LOG.replace("eval_target: 0.749", "note: (of x) eval_accuracy: 0.99")
    assert read(hidden)[0].run == read(LOG)[0].run


@pytest.mark.parametrize(
    ("old", "new", "status", "quality"),
    [
        (STOP, "run_stop", None, 0.7511),
        (STOP, "run_stop: {}", None, 0.7511),
        (STOP, 'run_stop: {"success": "true"}', "success", 0.7511),
        (STOP, 'run_stop: {"success": false}', "aborted", 0.7511),
        (LAST, "0.75", "success", 0.75),
        (LAST, '{"epoch": 1, "value": {"BBOX": 0.38, "SEGM": 0.34}}', "success", 0.38),
        (LAST, '{"epoch": -1, "value": 20}', "success", 20.0),
    ],
)
def test_run_stop_may_tell_of_success(old, new, status, quality):
    reading, problems = read(LOG.replace(old, new))
    assert (reading.run.status, reading.run.evaluations[-1].quality) == (status, quality)
    assert problems == []


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ('{"value": 0.7511, "epoch": 62}', '{"value": "x"}', 6),
        ('{"value": 0.7511, "epoch": 62}', "{oops", 6),
        ('{"value": 0.7511, "epoch": 62}', "[" * 5000, 6),
        ('"epoch": 62', '"epoch": 3e18', 6),
        ('"epoch": 62', '"epoch": -2', 6),
        ("run_final", "run_stop", 8),
        ("run_clear_caches", 'run_stop: {"success": true}', 1),
        ("run_final", "run_start", 8),
        ("run_final", "eval_accuracy: 0.9", 8),
        ("1541720500.0", "1541720300.0", 5),  # Before run_start: no negative seconds.
        ("1541720700.0", "1541720400.0", 6),
        ("1541720701.25", "1541720650.0", 7),
        ("resnet 1541720702.0 (utils.py:49) run_final", "ssd 1.0 () seed: 1", 8),
    ],
)
def test_what_contradicts_is_reported_with_its_line(old, new, line):
    assert [problem.line for problem in read(LOG.replace(old, new))[1]][:1] == [line]


def test_a_run_that_stops_twice_or_before_it_starts_is_not_trusted():
    assert not read(LOG.replace("run_final", "run_stop"))[0].trusted
    assert not read(LOG.replace("1541720701.25", "1541720301.25"))[0].trusted
    assert not read(LOG.replace("run_start", "run_begin"))[0].trusted
    problem = read(LOG, names=("ssd",))[1][0]
    assert (problem.code, problem.line, problem.expected) == ("wrong_benchmark", 2, "ssd")


def test_a_line_of_a_hundred_thousand_parentheses_takes_no_time():
    line = ":::MLPv0.5.0 resnet 1.0 (" + ") seed " * 100_000 + "\n"
    assert read(line + LOG)[0].run.status == "success"


def test_a_line_that_two_loggers_wrote_counts_once():
    """Source: published logs of a DGX-2, which have each line bare and after INFO:."""
    doubled = "".join(f"{line}\nINFO:mlperf_compliance:{line}\n" for line in LOG.splitlines())
    reading, problems = read(doubled)
    assert reading.run.stop_seconds == 1541720701.25 - 1541720386.718659639
    assert [e.quality for e in reading.run.evaluations] == [0.25282, 0.7511]
    assert (reading.trusted, problems) == (True, [])


def test_an_evaluation_outside_the_run_is_left_out_and_noticed():
    """Source: a published log of a TPU pod, which evaluates while it warms up."""
    notices = []
    outside = 'eval_accuracy: {"value": 0.9, "epoch": 3}'
    reading, problems = read(LOG.replace("run_clear_caches", outside), odd=notices)
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
def test_an_evaluation_in_several_metrics_has_them_all(benchmarks_dir, value, qualities):
    maskrcnn = shipped_definition("mlperf-v0.5-maskrcnn")
    log = LOG.replace('{"value": 0.7511, "epoch": 62}', f'{{"epoch": 62, "value": {value}}}')
    reading, problems = read(log, target=maskrcnn.target)
    last = reading.run.evaluations[-1]
    assert ((last.quality, last.others), last.epoch, problems) == (qualities, 62.0, [])


MINIGO = shipped_definition("mlperf-v0.6-minigo").target


def line(key, seconds, value=None, **metadata):
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


STOP_06 = line("run_stop", "1558635921.125", status="success")


LOG_06 = f"loading\n{HEAD}0: {EVALUATIONS}{STOP_06}"


@pytest.fixture
def read_06(resnet9):
    """Reads a v0.6 log handed in, or published in an archive."""

    def parse(log, *, archive=False):
        return parse_run_log(log.encode(), name="r.txt", benchmark=resnet9, archive=archive)

    return parse


def test_a_run_has_its_times_in_seconds_and_says_what_it_was_made_with(read_06):
    run = read_06(LOG_06)
    assert (run.stop_seconds, run.status, run.clock) == (40.625, "success", "mlperf")
    [evaluation] = run.evaluations
    assert (evaluation.epoch, evaluation.seconds, evaluation.quality) == (1.0, 21.0, 90.25)
    assert (run.benchmark, run.division, run.seed, run.batch_size) == ("resnet9", "closed", 41, 256)
    assert run.hyperparameters == {"opt_base_learning_rate": 0.5}
    assert (run.ledger.init, run.ledger.eval) == (10.0, 1.0)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # Metadata in the spelling of Python.
        ('{"status": "success"}', "{'lineno': 53, 'status': 'success'}"),
        ("90.25", '"90.25"'),
        ("90.25", '{"accuracy": 90.25}'),
    ],
)
def test_another_spelling_is_read_alike(read_06, old, new):
    assert old in LOG_06
    assert read_06(LOG_06.replace(old, new)) == read_06(LOG_06)


def offline(log, target):
    def refuse(error):
        raise error

    return read_log(
        [log.encode()], MLP06, name="r.txt", allowed={}, report=refuse, odd=refuse, target=target
    ).run


@pytest.mark.parametrize("stop", ["", STOP_06])
def test_minigo_stops_where_the_model_that_passed_was_saved(stop):
    """With or without a run_stop of the measuring, which comes later."""
    result = line("eval_result", 1558635920.5, iteration=1, timestamp=12.75)
    run = offline(HEAD + EVALUATIONS + result + stop, MINIGO)
    assert (run.stop_seconds, run.status) == (12.75, "success")
    assert [evaluation.quality for evaluation in run.evaluations] == [90.25]


@pytest.mark.parametrize("seconds", [0, -1.0, 41.0, "12.75", None])
def test_a_result_that_nothing_was_saved_for_stops_no_run(seconds):
    result = line("eval_result", 1558635920.5, timestamp=seconds)
    assert offline(HEAD + EVALUATIONS + result + STOP_06, MINIGO).stop_seconds == 40.625
    assert offline(HEAD + EVALUATIONS + result, MINIGO).stop_seconds is None


def test_nobody_else_can_name_the_moment_it_stopped(read_06):
    result = line("eval_result", 1558635920.5, iteration=1, timestamp=1.0)
    for archive in (False, True):
        assert (
            read_06(HEAD + EVALUATIONS + result + STOP_06, archive=archive).stop_seconds == 40.625
        )
    aborted = STOP_06.replace("success", "aborted")
    with pytest.raises(LogFormatError, match="a second run_stop"):
        offline(HEAD + EVALUATIONS + result + aborted, MINIGO)


@pytest.mark.parametrize(
    ("old", "new", "number", "code"),
    [
        ('"value": 90.25', '"value": 90.25"', 10, "bad_json"),
        ('"status": "success"', '"status": "aborted", "status": "success"', 12, "repeated_key"),
        (":::MLL 1558635921.125", ":::MLL 1558635900.5", 12, "times_decrease"),
        (":::MLL 1558635921.125", ":::MLL 1558635880.25", 12, "times_decrease"),
        ('"value": 90.25', '"value": "much"', 10, None),
        ('"resnet9"', '"other"', 1, "wrong_benchmark"),
        ('{"value": 90.25, "metadata": {"epoch_num": 1}}', "[1]", 10, "bad_line"),
        ('"value": 90.25', f'"x": "{"x" * 20_000}", "value": 90.25', 10, "long_line"),
    ],
)
def test_a_tampered_line_is_refused_also_in_an_archive(read_06, old, new, number, code):
    log = HEAD + EVALUATIONS + STOP_06
    assert log.count(old) == 1
    for archive in (False, True):
        with pytest.raises(LogFormatError) as caught:
            read_06(log.replace(old, new), archive=archive)
        assert (caught.value.line, caught.value.code) == (number, code)


def test_what_no_figure_needs_may_be_broken_in_an_archive_alone(read_06):
    for odd in (
        ":::MLL 1558635871.5 cache_clear: {value: true}\n",
        ':::MLL 1558635871.5 global_batch_size: {"value": 256, "metadata":[12:01:18] split\n',
    ):
        assert read_06(odd + LOG_06, archive=True).stop_seconds == 40.625
        with pytest.raises(LogFormatError) as caught:
            read_06(odd + LOG_06)
        assert (caught.value.line, caught.value.code) == (1, "bad_json")


def test_a_log_that_has_lines_of_the_later_format_is_one_of_it(read_06):
    hidden = ":::MLLOG " + json.dumps({"key": "seed", "time_ms": 1, "value": 1, "metadata": {}})
    with pytest.raises(LogFormatError, match="no run_start"):
        read_06(LOG_06 + hidden)
