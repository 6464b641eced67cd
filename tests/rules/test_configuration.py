"""One configuration whoever submitted it and however its settings are written."""

from dataclasses import replace

import pytest

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.submissions.claim import Claim, System
from finishline.rules.submissions.settings import configuration_of

CLAIM = Claim(
    benchmark_id="digits",
    division="closed",
    model="reference",
    framework="torch",
    system=System(name="box", hardware_class="cpu-2", processor="some"),
    run_files=("a.log",),
)


def test_defaults_written_out_are_the_same_configuration(digits: Benchmark) -> None:
    written = replace(
        CLAIM, model="mine", hyperparameters={n: float(v) for n, v in digits.defaults().items()}
    )
    key = configuration_of(digits, CLAIM).sha256
    assert configuration_of(digits, written).sha256 == key
    assert len(key) == 64


@pytest.mark.parametrize(
    "other",
    [
        {"division": "open"},
        {"hyperparameters": {"batch_size": 128}},
        {"system": System(name="box", hardware_class="cpu-4", processor="some")},
    ],
)
def test_another_division_class_or_setting_is_another(
    digits: Benchmark, other: dict[str, object]
) -> None:
    changed = replace(CLAIM, **other)  # type: ignore[arg-type]
    assert configuration_of(digits, changed).sha256 != configuration_of(digits, CLAIM).sha256


def test_zero_with_a_minus_is_the_same_configuration(digits: Benchmark) -> None:
    zero, minus = (replace(CLAIM, hyperparameters={"momentum": each}) for each in (0.0, -0.0))
    assert configuration_of(digits, minus).sha256 == configuration_of(digits, zero).sha256
