"""Which parts of a definition make figures that may not be compared."""

from pathlib import Path

import pytest

from finishline.rules.benchmarks.benchmark import parse_benchmark
from finishline.rules.benchmarks.phases import rules_that_differ


@pytest.mark.parametrize(
    ("before", "after", "differ"),
    [
        ("value = 97.5", "value = 97.0", ("target",)),
        ('reach = "first_crossing"', 'reach = "fixed_stop"', ("target.reach",)),
        ('clock = "mlperf"', 'clock = "speedrun"', ("clock",)),
        ("count = 3", "count = 5", ("runs",)),
        ("test_items = 599", "test_items = 600", ("target", "data_set")),
        ("default = 20", "default = 30", ("hyperparameters",)),
        ('title = "Digits"', 'title = "Figures"', ()),
        ("alpha = 0.01", "alpha = 0.02", ()),
    ],
)
def test_what_scoring_reads_makes_other_rules_and_words_do_not(
    before: str, after: str, differ: tuple[str, ...], benchmarks_dir: Path
) -> None:
    text = (benchmarks_dir / "digits.toml").read_text()
    assert before in text
    changed = text.replace(before, after, 1)
    earlier, current = (
        parse_benchmark(each.encode(), file="digits.toml") for each in (text, changed)
    )
    assert rules_that_differ(earlier, current) == differ
