"""MLLOG files edited, written and published."""

import json
from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from finishline.rules.errors import LogFormatError, RuleError
from finishline.rules.logs import parse_run_log
from finishline.rules.logs.lines import MLLOG
from finishline.rules.logs.mllog import read_log
from finishline.rules.run import Clock, Evaluation, Ledger, Run
from worker.stopwatch import write_run_log


def line(key="seed", value="1", time_ms="5", metadata="{}", kind="POINT_IN_TIME"):
    """A line as MLPerf's own logger spells it. Its times have 13 digits."""
    whole, _, rest = time_ms.partition(".")
    time_ms = f"17{whole:0>11}" + (f".{rest}" if rest else "")
    return (
        f':::MLLOG {{"namespace": "", "time_ms": {time_ms}, "event_type": "{kind}", '
        f'"key": "{key}", "value": {value}, "metadata": {metadata}}}'
    )


def evaluation(began_ms, ended_ms, quality, metadata):
    return [
        line("eval_start", "null", began_ms, metadata, "INTERVAL_START"),
        line("eval_accuracy", quality, ended_ms, metadata),
        line("eval_stop", "null", ended_ms, metadata, "INTERVAL_END"),
    ]


LINES = [
    line("init_start", "null", "1000", kind="INTERVAL_START"),
    line("submission_benchmark", '"digits"', "1000"),
    line("global_batch_size", "64", "1000.5"),
    line("opt_base_learning_rate", "0.02", "1000.5"),
    line("run_start", "null", "2000.25", kind="INTERVAL_START"),
    line("note", "7", "2001"),
    *evaluation("3000", "3004.5", "15.8", '{"epoch_num":1.0,"samples_count":1152}'),
    *evaluation("4000.125", "4005", "62.25", '{"epoch_num":2.0,"samples_count":2304}'),
    *evaluation("5000", "5004", "97.75", '{"epoch_num":3.0}'),
    line("run_stop", "null", "5004", '{"status":"success"}', "INTERVAL_END"),
]


PIECES = st.sampled_from(
    ["", '"', ":", ",", "{", "}", "[", "]", "\\", "\n", "\r", " ", "0", "-", ".5", "e9", "1e400",
     "99999999999999999999", "null", "true", "NaN", "\x01", "\xe9", ":::MLLOG", ":::MLLOG {",
     '"key":"seed",', '"value":1', '},{"key":', "},\n{", '"metadata":', "eval_error", "x" * 20_000]
)  # fmt: skip


SHARES = st.floats(0, 1)


@st.composite
def edited_logs(draw):
    lines = list(LINES)
    for place, other in draw(st.lists(st.tuples(SHARES, SHARES), max_size=2)):
        moved = lines.pop(int(place * (len(lines) - 1)))
        if other < 0.8:
            lines[int(other * len(lines)) : 0] = [moved] * draw(st.sampled_from([1, 1, 2]))
    text = "\n".join(lines)
    for place, length, piece in draw(
        st.lists(st.tuples(SHARES, st.integers(0, 12), PIECES), max_size=3)
    ):
        start = int(place * len(text))
        text = text[:start] + piece + text[start + length :]
    return text.encode("latin-1") + draw(st.sampled_from([b"\n", b"\n", b""]))


def outcome(content, *, every_line):
    """The figures that a reader of archives finds in a log, and the errors it reports."""
    errors = []
    reading = read_log(
        [content],
        MLLOG,
        name="f",
        allowed={},
        report=errors.append,
        odd=lambda problem: None,
        every_line=every_line,
    )
    run = reading.run
    evaluations = [(e.epoch, e.samples, e.seconds, e.quality) for e in run.evaluations]
    figures = (run.stop_seconds, run.status, run.batch_size, run.preparation_seconds, evaluations)
    return reading.trusted, repr(figures), [(error.line, error.code) for error in errors]


@settings(max_examples=400)
@given(content=edited_logs())
# Two objects over two lines, a string over two lines, two values in one line.
@example(f'{line()[:-1]}\n:::MLLOG "z":1}}\n{line()},{line()[9:]}\n'.encode())
@example(f'{line(value="null", metadata="{")[:-1]}"x":"\n:::MLLOG {{"}}}}\n'.encode())
@example(f"{line()},{{}}\n".encode())
@example("\n".join([*LINES[:7], line("note", '":::MLLOG {}"'), *LINES[7:]]).encode())
@example("\n".join([*LINES[:7], LINES[7] + "}", *LINES[8:], ""]).encode())
@example("\n".join([*LINES[:8], line("run_stop", "null", "3500"), *LINES[8:], ""]).encode())
@example("\n".join(LINES).replace('"eval_accuracy"', '"eval_error"', 1).encode() + b"\n")
@example("\n".join(LINES).replace("note", "no\\u0074e").encode())
@example("\n".join(LINES).replace("note", "n" * 20_000).encode())
@example("\n".join(LINES).replace('"value": 7', '"key": "run_stop", "value": {').encode())
def test_lines_that_no_figure_needs_change_none(content):
    """An archive is scored without decoding them, and a server that imports it decodes them."""
    assert outcome(content, every_line=False) == outcome(content, every_line=True)


