"""MLLOG files: regular ones, and odd ones that are read or refused."""

import time

import pytest

from finishline.rules.errors import LogFormatError
from finishline.rules.logs.lines import MLLOG
from finishline.rules.logs.mllog import parse_mllog, read_log
from finishline.rules.run import Evaluation, Ledger


def line(key, time_ms, value="null", metadata="{}"):
    return (
        f':::MLLOG {{"time_ms": {time_ms}, "event_type": "POINT_IN_TIME", "key": "{key}",'
        f' "value": {value}, "metadata": {metadata}}}\n'
    )


def read_tolerantly(log, problems):
    report = problems.append
    return read_log([log.encode()], MLLOG, name="r", allowed={}, report=report, odd=report)


def refused(parse, content):
    with pytest.raises(LogFormatError) as caught:
        parse(content)
    assert caught.value.file == "run_0.log"
    assert caught.value.expected
    return caught.value


def qualities(run):
    return [evaluation.quality for evaluation in run.evaluations]


def test_a_run_is_read_whole_and_its_seconds_count_from_run_start(parse, good_log):
    run = parse(good_log)
    assert run.evaluations == (
        Evaluation(1.0, 12.0, 90.0, 50_000, Ledger(init=2.0, train=10.0, eval=2.0), line=13),
        Evaluation(2.0, 24.5, 94.5, 100_000, Ledger(init=2.0, train=20.0, eval=4.5), line=17),
    )
    assert (run.status, run.stop_seconds, run.clock) == ("success", 25.0, "mlperf")
    assert run.ledger == Ledger(init=2.0, train=20.5, eval=4.5)
    assert (run.benchmark, run.division) == ("resnet9", "closed")
    assert (run.organisation, run.platform) == ("Alice", "1xV100")
    assert (run.seed, run.batch_size) == (7, 512)
    assert run.hyperparameters == {"opt_base_learning_rate": 0.4}


def test_a_log_that_stops_in_the_middle_has_no_status(parse, good_log):
    run = parse(good_log[: good_log.index("0: :::MLLOG", good_log.index("train_loss"))])
    assert (run.status, run.stop_seconds) == (None, None)
    assert qualities(run) == [90.0]
    assert run.ledger == Ledger(init=2.0, train=10.0, eval=2.0)


HIDDEN = '"value": 0.2, "metadata": {"x": "global_batch_size", "samples_count": 10000000}'


@pytest.mark.parametrize(
    "change",
    [
        lambda log: log.replace("\n", "\r\n").encode().replace(b"loading", b"\xff\xfe\x00load"),
        lambda log: log.encode().replace(b"t.py", b"caf\xe9.py"),
        lambda log: log.replace('"value": 0.2, "metadata": {}', HIDDEN),
        # Lines of other ranks.
        lambda log: log + line("tracked_stats", 500, '{"throughput": 3.1}') + line("block_stop", 2),
        lambda log: log + line("global_batch_size", 1000, 512),
    ],
    ids=["bytes", "latin-1", "hidden name", "late lines", "repeated setting"],
)
def test_what_no_figure_rests_on_may_differ(parse, good_log, change):
    assert change(good_log) != good_log
    assert parse(change(good_log)) == parse(good_log)


PLACE = '"epoch_num": 2, "samples_count": 100000'
RANKS = line("init_start", 400) + line("init_start", 900)


@pytest.mark.parametrize(
    ("old", "new", "figures"),
    [
        ('"success"', '"aborted"', {"status": "aborted"}),
        ('{"status": "success"}', "{}", {"status": None, "stop_seconds": 25.0}),
        ("eval_accuracy", "eval_error", {"last.quality": 94.5}),
        (PLACE, '"samples_count": 1e5', {"last.epoch": None, "last.samples": 100_000}),
        (PLACE, '"epoch_num": 1.75', {"last.epoch": 1.75, "last.samples": None}),
        ("init_start", "note", {"preparation_seconds": None}),
        # Preparation counts from the first of all ranks, and each may repeat eval_start.
        ("loading", RANKS, {"ledger.init": 2.6, "preparation_seconds": 2.6}),
        ("eval_stop", "note", {"last.ledger": Ledger(init=2.0, train=20.0, eval=4.5)}),
        ("eval_st", "note_", {"last.ledger": None, "ledger": None, "preparation_seconds": 2.0}),
    ],
)
def test_an_odd_log_has_these_figures(parse, good_log, old, new, figures):
    assert old in good_log
    run = parse(good_log.replace(old, new))
    for name, value in figures.items():
        found = run.evaluations[-1] if name.startswith("last.") else run
        for part in name.removeprefix("last.").split("."):
            found = getattr(found, part)
        assert found == (pytest.approx(value) if isinstance(value, float) else value), name


