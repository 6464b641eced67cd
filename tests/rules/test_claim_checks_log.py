from collections.abc import Callable, Sequence

import pytest

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.scoring.run import Evaluation, Ledger, Run
from finishline.rules.submissions.claim_checks_log import check_log


def run_at(
    epochs: Sequence[float | None],
    *,
    seconds: Sequence[float] | None = None,
    samples: Sequence[int | None] | None = None,
    clock: str = "mlperf",
) -> Run:
    times = seconds or [10.0 * j for j in range(1, len(epochs) + 1)]
    counts = samples or [None] * len(epochs)
    rows = enumerate(zip(epochs, times, counts, strict=True), 20)
    evaluations = (Evaluation(e, s, 90.0, n, line=line) for line, (e, s, n) in rows)
    return Run("run_0.log", clock, tuple(evaluations))


def found_in(
    run: Run, benchmark: Benchmark, division: str = "closed"
) -> list[tuple[str, int | None]]:
    return [(v.code, v.line) for v in check_log(run, benchmark, division=division)]


def test_an_even_log_breaks_nothing(digits: Benchmark) -> None:
    run = run_at([1, 2, 3, 4, 5, 6], samples=[1152 * j for j in range(1, 7)])

    assert found_in(run, digits) == []


def test_a_replayed_closed_benchmark_wants_an_evaluation_after_each_epoch(
    digits: Benchmark,
) -> None:
    assert found_in(run_at([2, 3, 4]), digits) == [("evaluations_missing", 20)]
    assert found_in(run_at([1, 2, 4]), digits) == [("evaluations_missing", 22)]
    assert found_in(run_at([1, 2, 4]), digits, "open") == []
    assert found_in(run_at([0.5, 1, 1.5, 2]), digits) == []


def test_where_each_epoch_has_its_evaluation_none_hides_its_epoch(digits: Benchmark) -> None:
    """Else the last alone may tell an epoch, and nothing of the curve before it is judged."""
    samples = [1152 * j for j in range(1, 8)]

    hidden = run_at([None] * 6 + [7], samples=samples)
    assert found_in(hidden, digits) == [("evaluations_missing", 20)]
    one = run_at([1, 2, None, 4, 5, 6, 7], samples=samples)
    assert ("evaluations_missing", 22) in found_in(one, digits)
    assert found_in(run_at([None] * 7, samples=samples), digits) == []
    assert found_in(hidden, digits, "open") == []


def prepared(seconds: float | None, *, ledger: Ledger | None, clock: str = "mlperf") -> Run:
    evaluations = (Evaluation(1.0, 10.0, 94.0, ledger=ledger),)
    return Run("run_0.log", clock, evaluations, preparation_seconds=seconds)


def test_where_preparing_is_on_the_clock_a_log_tells_when_it_began(
    make_benchmark: Callable[..., Benchmark],
) -> None:
    counted, free = make_benchmark(clock="dawnbench"), make_benchmark(clock="mlperf")
    ledger = Ledger(train=10.0)

    (violation,) = check_log(prepared(None, ledger=ledger), counted, division="open")
    assert (violation.code, violation.field) == ("preparation_missing", "init_start")
    assert check_log(prepared(0.0, ledger=ledger), counted, division="open") == []
    assert check_log(prepared(None, ledger=ledger), free, division="open") == []
    assert check_log(prepared(None, ledger=None, clock="dawnbench"), counted, division="open") == []


def test_elsewhere_one_gap_among_even_steps_is_missing_evaluations(
    make_benchmark: Callable[..., Benchmark],
) -> None:
    benchmark = make_benchmark()

    gap = [4, 8, 12, 20, 24, 28, 32]
    assert found_in(run_at(gap), benchmark) == [("evaluations_missing", 23)]
    assert found_in(run_at([4, 8, 12, 16, 17, 18, 19]), benchmark) == []  # finer at the end
    assert found_in(run_at([None] * 7, samples=gap), benchmark) == [("evaluations_missing", 23)]
    assert found_in(run_at([4, 8, 16]), benchmark) == []  # too few to know what is even
    uneven = [4, 8, 12, 16, 17, 19, 28]
    assert found_in(run_at(uneven), benchmark) == []


