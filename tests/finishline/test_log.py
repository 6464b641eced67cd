"""Logs that a training script of one's own writes, read by the rules and the command."""

import json
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

import finishline.log
from finishline.cli.main import main
from finishline.log.recorder import warn_of_division
from finishline.rules.benchmarks.benchmark import load_benchmark
from finishline.rules.errors import RuleError
from finishline.rules.logs import parse_run_log
from tests.conftest import BENCHMARKS

DIGITS = load_benchmark(BENCHMARKS / "digits.toml")
CURVE = (60.0, 90.0, 96.4, 98.1)


def read(path):
    return parse_run_log(path.read_bytes(), name=path.name, benchmark=DIGITS)


def claim_in(folder):
    return json.loads((folder / "submission.json").read_text())


def train(run, curve=CURVE):
    """A training of a few milliseconds: the rules know none that is shorter."""
    for epoch, quality in enumerate(curve, 1):
        time.sleep(0.001)
        run.evaluation(epoch=epoch, quality=quality)


def train_three(folder, **options):
    for seed in range(3):
        with finishline.log.run("digits", seed=seed, out=folder, **options) as run:
            run.start()
            train(run, [*CURVE, 98.0 + seed / 10])


def test_a_whole_run_loads_no_training_library_or_server(tmp_path):
    script = (
        "import sys, finishline.log\n"
        "print({'finishline.rules', 'pydantic'} & set(sys.modules))\n"
        f"with finishline.log.run('digits', seed=1, out={str(tmp_path)!r}) as run:\n"
        "    run.evaluation(epoch=1, quality=98.0)\n"
        "heavy = {'torch', 'numpy', 'fastapi', 'sqlalchemy', 'httpx2', 'typer'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["set()", "[]"]
    assert len(read(tmp_path / "run_0.log").evaluations) == 1


def test_three_runs_are_a_submission_that_the_rules_accept(tmp_path, capsys):
    train_three(tmp_path, hyperparameters={"batch_size": 32}, model="net", framework="ours 1.0")
    claim = claim_in(tmp_path)
    assert claim["runs"] == ["run_0.log", "run_1.log", "run_2.log"]
    assert (claim["model"], claim["framework"]) == ("net", "ours 1.0")
    assert claim["hyperparameters"] == {"batch_size": 32}
    run = read(tmp_path / "run_1.log")
    assert (run.seed, run.batch_size, run.status, run.division) == (1, 32, "success", "closed")
    assert [(each.epoch, each.quality) for each in run.evaluations[:2]] == [(1, 60), (2, 90)]
    assert main(["check", str(tmp_path)]) == 0
    assert "3 of 3 runs reached the target" in capsys.readouterr().out


def test_a_division_that_nobody_named_is_said(tmp_path, monkeypatch, caplog):
    def division_of(benchmark, folder, **options):
        options = {"seed": 1, "out": tmp_path / folder, **options}
        with finishline.log.run(benchmark, **options):
            pass
        with finishline.log.run(benchmark, **{**options, "seed": 2}):
            pass
        return str(claim_in(tmp_path / folder)["division"])

    warn_of_division.cache_clear()
    assert division_of("digits", "default") == "closed"
    assert [each.getMessage().count('pass division="open"') for each in caplog.records] == [1]
    caplog.clear()
    assert division_of("digits", "named", division="open") == "open"
    assert division_of("cifar10", "the only one") == "open"
    monkeypatch.setenv("FINISHLINE_DIVISION", "open")
    assert division_of("digits", "by finishline run") == "open"
    assert caplog.records == []


def test_model_and_framework_are_filled_in_from_the_process(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/home/ada/my_train.py"])
    monkeypatch.setitem(sys.modules, "torch", sys)
    with finishline.log.run("digits", seed=1, out=tmp_path) as run:
        run.evaluation(epoch=1, quality=50.0)
    claim = claim_in(tmp_path)
    assert claim["model"] == "my_train.py"
    assert claim["framework"].startswith("torch ")
    assert claim["system"]["processor_count"] >= 1


@pytest.mark.parametrize(
    ("trained", "curve", "kept"),
    [
        ("run.start()\n    run.evaluation(epoch=1, quality=61.5)\n"
         "    run.evaluation(epoch=2, quality=88.25)",
         [(1, 61.5), (2, 88.25)], ["run_0.log", "run_1.log"]),
        ("pass", [], ["run_1.log"]),  # Its clock never started: it is no run.
    ],
)  # fmt: skip
def test_each_line_is_written_at_once_and_survives_kill_9(tmp_path, trained, curve, kept):
    script = (
        "import finishline.log, os, signal\n"
        f"with finishline.log.run('digits', seed=5, out={str(tmp_path)!r}) as run:\n"
        f"    {trained}\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], check=False)
    assert done.returncode == -signal.SIGKILL
    if curve:
        run = read(tmp_path / "run_0.log")
        assert [(each.epoch, each.quality) for each in run.evaluations] == curve
        assert (run.seed, run.status) == (5, None)
    with finishline.log.run("digits", seed=6, out=tmp_path) as again:
        train(again)
    assert claim_in(tmp_path)["runs"] == kept


@pytest.mark.parametrize("fails", [False, True])
def test_a_run_below_the_target_or_with_an_exception_is_no_success(tmp_path, fails):
    def train_and_end():
        with finishline.log.run("digits", seed=1, out=tmp_path) as run:
            for epoch, quality in ((1, 97.0), (1.49, 97.49), *([(2, 98.0)] if fails else [])):
                assert run.evaluation(epoch=epoch, quality=quality) is (quality == 98.0)
            assert run.reached is fails
            if fails:
                raise ZeroDivisionError

    with suppress(ZeroDivisionError):
        train_and_end()
    assert read(tmp_path / "run_0.log").status == "aborted"


def test_the_clock_starts_on_entering_unless_start_is_called(tmp_path):
    with finishline.log.run("digits", seed=1, out=tmp_path) as run:
        time.sleep(0.05)
        assert run.evaluation(epoch=1, quality=98.0)
    with finishline.log.run("digits", seed=2, out=tmp_path) as run:
        time.sleep(0.05)
        run.start()
        assert run.evaluation(epoch=1, quality=98.0)
        with pytest.raises(RuntimeError, match="once"):
            run.start()
    entered, started = (read(tmp_path / f"run_{number}.log") for number in (0, 1))
    assert entered.evaluations[0].seconds >= 0.05
    assert entered.preparation_seconds == 0
    assert started.preparation_seconds is not None
    assert started.preparation_seconds >= 0.05 > started.evaluations[0].seconds


def test_where_evaluations_are_off_the_clock_all_time_counts_as_training(tmp_path):
    with finishline.log.run("cifar10", seed=1, division="open", out=tmp_path) as run:
        run.start()
        time.sleep(0.01)
        run.evaluation(epoch=1, quality=94.5)
    cifar10 = load_benchmark(BENCHMARKS / "cifar10.toml")
    log = tmp_path / "run_0.log"
    logged = parse_run_log(log.read_bytes(), name=log.name, benchmark=cifar10)
    ledger = logged.evaluations[0].ledger
    assert ledger is not None
    assert ledger.eval == 0
    assert cifar10.clock.seconds(ledger, division="open") >= 0.01


def test_a_run_with_a_budget_is_over_at_its_end(tmp_path, monkeypatch):
    text = (BENCHMARKS / "digits.toml").read_text().partition("[latency]")[0]
    budget = '[ranking]\nby = "quality"\nbudget_seconds = 0.05\n'
    (tmp_path / "digits.toml").write_text(text + budget)
    monkeypatch.setenv("FINISHLINE_BENCHMARKS_DIR", str(tmp_path))
    with finishline.log.run("digits", seed=1, out=tmp_path / "out") as run:
        run.start()
        assert not run.evaluation(epoch=1, quality=99.0)
        time.sleep(0.06)
        assert run.evaluation(epoch=2, quality=50.0)


def test_other_ranks_write_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    with finishline.log.run("digits", seed=1, out=tmp_path / "out") as run:
        run.start()
        train(run)
        assert run.reached
    assert run.file is None
    assert not (tmp_path / "out").exists()
    monkeypatch.setenv("RANK", "0")
    with finishline.log.run("digits", seed=1, out=tmp_path / "out") as run:
        train(run)
    assert run.file == tmp_path / "out" / "run_0.log"


def test_the_folder_is_out_then_the_environments_then_one_of_this_process(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FINISHLINE_OUT", str(tmp_path / "asked"))
    for out in (tmp_path / "given", None):
        with finishline.log.run("digits", seed=1, out=out) as run:
            train(run)
    monkeypatch.delenv("FINISHLINE_OUT")
    for seed in (1, 2):
        with finishline.log.run("digits", seed=seed) as run:
            train(run)
    (made,) = (tmp_path / "runs").iterdir()
    assert [path.parent.name for path in sorted(tmp_path.glob("*/run_0.log"))] == ["asked", "given"]
    assert claim_in(made)["runs"] == ["run_0.log", "run_1.log"]


def test_facts_that_a_person_added_stay(tmp_path):
    train_three(tmp_path)
    file = tmp_path / "submission.json"
    file.write_text(json.dumps(claim_in(tmp_path) | {"model": "Mine", "notes": "first try"}))
    with finishline.log.run("digits", seed=9, out=tmp_path) as run:
        train(run)
    claim = claim_in(tmp_path)
    assert (claim["model"], claim["notes"], len(claim["runs"])) == ("Mine", "first try", 4)


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"hyperparameters": {"batch_size": 32}}, "hyperparameters"),
        ({"division": "open"}, "division"),
    ],
)
def test_a_folder_takes_runs_of_one_submission(tmp_path, changed, field):
    train_three(tmp_path)
    other = finishline.log.run("digits", seed=7, out=tmp_path, **changed)
    with pytest.raises(RuleError, match=rf"{field}: .*another folder"):
        other.__enter__()
    assert len(list(tmp_path.glob("run_*.log"))) == 3


