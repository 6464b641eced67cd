"""What a job says of each of its runs."""

from dataclasses import replace

import pytest

from finishline.rules.verification.messages import ReplayJob, TargetSpec, job_kind

JOB = ReplayJob(
    attempt_id="a",
    verification_id="v",
    submission_id=None,
    benchmark_id="digits",
    benchmark_sha256="0" * 64,
    data_set_sha256=None,
    reference="digits",
    hyperparameters={"batch_size": 64.0},
    seeds=[1, 2],
    target=TargetSpec("top1Accuracy", 97.5, "higher"),
    clock="mlperf",
    division="closed",
    control_points=[],
    run_limit_seconds=60.0,
)


def test_without_tables_every_run_trains_with_the_settings_of_the_job() -> None:
    assert [JOB.hyperparameters_of(run) for run in (0, 1)] == [{"batch_size": 64.0}] * 2


def test_with_tables_each_run_has_its_own() -> None:
    tables = [{"batch_size": 32.0}, {"batch_size": 128.0}]
    job = replace(JOB, hyperparameters_by_run=tables)

    assert [job.hyperparameters_of(run) for run in (0, 1)] == tables


@pytest.mark.parametrize("count", [1, 3])
def test_tables_for_some_runs_only_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match=f"has {count} tables?; expected one for each of 2 seeds"):
        replace(JOB, hyperparameters_by_run=[{}] * count)


def test_a_kind_is_known_by_its_name() -> None:
    assert [job_kind(name) for name in ("replay", "calibration", "duel")] == [
        "replay",
        "calibration",
        "duel",
    ]
    with pytest.raises(ValueError, match=r"'race' is no kind of job; expected replay or calib"):
        job_kind("race")