def test_ranks_may_repeat_eval_start(parse, good_log):
    first = good_log.index("0: :::MLLOG", good_log.index("eval_start"))
    log = good_log[:first] + line("eval_start", 14_000) + good_log[first:]
    assert parse(log).ledger == parse(good_log).ledger


def test_each_rank_may_log_a_seed_of_its_own(good_log, parse):
    """Source: training_rules.adoc, "Random numbers"; eight ranks of published v4.1 runs did."""
    log = good_log + line("seed", 1000, 8) + line("seed", 1000, 7) + line("seed", 1000, 9)
    assert parse(log).seed == 7
    problems = []
    reading = read_tolerantly(log, problems)
    assert (reading.run.seeds, problems) == ((7, 8, 9), [])


def test_in_an_archive_a_broken_line_is_left_out_if_no_figure_needs_it(resnet9, good_log):
    """Ranks of published v4.1 runs wrote over each other's lines."""
    at = good_log.index("0: :::MLLOG", good_log.index("loading"))
    stamp = 1_727_670_929_104
    broken = f'0: :::MLLOG {{"namespace": "", "time_ms": {stamp}, "event_type": "POINT_IN_TIME", '
    needless = broken + '"key": "opt_name", "value": "adamw"ACMEorkspace/sd.py"}}\n'
    log = (good_log[:at] + needless + good_log[at:]).encode()
    run = parse_mllog(log, name="r", benchmark=resnet9, archive=True)
    assert (run.stop_seconds, qualities(run)) == (25.0, [90.0, 94.5])
    with pytest.raises(LogFormatError):
        parse_mllog(log, name="r", benchmark=resnet9)
    for key in ("eval_accuracy", "run_stop"):
        needed = needless.replace("opt_name", key)
        content = (good_log[:at] + needed + good_log[at:]).encode()
        with pytest.raises(LogFormatError) as caught:
            parse_mllog(content, name="r", benchmark=resnet9, archive=True)
        assert (caught.value.line, caught.value.code) == (10, "bad_json")
    began = time.process_time()
    many = (good_log[:at] + 50_000 * needless + good_log[at:]).encode()
    again = parse_mllog(many, name="r", benchmark=resnet9, archive=True)
    assert qualities(again) == [90.0, 94.5]
    # Each of them was looked for from the first line on, which takes minutes.
    assert time.process_time() - began < 30


def test_a_log_may_be_cut_off_in_an_archive_and_not_end_at_nan(resnet9, good_log):
    start = good_log.rindex(":::MLLOG")
    cut = good_log[: good_log.index('"status"', start)]
    run = parse_mllog(cut.encode(), name="r", benchmark=resnet9, archive=True)
    assert (run.stop_seconds, len(run.evaluations)) == (None, 2)
    for number in ("NaN", "-Infinity", "1e999", "nan"):
        head, _, tail = good_log[start:].partition('"time_ms": ')
        log = good_log[:start] + f'{head}"time_ms": {number},{tail.partition(",")[2]}'
        with pytest.raises(LogFormatError) as caught:
            parse_mllog(log.encode(), name="r", benchmark=resnet9, archive=True)
        assert caught.value.code == "not_finite"


def test_a_log_of_another_benchmark_or_of_none_is_refused(parse, tamper):
    error = refused(parse, tamper('"resnet9"', '"resnet50"'))
    assert (error.line, error.field) == (2, "submission_benchmark")
    assert error.expected == "resnet9 or cifar10"
    unnamed = refused(parse, tamper('"submission_benchmark"', '"x"'))
    assert (unnamed.code, unnamed.field) == ("no_benchmark", "submission_benchmark")


