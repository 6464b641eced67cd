import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import ClaimError, LogFormatError, RuleError, SubmissionError
from finishline.rules.logs.mllog import write_run_log
from finishline.rules.scoring.run import Run
from finishline.rules.submissions.submission import ScoredSubmission, is_dawnbench, score_submission

MakeRun = Callable[..., Run]
CLAIM: dict[str, Any] = {
    "benchmark": "digits",
    "division": "closed",
    "model": "the reference",
    "framework": "torch 2.13.0",
    "system": {
        "name": "laptop",
        "hardware_class": "cpu-x86_64",
        "processor": "any",
        "price_usd_per_hour": 3.6,
        "price_source": "a price list",
    },
    "runs": ["run_0.log", "run_1.log", "run_2.log"],
}


@pytest.fixture
def make_log(make_run: MakeRun, digits: Benchmark) -> Callable[..., bytes]:
    """The bytes of an MLPerf log of a run on digits that reaches 98 % at the third evaluation."""

    def build(index: int, *, seconds_per_epoch: float = 10.0, **changes: Any) -> bytes:
        settings: dict[str, Any] = {
            "qualities": [50.0, 90.0, 98.0],
            "clock": "mlperf",
            "status": "success",
            "stop_seconds": 3 * seconds_per_epoch,
            "seed": index,
            "batch_size": 64,
            "division": "closed",
        }
        settings |= changes
        run = make_run(settings.pop("qualities"), seconds_per_epoch=seconds_per_epoch, **settings)
        return write_run_log(run, benchmark=digits, started_at_ms=1_700_000_000_000).encode()

    return build


@pytest.fixture
def logs(make_log: Callable[..., bytes]) -> dict[str, bytes]:
    """Three good logs: 30, 33 and 36 s."""
    return {f"run_{i}.log": make_log(i, seconds_per_epoch=10.0 + i) for i in range(3)}


@pytest.fixture
def submit(digits: Benchmark, cifar10: Benchmark) -> Callable[..., ScoredSubmission]:
    """Scores a claim given as a table."""

    def build(claim: dict[str, Any], logs: dict[str, bytes], **others: Any) -> ScoredSubmission:
        known = {"digits": digits, "cifar10": cifar10}
        return score_submission(json.dumps(claim).encode(), logs, known, **others)

    return build


def test_a_good_submission_is_read_and_scored(
    submit: Callable[..., ScoredSubmission], logs: dict[str, bytes]
) -> None:
    scored = submit(CLAIM, logs)

    assert scored.claim.run_files == ("run_0.log", "run_1.log", "run_2.log")
    assert [run.seed for run in scored.runs] == [0, 1, 2]
    assert scored.result.tta_seconds == pytest.approx(33.0, abs=1e-3)  # 30 and 36 are dropped
    assert scored.result.cost_usd == pytest.approx(0.033, abs=1e-6)
    assert scored.result.epochs_to_target == 3.0
    assert (scored.result.reached, scored.result.violations) == (3, ())


def test_runs_count_in_the_order_of_the_claim_not_of_the_upload(
    submit: Callable[..., ScoredSubmission], logs: dict[str, bytes]
) -> None:
    backwards = dict(reversed(logs.items()))

    assert submit(CLAIM, backwards).runs == submit(CLAIM, logs).runs


@pytest.mark.parametrize(
    ("claim", "keep", "field", "message"),
    [
        ({}, [], "runs", "no run logs"),
        ({}, ["run_0.log", "run_1.log"], "runs", "'run_2.log' was not sent"),
        ({"runs": ["run_0.log", "run_1.log"]}, None, "runs", "'run_2.log' was sent but"),
        ({"runs": ["../run_0.log", "run_1.log", "run_2.log"]}, None, "file name", r"run_0\.log"),
        ({"benchmark": "mnist"}, None, "benchmark", "unknown benchmark"),
        ({"division": "half"}, None, "division", "unknown value"),
    ],
)
def test_a_claim_that_does_not_fit_its_logs_is_refused(
    submit: Callable[..., ScoredSubmission],
    logs: dict[str, bytes],
    claim: dict[str, Any],
    keep: list[str] | None,
    field: str,
    message: str,
) -> None:
    sent = logs if keep is None else {name: logs[name] for name in keep}

    with pytest.raises(RuleError, match=message) as caught:
        submit(CLAIM | claim, sent)

    assert caught.value.field == field
    assert caught.value.expected


def test_every_bad_log_is_told_at_once(
    submit: Callable[..., ScoredSubmission], logs: dict[str, bytes]
) -> None:
    broken = logs | {"run_0.log": b"", "run_2.log": b"hello"}

    with pytest.raises(SubmissionError) as caught:
        submit(CLAIM, broken)

    assert [problem.file for problem in caught.value.problems] == ["run_0.log", "run_2.log"]