def test_a_log_that_goes_back_is_told_once_for_each_place(digits: Benchmark) -> None:
    assert found_in(run_at([1, 2, 3, 2, 3, 4]), digits) == [("epochs_go_back", 23)]
    assert found_in(run_at([None] * 4, samples=[100, 200, 150, 250]), digits) == [
        ("epochs_go_back", 22)
    ]


def test_a_rounded_epoch_may_repeat_where_not_each_has_its_evaluation(
    digits: Benchmark, make_benchmark: Callable[..., Benchmark]
) -> None:
    assert found_in(run_at([1, 1, 2, 2]), make_benchmark()) == []
    assert found_in(run_at([1, 2, 2, 3]), digits) == [("epochs_go_back", 22)]


def test_samples_must_fit_the_epochs(digits: Benchmark) -> None:
    run = run_at([1, 2, 3, 4], samples=[1152, 2304, 4608, 4608 + 1])

    assert found_in(run, digits) == [("samples_contradict_epochs", 22)]


@pytest.mark.parametrize("step", [0.0, 1.9])
def test_no_stretch_takes_less_than_a_fifth_of_the_usual_time(
    digits: Benchmark, step: float
) -> None:
    times = [10.0, 20.0, 20.0 + step, 30.0 + step, 40.0 + step, 50.0 + step]

    assert found_in(run_at([1, 2, 3, 4, 5, 6], seconds=times), digits) == [
        ("time_steps_differ", 22)
    ]


@pytest.mark.parametrize(("late", "lines"), [(0.049, []), (0.051, [22])])
def test_the_stamp_of_a_line_may_be_as_late_as_two_clocks_may_differ(
    digits: Benchmark, late: float, lines: list[int]
) -> None:
    times = [0.06, 0.12 + late, 0.18, 0.24, 0.30, 0.36]

    found = found_in(run_at([1, 2, 3, 4, 5, 6], seconds=times), digits)
    assert found == [("time_steps_differ", line) for line in lines]


def test_a_host_may_be_slow_for_a_while(digits: Benchmark) -> None:
    times = [10.0, 20.0, 120.0, 130.0, 140.0, 142.5]

    assert found_in(run_at([1, 2, 3, 4, 5, 6], seconds=times), digits) == []


def test_a_dawnbench_curve_is_held_to_its_order_alone(
    make_benchmark: Callable[..., Benchmark],
) -> None:
    times = [0.0, 0.0, 1.0, 2.0, 3.0, 4.0]
    good = run_at([1, 1, 2, 5, 6, 7], seconds=times, clock="dawnbench")
    bad = run_at([1, 2, 1], clock="dawnbench")

    at_once = [10.0, 20.0, 20.001, 30.0, 40.0, 50.0]
    assert found_in(good, make_benchmark()) == []
    assert (
        found_in(run_at([1, 2, 3, 4, 5, 6], seconds=at_once, clock="dawnbench"), make_benchmark())
        == []
    )
    assert found_in(bad, make_benchmark()) == [("epochs_go_back", 22)]


@pytest.mark.parametrize("samples", [[None] * 6, [100, None, 300, 400, 500, 600]])
def test_a_log_that_tells_neither_epochs_nor_samples_is_held_to_no_steps(
    make_benchmark: Callable[..., Benchmark], samples: list[int | None]
) -> None:
    at_once = [10.0, 20.0, 30.0, 30.001, 40.0, 50.0]

    assert found_in(run_at([None] * 6, seconds=at_once, samples=samples), make_benchmark()) == []


@pytest.mark.parametrize(
    ("seconds", "lines"),
    [
        ([10.0], []),
        ([10.0, 20.0, 30.0, 30.001], []),  # three steps are too few to know the usual one
        ([10.0, 20.0, 30.0, 40.0, 40.001], [24]),
    ],
)
def test_the_usual_time_of_a_step_is_known_from_four(
    digits: Benchmark, seconds: list[float], lines: list[int]
) -> None:
    run = run_at([float(j) for j in range(1, len(seconds) + 1)], seconds=seconds)

    assert found_in(run, digits) == [("time_steps_differ", line) for line in lines]
