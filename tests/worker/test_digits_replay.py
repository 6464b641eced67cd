"""The real reference under the real training process."""

from pathlib import Path

from finishline.rules.benchmarks.benchmark import load_benchmark
from finishline.rules.verification.control_points import control_points
from worker.child_process import Host
from worker.training import train_run

BENCHMARK = load_benchmark(Path(__file__).parents[2] / "benchmarks" / "digits.toml")


def test_digits_replay_reaches_its_target_within_its_band(make_job, announcer):
    curves = [run.quality for run in BENCHMARK.reference_runs_at(64)]
    points = control_points(curves, runs=3, alpha=0.01, resolution=BENCHMARK.target.resolution)
    job = make_job(
        "digits",
        seeds=(5,),
        hyperparameters=BENCHMARK.defaults(),
        data_set_sha256=BENCHMARK.data_set.sha256,
        control_points=tuple(points),
        run_limit_seconds=120,
    )
    host = Host(device="cpu", data_dir=Path("unused"))
    run = train_run(job, 0, host=host, announcer=announcer, stop=lambda: None)
    assert run.status == "reached", run
    assert 5 <= len(run.evaluations) <= 12
    assert run.tta_seconds < run.ledger["data"] + run.ledger["train"] + run.ledger["eval"] + 0.01
    assert run.ledger["init"] > run.ledger["data"]
    assert 0 < run.cpu_seconds < 1.2 * run.child_seconds  # one thread