def test_one_bad_log_is_told_as_itself(
    submit: Callable[..., ScoredSubmission], logs: dict[str, bytes]
) -> None:
    with pytest.raises(LogFormatError) as caught:
        submit(CLAIM, logs | {"run_1.log": b" \n"})

    assert caught.value.file == "run_1.log"


def test_broken_rules_refuse_a_submission_and_are_all_told(
    submit: Callable[..., ScoredSubmission],
    logs: dict[str, bytes],
    make_log: Callable[..., bytes],
) -> None:
    """Two runs for three, with one seed between them."""
    two = {name: make_log(7) for name in ("run_0.log", "run_1.log")}

    with pytest.raises(SubmissionError) as caught:
        submit(CLAIM | {"runs": list(two)}, two)

    problems = caught.value.problems
    assert [(p.file, p.field) for p in problems] == [
        ("submission.json", "runs"),
        ("run_1.log", "seed"),
    ]


def test_a_log_of_another_division_or_batch_size_contradicts_the_claim(
    submit: Callable[..., ScoredSubmission],
    logs: dict[str, bytes],
    make_log: Callable[..., bytes],
) -> None:
    changed = logs | {
        "run_0.log": make_log(0, division="open"),
        "run_2.log": make_log(2, batch_size=128),
    }

    with pytest.raises(SubmissionError) as caught:
        submit(CLAIM, changed)

    assert [(p.file, p.field) for p in caught.value.problems] == [
        ("run_0.log", "submission_division"),
        ("run_2.log", "global_batch_size"),
    ]


def test_the_claimed_batch_size_is_the_one_the_logs_must_have(
    submit: Callable[..., ScoredSubmission], make_log: Callable[..., bytes]
) -> None:
    claim = CLAIM | {"hyperparameters": {"batch_size": 128}}
    logs = {f"run_{i}.log": make_log(i, batch_size=128) for i in range(3)}

    assert submit(claim, logs).claim.hyperparameters == {"batch_size": 128.0}


@pytest.mark.parametrize("beside", [{"benchmark_id": "cifar10"}, {"division": "open"}])
def test_what_is_said_beside_a_claim_may_not_contradict_it(
    submit: Callable[..., ScoredSubmission], logs: dict[str, bytes], beside: dict[str, str]
) -> None:
    assert submit(CLAIM, logs, benchmark_id="digits", division="closed")

    with pytest.raises(ClaimError, match="given beside it"):
        submit(CLAIM, logs, **beside)


def published(archives: Path, name: str) -> tuple[bytes, dict[str, bytes]]:
    folder = archives / "dawnbench/entries/CIFAR10/train"
    logs = {f"{name}.tsv": (folder / f"{name}.tsv").read_bytes()}
    return (folder / f"{name}.json").read_bytes(), logs


def test_every_published_cifar10_entry_is_scored_as_published(
    archives: Path, cifar10: Benchmark
) -> None:
    """Source: the entries and leaderboards of stanford-futuredata/dawn-bench-entries."""
    expected = json.loads((archives / "dawnbench/expected.json").read_text())["entries"]
    training = [entry for entry in expected if entry["kind"] == "train"]
    assert len(training) >= 15
    for entry in training:
        name = Path(entry["path"]).stem
        claim_json, logs = published(archives, name)
        result = score_submission(
            claim_json, logs, {"cifar10": cifar10}, file=f"{name}.json", benchmark_id="cifar10"
        ).result
        if entry["tta_seconds"] is None:
            assert (result.tta_seconds, result.reached) == (None, 0), name
            continue
        assert result.tta_seconds == pytest.approx(entry["tta_seconds"], rel=1e-9), name
        assert result.tta_display == entry["tta_display"], name
        assert result.epochs_to_target == entry["tta_epoch"], name
        assert result.best_quality == entry["best_metric"], name
        if entry["cost_usd"] is None:
            assert result.cost_usd is None, name
        else:
            assert result.cost_usd == pytest.approx(entry["cost_usd"], rel=1e-9), name


def test_a_dawnbench_entry_needs_to_be_told_its_benchmark(
    archives: Path, cifar10: Benchmark
) -> None:
    claim_json, logs = published(archives, "fastai_pytorch")
    known = {"cifar10": cifar10}

    assert is_dawnbench(claim_json, file="fastai_pytorch.json")
    for beside in ({}, {"benchmark_id": "mnist"}, {"benchmark_id": "../cifar10"}):
        with pytest.raises(ClaimError) as caught:
            score_submission(claim_json, logs, known, file="fastai_pytorch.json", **beside)
        assert caught.value.field == "benchmark"
    with pytest.raises(ClaimError) as caught:
        score_submission(claim_json, logs, known, benchmark_id="cifar10", division="closed")
    assert (caught.value.field, caught.value.expected) == ("division", "open")


def test_a_claim_of_our_own_is_not_taken_for_a_dawnbench_entry() -> None:
    ours = json.dumps(CLAIM | {"author": "someone"}).encode()

    assert not is_dawnbench(ours, file="submission.json")
