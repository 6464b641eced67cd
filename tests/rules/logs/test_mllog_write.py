"""What is written is what is read: runs through MLPerf's keys and back."""

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.logs import parse_run_log
from finishline.rules.logs.mllog import write_run_log
from finishline.rules.scoring.run import Clock, Evaluation, Ledger, Run

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
def runs(draw: st.DrawFn) -> Run:
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
    return Run(
        name="run_0.log",
        clock="mlperf",
        evaluations=evaluations,
        status=draw(st.sampled_from(["success", "aborted", None])) if stops else None,
        stop_seconds=train + evaluation if stops else None,
        seed=draw(st.none() | st.integers(0, 2**63 - 1)),
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


def seconds_of(run: Run) -> list[float]:
    """Every time in a run, in a fixed order."""
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


def without_seconds(run: Run) -> Run:
    """The run with its times set to 0 where it has them, without its start and line numbers."""

    def zero(ledger: Ledger | None) -> Ledger | None:
        return None if ledger is None else Ledger()

    return replace(
        run,
        evaluations=tuple(
            replace(item, seconds=0.0, ledger=zero(item.ledger), line=None)
            for item in run.evaluations
        ),
        stop_seconds=None if run.stop_seconds is None else 0.0,
        ledger=zero(run.ledger),
        preparation_seconds=None if run.preparation_seconds is None else 0.0,
        started_ms=None,
    )


@given(run=runs(), started_at_ms=st.integers(0, STARTED_AT_MS))
@settings(max_examples=150)
def test_a_written_run_reads_back_to_the_microsecond(
    digits: Benchmark, run: Run, started_at_ms: int
) -> None:
    text = write_run_log(run, benchmark=digits, started_at_ms=started_at_ms)
    read = parse_run_log(text.encode(), name="run_0.log", benchmark=digits)
    assert without_seconds(read) == without_seconds(run)
    assert seconds_of(read) == pytest.approx(seconds_of(run), rel=0, abs=1e-6)


def test_a_run_under_a_second_keeps_its_microseconds(digits: Benchmark) -> None:
    evaluation = Evaluation(1.0, 0.812345, 97.6, 1198, Ledger(init=1.5, train=0.8, eval=0.012345))
    run = Run("run_0.log", "mlperf", (evaluation,), "success", 0.812346)
    text = write_run_log(run, benchmark=digits, started_at_ms=STARTED_AT_MS)
    read = parse_run_log(text.encode(), name="run_0.log", benchmark=digits)
    assert read.evaluations[0].seconds == pytest.approx(0.812345, abs=5e-7)
    assert read.stop_seconds == pytest.approx(0.812346, abs=5e-7)


def test_every_line_has_the_six_keys_of_mlperf(
    parse: Callable[..., Run], good_log: str, resnet9: Benchmark
) -> None:
    """Source: mlperf-logging, every line of the v5.1 results has exactly these."""
    text = write_run_log(parse(good_log), benchmark=resnet9, started_at_ms=1000)
    lines = [json.loads(line.removeprefix(":::MLLOG ")) for line in text.splitlines()]
    assert {frozenset(line) for line in lines} == {
        frozenset({"namespace", "time_ms", "event_type", "key", "value", "metadata"})
    }
    assert [line["key"] for line in lines] == [
        "init_start",
        "submission_benchmark",
        "submission_division",
        "submission_org",
        "submission_platform",
        "seed",
        "global_batch_size",
        "opt_base_learning_rate",
        "init_stop",
        "run_start",
        *("eval_start", "eval_accuracy", "eval_stop") * 2,
        "run_stop",
    ]
    assert [line["time_ms"] for line in lines[8:]] == [
        *(3000, 3000),
        *(13_000, 15_000, 15_000),
        *(25_000, 27_500, 27_500),
        28_000,
    ]


def test_finer_phases_fall_into_init_and_train(digits: Benchmark) -> None:
    ledger = Ledger(1.0, 2.0, 4.0, data=8.0, train=16.0, eval=32.0, checkpoint=64.0, idle=128.0)
    evaluation = Evaluation(1.0, 248.0, 50.0, 1198, ledger)
    run = Run("run_0.log", "mlperf", (evaluation,), "aborted", 248.0, ledger=ledger)
    text = write_run_log(run, benchmark=digits, started_at_ms=0)
    read = parse_run_log(text.encode(), name="run_0.log", benchmark=digits)
    assert read.evaluations[0].ledger == Ledger(init=7.0, train=216.0, eval=32.0)
    assert read.ledger == read.evaluations[0].ledger
    assert (read.stop_seconds, read.benchmark) == (248.0, "digits")


def test_a_run_on_another_clock_is_written_by_its_ledgers(digits: Benchmark) -> None:
    ledgers = (Ledger(init=3.0, train=10.0, eval=2.0), Ledger(init=3.0, train=20.0, eval=4.0))
    clock = Clock("dawnbench")
    evaluations = tuple(
        Evaluation(epoch, clock.seconds(ledger, division="open"), 90.0, ledger=ledger)
        for epoch, ledger in enumerate(ledgers, 1)
    )
    run = Run("run_0.log", "dawnbench", evaluations, "success", evaluations[-1].seconds)
    text = write_run_log(run, benchmark=digits, started_at_ms=0)
    read = parse_run_log(text.encode(), name="run_0.log", benchmark=digits)
    assert [evaluation.seconds for evaluation in read.evaluations] == [12.0, 24.0]
    assert [evaluation.ledger for evaluation in read.evaluations] == list(ledgers)
    assert read.stop_seconds == 24.0


def test_a_run_on_another_clock_without_a_ledger_cannot_be_written(digits: Benchmark) -> None:
    run = Run("run_0.log", "dawnbench", (Evaluation(1.0, 60.0, 94.0),))
    with pytest.raises(RuleError, match="dawnbench clock without a ledger"):
        write_run_log(run, benchmark=digits, started_at_ms=0)