@pytest.mark.parametrize(
    ("old", "new", "number", "field"),
    [
        # Times that are none, or that go back.
        ('"time_ms": 28000', '"time_ms": 1e999', 19, None),
        ('"time_ms": 28000', '"time_ms": 1e300', 19, "time_ms"),
        ('"time_ms": 28000', '"time_ms": true', 19, "time_ms"),
        ('"time_ms": 28000', '"time_ms": "28000"', 19, "time_ms"),
        ('"time_ms": 25000', '"time_ms": 14000', 16, "time_ms"),
        ('3000, "event_type": "INTERVAL_END"', '4000, "event_type": ""', 11, "time_ms"),
        ('1000, "event_type": "INTERVAL_START"', '9000, "event_type": ""', 11, "time_ms"),
        # Qualities and counts that are none.
        ('"value": 94.5', '"value": true', 17, "value"),
        ('"value": 94.5', '"value": null', 17, "value"),
        ('"epoch_num": 2, "samples_count": 100000', '"epoch_num": -2', 17, "metadata.epoch_num"),
        ('"epoch_num": 2, "samples_count": 100000', '"epoch_num": "2"', 17, "metadata.epoch_num"),
        ('"epoch_num": 2, "samples', '"epoch_num": 3e18, "samples', 17, "metadata.epoch_num"),
        ('"epoch_num": 2, "samples_count": 100000', '"x": 2', 17, "metadata"),
        ('"samples_count": 100000', '"samples_count": 1.5', 17, "metadata.samples_count"),
        ('"samples_count": 100000', '"samples_count": 1e300', 17, "metadata.samples_count"),
        ('{"epoch_num": 2, "samples_count": 100000}', "[2]", 17, "metadata"),
        ('{"status": "success"}', '{"status": 1}', 19, "metadata.status"),
        # Settings that are none, or that change.
        *(
            ('"closed"', f'"{division}"', 3, "submission_division")
            for division in ("open ", "Closed", "../../closed", "", "clo\\u0000sed")
        ),
        ('"seed", "value": 7', '"global_batch_size", "value": 7', 7, "global_batch_size"),
        ('"seed", "value": 7', '"seed", "value": 7.5', 6, "seed"),
        ('"seed", "value": 7', '"seed", "value": -1', 6, "seed"),
        ('"seed", "value": 7', '"seed", "value": "7"', 6, "seed"),
        ('"value": 512', '"value": 0', 7, "global_batch_size"),
        ('"value": 512', '"value": null', 7, "global_batch_size"),
        ('"Alice"', '["Alice"]', 4, "submission_org"),
        ('"resnet9"', "9", 2, "submission_benchmark"),
        # Lines that are none, or out of order.
        ('"train_loss"', '"run_start"', 15, "run_start"),
        ('"train_loss"', '"init_start"', 15, "init_start"),
        ('"run_start"', '"x"', 13, "eval_accuracy"),
        ('"eval_accuracy", "value": 94.5', '"eval_error", "value": 94.5', 17, "eval_error"),
        ('"key": "train_loss"', '"key": 5', 15, "key"),
        ('"key": "train_loss"', '"key": ""', 15, "key"),
        # Two readings of one line.
        ('"value": 94.5', '"value": 94.5, "value": 10', 17, "value"),
        ('"key": "train_loss"', '"key": "run_stop", "key": "train_loss"', 15, "key"),
        ('"key": "train_loss"', '"\\u006bey": "run_stop", "key": "train_loss"', 15, "key"),
        ('"status": "success"', '"status": "aborted", "status": "success"', 19, "status"),
    ],
)
def test_a_tampered_line_is_refused_with_its_number(parse, tamper, old, new, number, field):
    error = refused(parse, tamper(old, new))
    assert (error.line, error.field) == (number, field)


@pytest.mark.parametrize(
    ("added", "field"),
    [
        (line("global_batch_size", 1000, 128), "global_batch_size"),
        (line("submission_org", 1000, '"Bob"'), "submission_org"),
        (line("run_stop", 29_000), "run_stop"),
        (line("eval_accuracy", 28_000, 99.0, '{"epoch_num": 3}'), "eval_accuracy"),
        ("x" * 2_000_000 + "\n", None),
        (line("note", 1, '"' + "A" * 60_000 + '"'), None),
    ],
    ids=["batch size", "organisation", "run_stop", "evaluation", "line", "MLLOG line"],
)
def test_a_line_behind_a_run_is_refused_with_its_number(parse, good_log, added, field):
    error = refused(parse, good_log + added)
    assert (error.line, error.field) == (20, field)


def test_more_hyperparameters_than_anyone_has_and_names_that_hide_are_refused(parse, good_log):
    many = "".join(line(f"opt_{index}", 1000, index) for index in range(201))
    turned = line("opt_\\u202e", 1000, 1)
    changed = line("opt_base_learning_rate", 1, 0.5)
    for added, field in ((many, "opt_199"), (turned, "opt_\u202e"), (changed, "opt_base_")):
        log = good_log.replace("loading the data, 50,000 images\n", added)
        assert refused(parse, log).field.startswith(field)
    assert refused(parse, "MLLOG {}\n").code == "no_run_start"


STOP = '"time_ms": 28000, "event_type": "INTERVAL_END", "key": "run_stop"'


@pytest.fixture
def published(resnet9):
    """Reads a log as one of an archive, once it was seen that nobody else may hand it in."""

    def read(log):
        with pytest.raises(LogFormatError):
            parse_mllog(log.encode(), name="r", benchmark=resnet9)
        return parse_mllog(log.encode(), name="r", benchmark=resnet9, archive=True)

    return read


