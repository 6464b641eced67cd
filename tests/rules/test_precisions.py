"""The effect of precision on epochs and seconds to the target, beside scipy's t-tests."""

import math

import pytest
from scipy import stats

from finishline.rules.benchmarks.precisions import PrecisionRun, precision_effects

TARGET_AFTER = {"fp32": [7, 8, 8, 7, 9, 8], "bf16": [9, 10, 9, 11, 10]}


def runs(precision, *, pace, hardware_class):
    """Runs that reach 97.5 after so many epochs of twelve."""
    return [
        PrecisionRun(
            precision,
            64,
            tuple(98.0 if epoch >= at else 90.0 for epoch in range(1, 13)),
            tuple(pace * epoch for epoch in range(1, 13)) if hardware_class else (),
            hardware_class,
        )
        for at in TARGET_AFTER[precision]
    ]


def test_epochs_compare_with_all_base_runs_and_seconds_within_a_class(digits):
    missed = PrecisionRun("bf16", 64, (90.0,) * 12, (1.0,) * 12, "cpu-a")
    known = [
        *runs("bf16", pace=0.5, hardware_class="cpu-a"),
        missed,
        *runs("fp32", pace=1.0, hardware_class="cpu-a"),
        *runs("fp32", pace=9.0, hardware_class=None),
    ]
    file, plain, mixed = precision_effects(digits, known, base="fp32")
    assert [(e.hardware_class, e.precision) for e in (file, plain, mixed)] == [
        (None, "fp32"),
        ("cpu-a", "fp32"),
        ("cpu-a", "bf16"),
    ]
    assert (file.seconds, plain.epochs and plain.epochs.ratio) == (None, None)
    assert (mixed.runs, mixed.reached) == (6, 5)
    assert mixed.epochs is not None
    assert mixed.seconds is not None

    narrow, wide = TARGET_AFTER["bf16"], TARGET_AFTER["fp32"]
    assert mixed.epochs.interval is not None
    assert mixed.epochs.ratio_interval is not None
    by_scipy = stats.ttest_1samp(narrow, 0).confidence_interval(0.95)
    found = mixed.epochs.interval
    assert (found.low, found.high) == pytest.approx((by_scipy.low, by_scipy.high))
    for amount, own, other in (
        (mixed.epochs, narrow, wide * 2),
        (mixed.seconds, [0.5 * n for n in narrow], [float(n) for n in wide]),
    ):
        logs = [math.log(n) for n in own], [math.log(n) for n in other]
        ends = stats.ttest_ind(*logs, equal_var=False).confidence_interval(0.95)
        assert amount.ratio_interval is not None
        bounds = (amount.ratio_interval.low, amount.ratio_interval.high)
        assert bounds == pytest.approx((math.exp(ends.low), math.exp(ends.high)))