STARTED_AT_MS = 1_795_000_000_123  # In November 2026.


spans = st.floats(0.0, 5_000.0)


labels = st.text(st.characters(exclude_categories=("C", "Z")), max_size=200)


steps = st.tuples(
    spans,
    spans,
    st.floats(allow_nan=False, allow_infinity=False),
    st.one_of(
        st.tuples(st.floats(0.0, 1e6), st.none()),
        st.tuples(st.none(), st.integers(0, 2**53)),
        st.tuples(st.floats(0.0, 1e6), st.integers(0, 2**53)),
    ),
)


@st.composite
def runs(draw):
    """Runs as a log can tell them: preparation is init, the rest is train or eval."""
    measured = draw(st.lists(steps, max_size=12))
    with_ledger = draw(st.booleans()) or not measured
    init = draw(spans)
    trained = list(accumulate(train for train, _, _, _ in measured))
    evaluated = list(accumulate(evaluation for _, evaluation, _, _ in measured))
    evaluations = tuple(
        Evaluation(
            epoch=epoch,
            seconds=train + evaluation,
            quality=quality,
            samples=samples,
            ledger=Ledger(init=init, train=train, eval=evaluation) if with_ledger else None,
        )
        for train, evaluation, (_, _, quality, (epoch, samples)) in zip(
            trained, evaluated, measured, strict=True
        )
    )
    stops = draw(st.booleans())
    rest = draw(spans) if stops else 0.0
    train, evaluation = (trained or [0.0])[-1] + rest, (evaluated or [0.0])[-1]
    seed = draw(st.none() | st.integers(0, 2**63 - 1))
    return Run(
        name="run_0.log",
        clock="mlperf",
        evaluations=evaluations,
        status=draw(st.sampled_from(["success", "aborted", None])) if stops else None,
        stop_seconds=train + evaluation if stops else None,
        seed=seed,
        seeds=() if seed is None else (seed,),
        batch_size=draw(st.none() | st.integers(1, 2**40)),
        benchmark="digits",
        division=draw(st.sampled_from(["closed", "open", None])),
        organisation=draw(st.none() | labels),
        platform=draw(st.none() | labels),
        hyperparameters=draw(
            st.dictionaries(st.from_regex(r"opt_[a-z]{1,9}", fullmatch=True), st.floats(-1e9, 1e9))
        ),
        ledger=Ledger(init=init, train=train, eval=evaluation) if with_ledger else None,
        preparation_seconds=init,
    )


def seconds_of(run):
    ledgers = [run.ledger, *(evaluation.ledger for evaluation in run.evaluations)]
    return [
        *(evaluation.seconds for evaluation in run.evaluations),
        *(() if run.stop_seconds is None else (run.stop_seconds,)),
        *(() if run.preparation_seconds is None else (run.preparation_seconds,)),
        *(
            number
            for ledger in ledgers
            if ledger is not None
            for number in (ledger.init, ledger.train, ledger.eval, ledger.total())
        ),
    ]


def without_seconds(run):
    """The run with its times set to 0 where it has them, without line numbers."""

    def zero(ledger):
        return None if ledger is None else Ledger()

    return replace(
        run,
        evaluations=tuple(
            replace(item, seconds=0.0, ledger=zero(item.ledger), line=None)
            for item in run.evaluations
        ),
        stop_seconds=None if run.stop_seconds is None else 0.0,
        ledger=zero(run.ledger),
        seeds=(),
        preparation_seconds=None if run.preparation_seconds is None else 0.0,
    )


@given(run=runs(), started_at_ms=st.integers(0, STARTED_AT_MS))
@settings(max_examples=150)
def test_a_written_run_reads_back_to_the_microsecond(digits, run, started_at_ms):
    text = write_run_log(run, benchmark=digits, started_at_ms=started_at_ms)
    read = parse_run_log(text.encode(), name="run_0.log", benchmark=digits)
    assert without_seconds(read) == without_seconds(run)
    assert seconds_of(read) == pytest.approx(seconds_of(run), rel=0, abs=1e-6)


