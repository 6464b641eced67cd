"""Inference entries scored: latency and cost as stated, ranked where the model is good enough."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import ClaimError, RuleError
from finishline.rules.logs.dawnbench import parse_entry
from finishline.rules.ranking.ranking import Standing, rank
from finishline.rules.scoring.inference import InferenceResult, score_inference
from finishline.rules.submissions.submission import ScoredSubmission, score_submission

ENTRY: dict[str, Any] = {
    "version": "v1.0",
    "author": "Ada",
    "authorEmail": "ada@example.org",
    "framework": "any 1.0",
    "model": "small net",
    "hardware": "1 T4 / 16 GB",
    "timestamp": "2019-10-15",
    "latency": 2.5,
    "cost": 0.000004,
}
CURVE = b"epoch\thours\ttop1Accuracy\n1\t1.0\t94.5\n"


@pytest.fixture(scope="module")
def known(shipped_benchmarks: dict[str, Benchmark]) -> dict[str, Benchmark]:
    return shipped_benchmarks


@pytest.fixture
def score(known: dict[str, Benchmark]) -> Callable[..., ScoredSubmission]:
    """Scores the entry, changed as told; a field of None is left out."""

    def build(
        benchmark_id: str = "cifar10", logs: dict[str, bytes] | None = None, **changes: Any
    ) -> ScoredSubmission:
        entry = {name: value for name, value in (ENTRY | changes).items() if value is not None}
        content = json.dumps(entry).encode()
        return score_submission(
            content, logs or {}, known, file="entry.json", benchmark_id=benchmark_id
        )

    return build


def inference(scored: ScoredSubmission) -> InferenceResult:
    assert isinstance(scored.result, InferenceResult)
    return scored.result


def test_a_cost_is_of_one_item_and_shown_for_10_000(
    score: Callable[..., ScoredSubmission],
) -> None:
    """Source: dawn-bench-entries README: the cost field is of one item, the board's of 10,000."""
    scored = score(top1Accuracy=94.5)

    assert inference(scored).latency_ms == 2.5
    assert inference(scored).cost_usd_per_10000 == pytest.approx(0.04)
    assert (scored.claim.kind, scored.runs, scored.scored_runs) == ("inference", (), [])


@pytest.mark.parametrize(
    ("quality", "eligible"), [(93.99, False), (94.0, True), (94.01, True), (100.0, True)]
)
def test_a_model_at_the_target_is_good_enough(
    score: Callable[..., ScoredSubmission], quality: float, eligible: bool
) -> None:
    result = inference(score(top1Accuracy=quality))

    assert (result.quality, result.reached, result.eligible) == (quality, eligible, eligible)


def test_an_f1_score_in_percent_is_flagged_and_divided(
    score: Callable[..., ScoredSubmission],
) -> None:
    """Source: one published SQuAD inference entry gives 82.52."""
    percent = inference(score("squad", f1Score=82.52))
    fraction = inference(score("squad", f1Score=0.8252))

    assert (percent.quality, percent.eligible) == (pytest.approx(0.8252), True)
    assert (percent.given_in_percent, fraction.given_in_percent) == (True, False)
    assert "divided by 100" in percent.steps[0].formula
    assert "as stated" in fraction.steps[0].formula


@pytest.mark.parametrize("changes", [{"cost": None}, {"cost": 0}])
def test_a_cost_of_nothing_is_not_an_absent_one(
    score: Callable[..., ScoredSubmission], changes: dict[str, Any]
) -> None:
    assert inference(score(top1Accuracy=94.5, **changes)).cost_usd_per_10000 == changes["cost"]


def test_without_a_log_and_without_a_latency_it_is_no_entry_at_all(
    score: Callable[..., ScoredSubmission],
) -> None:
    with pytest.raises(ClaimError, match="no run logs") as caught:
        score(latency=None, top1Accuracy=94.5)

    assert caught.value.field == "runs"
    assert "latency" in (caught.value.expected or "")


def test_with_a_log_it_is_a_training(score: Callable[..., ScoredSubmission]) -> None:
    scored = score(logs={"entry.tsv": CURVE})

    assert (scored.claim.kind, len(scored.runs)) == ("train", 1)
    assert [run.tta_seconds for _, run in scored.scored_runs] == [3600.0]


def test_a_benchmark_without_a_dawnbench_metric_takes_no_entry(
    score: Callable[..., ScoredSubmission],
) -> None:
    with pytest.raises(ClaimError) as caught:
        score("mlperf-v0.5-gnmt", SacreBLEU=24.5)

    assert caught.value.field == "benchmark"


def test_only_an_inference_entry_in_the_metric_of_the_benchmark_is_scored(
    known: dict[str, Benchmark],
) -> None:
    training = {name: value for name, value in ENTRY.items() if name != "latency"}
    for entry in (training, ENTRY | {"f1Score": 0.8}):
        read = parse_entry(json.dumps(entry).encode(), name="entry.json")
        with pytest.raises(RuleError) as caught:
            score_inference(read, known["cifar10"])
        assert caught.value.expected == "a latency and top1Accuracy"


@pytest.mark.parametrize(
    ("metric", "board", "figure"),
    [
        ("latency", "inference_latency", "latency_ms"),
        ("inference_cost", "inference_cost", "cost_usd_per_10000"),
    ],
)
def test_the_published_boards_are_found_again_from_the_entries_alone(
    archives: Path, known: dict[str, Benchmark], metric: Any, board: str, figure: str
) -> None:
    """The order is made of the published figures, and agrees with the published boards."""
    expected = json.loads((archives / "dawnbench/expected.json").read_text())
    entries = [entry for entry in expected["entries"] if entry["kind"] == "inference"]
    assert len(entries) == 10
    standings = []
    for entry in entries:
        content = (archives / "dawnbench/entries" / entry["path"]).read_bytes()
        result = inference(score_submission(content, {}, known, benchmark_id="cifar10"))
        assert result.quality == pytest.approx(entry["accuracy"], rel=1e-12)
        standings.append(
            Standing(
                submission_id=entry["path"],
                status="claimed",
                submitted_at=entry["timestamp"],
                tta_seconds=None,
                cost_usd=None,
                latency_ms=result.latency_ms,
                cost_usd_per_10000=result.cost_usd_per_10000,
                eligible=result.eligible,
            )
        )
    ranked = [place for place in rank(standings, metric=metric) if place.rank is not None]
    figures = {entry["path"]: entry[figure] for entry in entries if entry[figure] is not None}
    assert [place.submission_id for place in ranked] == sorted(figures, key=figures.__getitem__)
    assert [place.value for place in ranked] == pytest.approx(sorted(figures.values()), rel=1e-9)
    published = expected["leaderboards"][f"CIFAR10/{board}"]
    assert [place.submission_id for place in ranked] == [row["path"] for row in published]