def figures(run):
    return run.stop_seconds, run.status, qualities(run), run.batch_size


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
def test_a_line_that_no_figure_rests_on_changes_none(published, good_log, where, added):
    run = published(good_log + added if where == "after" else added + good_log)
    assert figures(run) == HONEST


def test_a_target_reached_after_run_stop_is_not_reached(published, good_log):
    """A run that stops before its evaluation gains nothing by it."""
    first, last = good_log.index("0: :::MLLOG", good_log.index("train_loss")), good_log.rindex("0:")
    run = published(good_log[:first] + good_log[last:] + good_log[first:last])
    assert qualities(run) == [90.0]


def test_a_seed_below_zero_is_that_of_its_run(published, tamper):
    assert published(tamper('"seed", "value": 7', '"seed", "value": -7')).seed == -7
    assert published(tamper('"seed", "value": 7', '"seed", "value": null')).seed is None
    for huge in (2**63, -(2**63)):
        assert published(tamper('"seed", "value": 7', f'"seed", "value": {huge}')).seed is None


@pytest.mark.parametrize(
    ("old", "new", "evaluated"),
    [
        ('"time_ms": 1000, "event_type": "INTERVAL_START", "key": "init',
         '"time_ms": 900000, "event_type": "INTERVAL_START", "key": "init', {None}),
        ('3000, "event_type": "INTERVAL_END", "key": "init',
         '900000, "event_type": "INTERVAL_END", "key": "init', {None}),
        ('25000, "event_type": "INTERVAL_START"', '9000, "event_type": "X"', None),
    ],
)  # fmt: skip
def test_a_phase_out_of_order_leaves_no_ledger(published, tamper, old, new, evaluated):
    run = published(tamper(old, new))
    assert (figures(run), run.ledger) == (HONEST, None)
    if evaluated is not None:
        assert {evaluation.ledger for evaluation in run.evaluations} == evaluated


def test_a_run_stops_with_its_last_evaluation_but_for_rounding(published, tamper, resnet9):
    early = tamper(STOP, STOP.replace("28000", "27490"))
    assert figures(published(early)) == (24.49, *HONEST[1:])
    too_early = tamper(STOP, STOP.replace("28000", "27489"))
    with pytest.raises(LogFormatError, match="run_stop at 27489 ms after"):
        parse_mllog(too_early.encode(), name="r", benchmark=resnet9, archive=True)


def test_a_run_that_ended_before_it_started_did_not_finish(published, good_log, resnet9):
    run = published(good_log[: good_log.index("0: :::MLLOG", good_log.index("init_stop"))])
    assert (run.evaluations, run.stop_seconds, run.status) == ((), None, None)
    head = good_log[: good_log.index("0: :::MLLOG", good_log.index("run_start"))]
    stopped = line("run_stop", 2995, metadata='{"status": "success"}')
    early = line("eval_accuracy", 3000, 95.0, '{"epoch_num": 0}')
    for log, message in (
        ("Killed", "no run_start"),
        (good_log.replace('"run_start"', '"started"'), "run_stop before run_start"),
        # No rounding makes a run stop before it started.
        (head + stopped, "run_stop at 2995 ms after"),
        (head + early + stopped, "run_stop at 2995 ms after"),
    ):
        with pytest.raises(LogFormatError, match=message):
            parse_mllog(log.encode(), name="r", benchmark=resnet9, archive=True)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"train_loss"', '"run_start"'),
        ('"train_loss"', '"run_stop"'),
        ('"train_loss"', '"init_start"'),
        ('"time_ms": 27500, "event_type": "POINT', '"time_ms": 14000, "event_type": "POINT'),
        ('"time_ms": 28000,', '"time_ms": 2000,'),
        ('"value": 94.5', '"value": {"top1": 94.5}'),
        ('"value": 512', '"value": -512'),
    ],
)
def test_what_a_figure_rests_on_is_refused_in_an_archive_too(published, tamper, old, new):
    with pytest.raises(LogFormatError):
        published(tamper(old, new))


def test_where_nothing_is_known_of_a_benchmark_a_table_has_its_main_quality_first():
    log = line("run_start", 1000) + line(
        "eval_accuracy", 2000, '{"top5": 93.5, "top1": 76, "note": "x"}', '{"epoch_num": 1}'
    )
    problems = []
    read = read_tolerantly(log, problems)
    [evaluation] = read.run.evaluations
    assert (evaluation.quality, evaluation.others) == (93.5, {"top1": 76.0})
    assert [problem.code for problem in problems] == ["no_benchmark"]
    empty = log.replace('{"top5": 93.5, "top1": 76, "note": "x"}', "{}")
    read = read_tolerantly(empty, problems)
    assert (read.run.evaluations, problems[1].field) == ((), "value")
