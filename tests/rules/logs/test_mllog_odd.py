"""What published logs have out of order: read past in an archive, refused from anybody else."""

from collections.abc import Callable

import pytest

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import LogFormatError
from finishline.rules.logs.mllog import parse_mllog, read_mllog_chunks
from finishline.rules.scoring.run import Run

Tamper = Callable[[str, str], str]
STOP = '"time_ms": 28000, "event_type": "INTERVAL_END", "key": "run_stop"'
LAST = '"time_ms": 28000,'


def line(key: str, time_ms: int, value: object = "null", metadata: str = "{}") -> str:
    return (
        f':::MLLOG {{"time_ms": {time_ms}, "event_type": "POINT_IN_TIME", "key": "{key}",'
        f' "value": {value}, "metadata": {metadata}}}\n'
    )


@pytest.fixture
def published(resnet9: Benchmark) -> Callable[[str], Run]:
    """Reads a log as one of an archive, once it was seen that nobody else may hand it in."""

    def read(log: str) -> Run:
        with pytest.raises(LogFormatError):
            parse_mllog(log.encode(), name="r", benchmark=resnet9)
        return parse_mllog(log.encode(), name="r", benchmark=resnet9, archive=True)

    return read


def figures(run: Run) -> tuple[object, ...]:
    qualities = [evaluation.quality for evaluation in run.evaluations]
    return run.stop_seconds, run.status, qualities, run.batch_size


HONEST = (25.0, "success", [90.0, 94.5], 512)


@pytest.mark.parametrize(
    ("where", "added"),
    [
        ("after", line("eval_accuracy", 28_100, 99.0, '{"epoch_num": 3}')),
        ("before", line("eval_accuracy", 900, 99.0, '{"epoch_num": 0}')),
        ("before", line("seed", 900, -17)),
        ("before", line("seed", 900, 1621233964.65)),
        ("before", line("opt_base_learning_rate", 900, 0.5)),
        ("before", line("", 900, '"Alice"')),
        ("after", ':::MLLOG {"time_ms": 28100, "key": "eval_acc'),
    ],
)
def test_a_line_that_no_figure_rests_on_changes_none(
    published: Callable[[str], Run], good_log: str, where: str, added: str
) -> None:
    run = published(good_log + added if where == "after" else added + good_log)
    assert figures(run) == HONEST


def test_a_target_reached_after_run_stop_is_not_reached(
    published: Callable[[str], Run], good_log: str
) -> None:
    """A run that stops before its evaluation gains nothing by it."""
    first, last = good_log.index("0: :::MLLOG", good_log.index("train_loss")), good_log.rindex("0:")
    run = published(good_log[:first] + good_log[last:] + good_log[first:last])
    assert [evaluation.quality for evaluation in run.evaluations] == [90.0]


def test_a_seed_below_zero_is_that_of_its_run(
    published: Callable[[str], Run], tamper: Tamper
) -> None:
    assert published(tamper('"seed", "value": 7', '"seed", "value": -7')).seed == -7
    assert published(tamper('"seed", "value": 7', '"seed", "value": null')).seed is None
    for huge in (2**63, -(2**63)):
        assert published(tamper('"seed", "value": 7', f'"seed", "value": {huge}')).seed is None


@pytest.mark.parametrize(
    "old",
    [
        '"time_ms": 1000, "event_type": "INTERVAL_START", "key": "init',
        '3000, "event_type": "INTERVAL_END", "key": "init',
    ],
)
def test_a_start_earlier_than_its_preparation_leaves_no_ledger(
    published: Callable[[str], Run], tamper: Tamper, old: str
) -> None:
    run = published(tamper(old, old.replace("1000", "900000").replace("3000", "900000")))
    assert figures(run) == HONEST
    assert run.ledger is None
    assert {evaluation.ledger for evaluation in run.evaluations} == {None}


def test_a_phase_out_of_order_leaves_no_ledger(
    published: Callable[[str], Run], tamper: Tamper
) -> None:
    run = published(tamper('25000, "event_type": "INTERVAL_START"', '9000, "event_type": "X"'))
    assert (figures(run), run.ledger) == (HONEST, None)


def test_a_run_stops_with_its_last_evaluation_but_for_rounding(
    published: Callable[[str], Run], tamper: Tamper, resnet9: Benchmark
) -> None:
    early = tamper(STOP, STOP.replace("28000", "27490"))
    assert figures(published(early)) == (24.49, *HONEST[1:])
    too_early = tamper(STOP, STOP.replace("28000", "27489"))
    with pytest.raises(LogFormatError, match="run_stop at 27489 ms after"):
        parse_mllog(too_early.encode(), name="r", benchmark=resnet9, archive=True)


@pytest.mark.parametrize("evaluated", ["", line("eval_accuracy", 3000, 95.0, '{"epoch_num": 0}')])
def test_no_rounding_makes_a_run_stop_before_it_started(
    good_log: str, resnet9: Benchmark, evaluated: str
) -> None:
    head = good_log[: good_log.index("0: :::MLLOG", good_log.index("run_start"))]
    log = head + evaluated + line("run_stop", 2995, metadata='{"status": "success"}')
    with pytest.raises(LogFormatError, match="run_stop at 2995 ms after"):
        parse_mllog(log.encode(), name="r", benchmark=resnet9, archive=True)


def test_a_run_that_ended_before_it_started_did_not_finish(
    published: Callable[[str], Run], good_log: str, resnet9: Benchmark
) -> None:
    run = published(good_log[: good_log.index("0: :::MLLOG", good_log.index("init_stop"))])
    assert (run.evaluations, run.stop_seconds, run.status) == ((), None, None)
    with pytest.raises(LogFormatError, match="no run_start"):
        parse_mllog(b"Killed", name="r", benchmark=resnet9, archive=True)
    unstarted = good_log.replace('"run_start"', '"started"').encode()
    with pytest.raises(LogFormatError, match="run_stop before run_start"):
        parse_mllog(unstarted, name="r", benchmark=resnet9, archive=True)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"train_loss"', '"run_start"'),
        ('"train_loss"', '"run_stop"'),
        ('"train_loss"', '"init_start"'),
        ('"time_ms": 27500, "event_type": "POINT', '"time_ms": 14000, "event_type": "POINT'),
        (LAST, '"time_ms": 2000,'),
        ('"value": 94.5', '"value": {"top1": 94.5}'),
        ('"value": 512', '"value": -512'),
    ],
)
def test_what_a_figure_rests_on_is_refused_in_an_archive_too(
    published: Callable[[str], Run], tamper: Tamper, old: str, new: str
) -> None:
    with pytest.raises(LogFormatError):
        published(tamper(old, new))


def test_where_nothing_is_known_of_a_benchmark_a_table_has_its_main_quality_first() -> None:
    log = line("run_start", 1000) + line(
        "eval_accuracy", 2000, '{"top5": 93.5, "top1": 76, "note": "x"}', '{"epoch_num": 1}'
    )
    problems: list[LogFormatError] = []
    read = read_mllog_chunks([log.encode()], name="r", allowed={}, report=problems.append)
    [evaluation] = read.run.evaluations
    assert (evaluation.quality, evaluation.others) == (93.5, {"top1": 76.0})
    assert [problem.code for problem in problems] == ["no_benchmark"]
    empty = log.replace('{"top5": 93.5, "top1": 76, "note": "x"}', "{}")
    read = read_mllog_chunks([empty.encode()], name="r", allowed={}, report=problems.append)
    assert (read.run.evaluations, problems[1].field) == ((), "value")
