import math

import numpy as np
import pytest

from rules.prediction import all_below_probability, upper_deviations
from rules.significance import Reference, reference_of


def test_one_further_figure_is_students_t() -> None:
    """Of n = 10 figures t(0.95, 9) = 1.833 (any table), widened by the mean's own error."""
    assert upper_deviations(10, alpha=0.05, figures=1) == pytest.approx(
        1.8331 * math.sqrt(1.1), abs=1e-4
    )
    assert upper_deviations(10, alpha=0.5, figures=10) == upper_deviations(
        10, alpha=0.05, figures=1
    )


def test_the_probability_of_one_figure_is_that_of_students_t() -> None:
    reference = Reference(20.0, 2.0, 10)
    limit = 20.0 - 1.8331 * math.sqrt(1.1) * 2.0

    assert all_below_probability(limit, reference, count=1) == pytest.approx(0.05, abs=1e-4)


def test_a_known_reference_gives_a_power_of_the_normal_probability() -> None:
    """At the mean of very many runs each further run is below with probability one half."""
    reference = Reference(20.0, 2.0, 10_000)

    assert all_below_probability(20.0, reference, count=5) == pytest.approx(1 / 32, rel=0.02)


@pytest.mark.parametrize(("known", "count"), [(43, 3), (43, 5), (10, 3)])
def test_honest_sets_are_as_rarely_below_as_is_said(known: int, count: int) -> None:
    random = np.random.default_rng(31)
    trials, alpha = 2500, 0.02
    below = sum(
        all_below_probability(
            random.normal(20, 1, count).max(),
            reference_of(random.normal(20, 1, known).tolist()),
            count=count,
        )
        < alpha
        for _ in range(trials)
    )

    assert below / trials == pytest.approx(alpha, abs=4 * math.sqrt(alpha / trials))