def test_every_line_has_the_six_keys_of_mlperf(parse, good_log, resnet9):
    """Source: mlperf-logging, every line of the v5.1 results has exactly these."""
    text = write_run_log(parse(good_log), benchmark=resnet9, started_at_ms=1000)
    lines = [json.loads(line.removeprefix(":::MLLOG ")) for line in text.splitlines()]
    keys = {"namespace", "time_ms", "event_type", "key", "value", "metadata"}
    assert all(set(line) == keys for line in lines)
    head = "init_start submission_benchmark submission_division submission_org submission_platform"
    head += " seed global_batch_size opt_base_learning_rate init_stop run_start"
    evaluated = ["eval_start", "eval_accuracy", "eval_stop"] * 2
    assert [line["key"] for line in lines] == [*head.split(), *evaluated, "run_stop"]
    times = [3000, 3000, 13_000, 15_000, 15_000, 25_000, 27_500, 27_500, 28_000]
    assert [line["time_ms"] for line in lines[8:]] == times


def test_finer_phases_fall_into_init_and_train(digits):
    ledger = Ledger(1.0, 2.0, 4.0, data=8.0, train=16.0, eval=32.0, checkpoint=64.0, idle=128.0)
    evaluation = Evaluation(1.0, 248.0, 50.0, 1198, ledger)
    run = Run("run_0.log", "mlperf", (evaluation,), "aborted", 248.0, ledger=ledger)
    text = write_run_log(run, benchmark=digits, started_at_ms=0)
    read = parse_run_log(text.encode(), name="run_0.log", benchmark=digits)
    assert read.evaluations[0].ledger == Ledger(init=7.0, train=216.0, eval=32.0)
    assert read.ledger == read.evaluations[0].ledger
    assert (read.stop_seconds, read.benchmark) == (248.0, "digits")


def test_a_run_on_another_clock_is_written_by_its_ledgers(digits):
    ledgers = (Ledger(init=3.0, train=10.0, eval=2.0), Ledger(init=3.0, train=20.0, eval=4.0))
    evaluations = tuple(
        Evaluation(epoch, Clock("dawnbench").seconds(ledger, division="open"), 90.0, ledger=ledger)
        for epoch, ledger in enumerate(ledgers, 1)
    )
    run = Run("run_0.log", "dawnbench", evaluations, "success", evaluations[-1].seconds)
    text = write_run_log(run, benchmark=digits, started_at_ms=0)
    read = parse_run_log(text.encode(), name="run_0.log", benchmark=digits)
    assert [evaluation.seconds for evaluation in read.evaluations] == [12.0, 24.0]
    assert [evaluation.ledger for evaluation in read.evaluations] == list(ledgers)
    assert read.stop_seconds == 24.0
    untold = replace(run, evaluations=(Evaluation(1.0, 60.0, 94.0),))
    with pytest.raises(RuleError, match="dawnbench clock without a ledger"):
        write_run_log(untold, benchmark=digits, started_at_ms=0)


def test_the_ledger_of_every_published_run_adds_up_to_its_time(archives, as_mlperf):
    root = archives / "mlperf"
    groups = json.loads((root / "expected_v51.json").read_text())["groups"]
    pairs = [(group["benchmark"], item) for group in groups for item in group["runs"]]
    assert len(pairs) == 189
    for name, item in pairs:
        content = (root / "v5.1" / item["file"]).read_bytes()
        run = parse_run_log(content, name=item["file"], benchmark=as_mlperf(name))
        assert run.hyperparameters.keys() >= {"opt_base_learning_rate"}, item["file"]
        for evaluation in run.evaluations:
            ledger = evaluation.ledger
            assert ledger.train + ledger.eval == pytest.approx(evaluation.seconds, abs=1e-6)
            assert min(ledger.init, ledger.train, ledger.eval) >= 0
        if run.stop_seconds is not None:
            assert run.stop_seconds / 60 == pytest.approx(item["tta_min"], rel=1e-12), item["file"]
            assert run.ledger.total() - run.ledger.init == pytest.approx(run.stop_seconds)
        if item["converged"]:
            assert run.evaluations[-1].quality == item["final_eval"]


REFUSED = {
    "division_traversal": (5, "submission_division"),
    "division_unknown": (5, "submission_division"),
    "benchmark_unknown": (3, "submission_benchmark"),
    "line_is_list": (65, None),
    "line_missing_keys": (65, "key"),
    "time_null": (65, "time_ms"),
    "deep_nest": (65, None),
    "eval_value_string": (65, "eval_accuracy"),
    "bad_json": (65, None),
    "nan_stop": (64, None),
    "stop_before_start": (64, "time_ms"),
    "stop_before_evals": (27, "eval_accuracy"),
    "two_run_stops": (27, "eval_accuracy"),
    "two_run_stops_early_eval": (28, "eval_accuracy"),
    "long_line_60k": (65, None),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_hostile_log_is_refused_with_its_line(archives, as_mlperf, name):
    content = (archives / "mlperf" / "hostile" / f"{name}.txt").read_bytes()
    with pytest.raises(LogFormatError) as caught:
        parse_run_log(content, name=f"{name}.txt", benchmark=as_mlperf("llama2_70b_lora"))
    assert (caught.value.line, caught.value.field) == REFUSED[name]
