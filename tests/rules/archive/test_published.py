"""The day of a round: as its benchmark's id names it, and only where a source has it."""

import json
from datetime import date

import pytest

from finishline.rules.archive.published import published_on
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.submissions.claim import read_claim


@pytest.mark.parametrize(
    ("benchmark_id", "day"),
    [
        ("mlperf-v0.6-resnet", date(2019, 7, 10)),
        ("mlperf-v0.7-bert", date(2020, 7, 29)),
        ("mlperf-v5.1-llama2_70b_lora", date(2025, 11, 12)),
        ("mlperf-v9.9-resnet", None),
        ("cifar10", None),
        ("my-mlperf-v5.1-copy", None),
    ],
)
def test_a_round_has_its_day_where_a_source_has_it(benchmark_id: str, day: date | None) -> None:
    assert published_on(benchmark_id) == day


def test_a_claim_of_an_archive_is_of_its_rounds_day_unless_it_names_one(
    shipped_benchmarks: dict[str, Benchmark],
) -> None:
    benchmarks = shipped_benchmarks
    known = next(name for name in benchmarks if name.startswith("mlperf-v5.1-"))
    claim = {
        "benchmark": known,
        "division": "closed",
        "model": "m",
        "framework": "f",
        "system": {"name": "s", "hardware_class": "h", "processor": "p"},
        "runs": ["result_0.txt"],
    }
    named = claim | {"submitted_on": "2026-01-02"}
    days = [
        read_claim(
            json.dumps(each).encode(), file="claim.json", benchmarks=benchmarks, archive=True
        ).submitted_on
        for each in (claim, named)
    ]
    assert days == [date(2025, 11, 12), date(2026, 1, 2)]
    own = read_claim(json.dumps(claim).encode(), file="claim.json", benchmarks=benchmarks)
    assert own.submitted_on is None