@pytest.mark.parametrize(
    ("benchmark", "options", "said"),
    [
        ("digit", {}, r"unknown benchmark 'digit' \(did you mean 'digits'\?\)"),
        ("digits", {"division": "close"}, "division"),
        ("digits", {"hyperparameters": {"momentum": 0.5}}, "closed division"),
        ("digits", {"hyperparameters": {"batch_siez": 64}}, "did you mean 'batch_size'"),
        ("digits", {"seed": -1}, "seed"),
        (
            "teacher",
            {"hyperparameters": {"batch_size": 0}},
            "batch_size: got 0; expected at least 1",
        ),
        ("digits", {"model": "a\x1b[31m net"}, "model: control characters"),
        (
            "digits",
            {"division": "open", "hyperparameters": {"batch_size": 32, "global_batch_size": 64}},
            "global_batch_size: a key of the log itself",
        ),
        ("mlperf-v5.1-retinanett", {}, "mlperf-v5.1-retinanet"),
    ],
)
def test_bad_settings_are_refused_before_training(tmp_path, benchmark, options, said):
    with pytest.raises(RuleError, match=said):
        finishline.log.run(benchmark, **{"seed": 1, "out": tmp_path} | options)
    assert list(tmp_path.iterdir()) == []


def test_a_quality_or_an_epoch_that_no_training_has_is_refused(tmp_path):
    settings = {"steps": 10**30}
    with finishline.log.run(
        "digits", seed=1, division="open", hyperparameters=settings, out=tmp_path
    ) as run:
        with pytest.raises(ValueError, match="quality is nan"):
            run.evaluation(epoch=1, quality=float("nan"))
        with pytest.raises(ValueError, match="quality is 101; expected a percent from 0 to 100"):
            run.evaluation(epoch=1, quality=101.0)
        for epoch in (-1, 1e19):
            with pytest.raises(ValueError, match="expected a number from 0 to 2"):
                run.evaluation(epoch=epoch, quality=50.0)
        run.evaluation(epoch=1, quality=50.0)
    with pytest.raises(RuntimeError, match="not open"):
        run.evaluation(epoch=1, quality=50.0)
    kept = read(tmp_path / "run_0.log")
    assert (len(kept.evaluations), kept.hyperparameters) == (1, {"steps": 1e30})


def test_a_benchmark_of_a_server_is_asked_of_it(tmp_path, site, monkeypatch):
    monkeypatch.setenv("FINISHLINE_BENCHMARKS_DIR", str(tmp_path))
    with pytest.raises(RuleError, match="unknown benchmark 'digits'"):
        finishline.log.run("digits", seed=1, out=tmp_path)
    monkeypatch.setenv("FINISHLINE_URL", site)
    assert finishline.log.run("digits", seed=1, out=tmp_path).benchmark.title == "Digits"
    with pytest.raises(RuleError, match=f"or one of {site}"):
        finishline.log.run("mine", seed=1, out=tmp_path)
