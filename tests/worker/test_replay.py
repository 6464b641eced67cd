"""One attempt with a real training process, and the record of its runs."""

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from finishline.rules.benchmarks.benchmark import load_benchmark
from finishline.rules.logs import parse_run_log
from finishline.rules.verification.messages import Absence, LatencyOrder
from worker.local import main
from worker.replay import replay
from worker.state import WorkerState
from worker.telemetry import Reading, Telemetry
from worker.training import RunRecorder


@pytest.fixture
def state():
    return WorkerState()


@pytest.fixture
def make_attempt(server_client, system, host, state):
    def make_attempt(job):
        replay(job, server=server_client, system=system, host=host, state=state)

    return make_attempt


def test_attempt_is_claimed_trained_and_reported(make_attempt, fake_server, make_job):
    make_attempt(make_job("climb", seeds=(11, 12, 13)))
    [claim] = fake_server.bodies("claim")
    assert claim == {"worker": "grace", "hardware_class": "cpu-test"}
    [report] = fake_server.bodies("report")
    assert report["failure"] is None
    assert [run["status"] for run in report["runs"]] == ["reached"] * 3
    assert [run["seed"] for run in report["runs"]] == [11, 12, 13]
    assert report["system"]["worker"] == "grace"


def test_events_are_numbered_without_gaps_across_the_runs(make_attempt, fake_server, make_job):
    make_attempt(make_job("climb", seeds=(1, 2)))
    events = fake_server.events()
    assert [event["sequence"] for event in events] == list(range(len(events)))
    assert [event["run"] for event in events if event["kind"] == "run_started"] == [0, 1]
    assert [event["quality"] for event in events if event["kind"] == "evaluation"] == (
        [50.0, 80.0, 96.0, 98.0] * 2
    )


def test_everything_after_the_claim_carries_the_token_of_the_claim(
    make_attempt, fake_server, make_job
):
    make_attempt(make_job())
    assert fake_server.tokens("claim") == {"Bearer worker-token"}
    assert fake_server.tokens("evaluations") == {"Bearer attempt-token"}
    assert fake_server.tokens("report") == {"Bearer attempt-token"}


def test_every_post_of_a_claim_carries_its_fence(make_attempt, fake_server, make_job):
    fake_server.fence = 7
    make_attempt(make_job())
    assert fake_server.fences("evaluations") == {"7"}
    assert fake_server.fences("report") == {"7"}
    assert fake_server.fences("claim") == {None}


def test_each_run_trains_with_its_own_hyperparameters(make_attempt, fake_server, make_job):
    settings = ({"batch_size": 64}, {"batch_size": -1})  # The fake trainers refuse the second.
    make_attempt(make_job("climb", seeds=(1, 2), hyperparameters_by_run=settings))
    [report] = fake_server.bodies("report")
    assert [run["status"] for run in report["runs"]] == ["reached", "failed"]
    assert report["runs"][1]["failure"]["code"] == "bad_hyperparameter"


def test_attempt_that_is_taken_is_left_alone(make_attempt, fake_server, make_job):
    fake_server.answers["claim"] = [(409, {"detail": "another worker has it"})]
    make_attempt(make_job())
    assert [kind for kind, _, _ in fake_server.posts] == ["claim"]


@pytest.mark.parametrize("status", [401, 404])
def test_refused_claim_trains_nothing(make_attempt, fake_server, make_job, status):
    fake_server.answers["claim"] = [(status, {"detail": "no"})]
    make_attempt(make_job())
    assert [kind for kind, _, _ in fake_server.posts] == ["claim"]


def test_fenced_off_worker_kills_its_training_and_reports_nothing(
    make_attempt, fake_server, make_job
):
    fake_server.answers["evaluations"] = [(409, {"detail": "the lease ran out"})]
    make_attempt(make_job("hang", run_limit_seconds=60))
    assert fake_server.bodies("report") == []
    assert len(fake_server.bodies("evaluations")) == 1


def test_cancelled_attempt_stops_and_reports_nothing(make_attempt, fake_server, make_job):
    fake_server.answers["evaluations"] = [(200, {"proceed": False, "reason": "cancelled"})]
    make_attempt(make_job("hang", seeds=(1, 2), run_limit_seconds=60))
    assert fake_server.bodies("report") == []
    assert {event["run"] for event in fake_server.events()} == {0}
    assert fake_server.events()[-1]["status"] == "cancelled"


def test_attempt_over_the_servers_time_limit_fails_as_a_whole(make_attempt, fake_server, make_job):
    fake_server.answers["evaluations"] = [(200, {"proceed": False, "reason": "time_limit"})]
    make_attempt(make_job("hang", seeds=(1, 2), run_limit_seconds=60))
    [report] = fake_server.bodies("report")
    assert report["failure"]["code"] == "run_time_limit"
    assert len(report["runs"]) == 1


def test_hanging_training_does_not_stop_the_heartbeat(make_attempt, fake_server, make_job):
    fake_server.lease_seconds = 0.4  # a heartbeat every 0.1 s
    go_on, enough = (200, {"proceed": True}), (200, {"proceed": False, "reason": "time_limit"})
    fake_server.answers["evaluations"] = [*[go_on] * 5, enough]
    make_attempt(make_job("hang_at_start", run_limit_seconds=120))
    assert len(fake_server.bodies("evaluations")) > 5
    assert fake_server.bodies("report")[0]["runs"][0]["failure"]["code"] == "run_time_limit"


def test_stopped_worker_reports_the_attempt_as_stopped(make_attempt, fake_server, make_job, state):
    job = make_job("hang", seeds=(1, 2), run_limit_seconds=60)
    attempt = threading.Thread(target=make_attempt, args=(job,))
    attempt.start()
    fake_server.wait_for(lambda: any(e["kind"] == "evaluation" for e in fake_server.events()))
    state.stopping = True
    attempt.join(timeout=20)
    [report] = fake_server.bodies("report")
    assert report["failure"]["code"] == "worker_stopped"
    assert report["failure"]["kind"] == "infrastructure"
    assert len(report["runs"][0]["evaluations"]) == 1


def test_infrastructure_failure_ends_the_attempt(make_attempt, fake_server, make_job):
    make_attempt(make_job("killed", seeds=(1, 2, 3)))
    [report] = fake_server.bodies("report")
    assert report["failure"]["code"] == "child_died"
    assert len(report["runs"]) == 1
    assert report["runs"][0]["failure"] == report["failure"]


def test_diverged_run_counts_and_the_others_go_on(make_attempt, fake_server, make_job):
    make_attempt(make_job("diverge", seeds=(1, 2)))  # odd seeds diverge
    [report] = fake_server.bodies("report")
    assert report["failure"] is None
    assert [run["status"] for run in report["runs"]] == ["failed", "reached"]


def test_report_is_sent_until_it_is_accepted(make_attempt, fake_server, make_job):
    fake_server.answers["report"] = [(503, {}), (503, {}), (200, {})]
    make_attempt(make_job())
    first, second, third = fake_server.bodies("report")
    assert first == second == third


def test_events_survive_a_server_that_restarts(make_attempt, fake_server, make_job):
    fake_server.answers["evaluations"] = [(503, {})] * 3 + [(200, {"proceed": True})]
    make_attempt(make_job())
    posted = {event["sequence"] for event in fake_server.events()}
    assert posted == set(range(max(posted) + 1))
    assert fake_server.bodies("report")[0]["runs"][0]["status"] == "reached"


DIGITS = Path(__file__).parents[2] / "benchmarks" / "digits.toml"


def test_local_training_writes_a_submission_and_logs_that_read_back(tmp_path, capfd):
    out = tmp_path / "out"
    assert (
        main([str(DIGITS), "--runs", "2", "--out", str(out), "--seed", "40", "--device", "cpu"])
        == 0
    )
    events = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [event["sequence"] for event in events] == list(range(len(events)))
    assert [event["status"] for event in events if event["kind"] == "run_finished"] == (
        ["reached", "reached"]
    )
    submission = json.loads((out / "submission.json").read_text())
    assert submission["benchmark"] == "digits"
    assert submission["division"] == "closed"
    assert submission["trained_with"] == "reference"
    assert submission["system"]["accelerator_count"] == 0
    assert submission["runs"] == ["run_0.log", "run_1.log"]
    benchmark = load_benchmark(DIGITS)
    for index, name in enumerate(submission["runs"]):
        run = parse_run_log((out / name).read_bytes(), name=name, benchmark=benchmark)
        trained = [e for e in events if e["run"] == index and e["kind"] == "evaluation"]
        assert run.seed == 40 + index
        assert 0.0 < run.processor_share <= 1.0
        assert run.batch_size == 64
        assert run.status == "success"
        assert [e.quality for e in run.evaluations] == pytest.approx(
            [e["quality"] for e in trained]
        )
        assert run.evaluations[-1].seconds == pytest.approx(trained[-1]["seconds"], abs=0.002)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set", "batch_size=8"], "hyperparameters.batch_size"),
        (["--set", "batch_size=64.5"], "whole number"),
        (["--set", "momentum=0.8"], "closed division"),
        (["--set", "speed=2"], "unknown hyperparameter"),
        (["--set", "batchsize=32"], "unknown hyperparameter (did you mean 'batch_size'?)"),
        (["--division", "mixed"], "closed or open"),
    ],
)
def test_setting_that_is_not_allowed_is_refused_before_training(tmp_path, capsys, arguments, said):
    assert main([str(DIGITS), "--out", str(tmp_path / "out"), *arguments]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_absent_data_are_refused_before_a_run_is_told_or_a_folder_made(tmp_path, capsys):
    out, data = tmp_path / "out", tmp_path / "data"
    cifar = str(DIGITS.with_name("cifar10.toml"))
    assert main([cifar, "--out", str(out), "--data-dir", str(data), "--device", "cpu"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert f"finishline data fetch cifar10 --data {data}" in told.err
    assert list(tmp_path.iterdir()) == []


def test_a_card_that_torch_cannot_use_is_refused_before_a_folder_is_made(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("worker.local.choose_device", lambda _: "cuda:0")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert main([str(DIGITS), "--out", str(tmp_path / "out"), "--device", "cuda"]) == 2
    told = capsys.readouterr()
    assert (told.out, "no GPU can be used from here" in told.err) == ("", True)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_named_with_a_way_out(tmp_path, capsys):
    out = tmp_path / "file" / "out"
    out.parent.touch()
    assert main([str(DIGITS), "--out", str(out), "--device", "cpu"]) == 2
    assert f"Cannot write in {out}" in capsys.readouterr().err


def test_missing_benchmark_file_is_named(tmp_path, capsys):
    assert main([str(tmp_path / "absent.toml"), "--out", str(tmp_path)]) == 2
    assert "absent.toml" in capsys.readouterr().err


@pytest.fixture
def record(make_job, announcer):
    """A run whose process was started at 100 s."""
    return RunRecorder(make_job(), 0, at=100.0, announcer=announcer)


def tell(record, event, at, *, clock=None, **fields):
    line = {"event": event, "clock": at if clock is None else clock, "cpu": at, **fields}
    record.read(json.dumps(line).encode() + b"\n", at)


def start(record):
    tell(record, "phase", 102.0, phase="warmup")
    tell(record, "phase", 103.0, phase="data")
    tell(record, "phase", 103.5, phase="train")


def evaluate(record, at, quality, **clock):
    tell(record, "phase", at - 0.25, phase="eval")
    tell(record, "measurement", at, epoch=1, samples=64, quality=quality, **clock)


def test_seconds_of_an_evaluation_count_on_the_benchmarks_clock(record):
    start(record)
    evaluate(record, 105.0, 50.0)
    [evaluation] = record.evaluations
    assert evaluation.seconds == 2.0
    assert evaluation.ledger["train"] == 1.25
    assert evaluation.ledger["eval"] == 0.25
    assert evaluation.ledger["init"] == 2.0


def test_time_to_accuracy_is_taken_at_the_reaching_evaluation(record):
    start(record)
    evaluate(record, 105.0, 98.0)
    assert record.status == "reached"
    run = record.close("")
    assert run.tta_seconds == 2.0
    assert run.parent_seconds == 2.0


def test_the_share_of_the_processor_is_told_once_the_clock_has_run_long_enough(record):
    start(record)
    tell(record, "phase", 107.0, phase="eval")
    # From 103 s to 107 s: the fake's processor clock is its wall clock.
    assert record.processor_share(least_seconds=4.0) == 1.0
    assert record.processor_share(least_seconds=4.1) is None


def test_no_event_has_seconds_before_the_clock_starts(record, events):
    start(record)
    seconds = {event.phase: event.seconds for event in events if event.kind == "phase"}
    assert seconds == {"warmup": None, "data": 0.0, "train": 0.5}


class CountingSensors:
    """A counter that goes on by ten joules each time it is read."""

    source = "powercap"

    def __init__(self):
        self.joules = 0.0

    def energy_joules(self):
        self.joules += 10.0
        return self.joules

    def read(self):
        return Reading()


def test_energy_is_read_at_the_edges_of_the_ledger(make_job, announcer):
    telemetry = Telemetry(CountingSensors(), every_seconds=60.0)
    record = RunRecorder(make_job(), 0, at=100.0, announcer=announcer, telemetry=telemetry)
    start(record)
    evaluate(record, 105.0, 98.0, resident_peak_bytes=1000, accelerator_peak_bytes=None)
    telemetry.stop()
    found = record.close("").telemetry
    # Each edge is ten joules: data, train and eval are on the clock; init and warm-up are not.
    assert found.energy_joules == 30.0
    assert found.energy_source == "powercap"
    assert found.samples_per_joule == pytest.approx(64 / 30)
    assert (found.memory_peak_bytes, found.accelerator_memory_peak_bytes) == (1000, None)


def test_share_of_communication_is_that_of_the_train_seconds_so_far(make_job, announcer):
    job = make_job(target=99.0)
    record = RunRecorder(job, 0, at=100.0, announcer=announcer, telemetry=Telemetry(None))
    start(record)
    evaluate(record, 105.0, 90.0, communication_seconds=1.0, communication_how="by hand")
    train_seconds = record.evaluations[0].ledger["train"]
    found = record.close("").telemetry
    assert train_seconds > 1.0
    assert found.communication_share == pytest.approx(1.0 / train_seconds)
    assert found.communication_how == "by hand"


def test_events_of_a_run_are_numbered_without_gaps(record, events):
    start(record)
    evaluate(record, 105.0, 98.0)
    record.close("")
    assert [event.sequence for event in events] == list(range(7))
    assert [event.kind for event in events] == [
        "run_started",
        "phase",
        "phase",
        "phase",
        "phase",
        "evaluation",
        "run_finished",
    ]
    assert events[-1].status == "reached"


def test_child_whose_clock_ran_slower_fails_its_run(record):
    start(record)
    evaluate(record, 105.0, 98.0, clock=104.9)
    run = record.close("")
    assert run.status == "failed"
    assert run.failure.code == "clock_mismatch"
    assert run.tta_seconds is None


def test_a_clock_that_stands_still_fails_its_run(make_job, announcer):
    record = RunRecorder(make_job(), 0, at=100.0, announcer=announcer)
    tell(record, "phase", 103.0, phase="train", clock=7.0)
    tell(record, "measurement", 105.0, epoch=1, samples=64, quality=98.0, clock=7.0)
    run = record.close("")
    assert (run.parent_seconds, run.child_seconds) == (2.0, 0.0)
    assert (run.status, run.failure.code) == ("failed", "clock_mismatch")


def test_a_run_that_did_not_reach_is_held_to_the_two_clocks_too(record):
    start(record)
    evaluate(record, 105.0, 50.0)
    tell(record, "end", 106.0, clock=104.0)
    run = record.close("")
    assert (run.status, run.failure.code) == ("failed", "clock_mismatch")


def test_what_a_run_failed_of_is_told_whatever_its_clock(record):
    start(record)
    evaluate(record, 105.0, 50.0, clock=103.6)
    tell(record, "failure", 106.0, code="training_diverged", message="not a number")
    run = record.close("")
    assert (run.status, run.failure.code) == ("failed", "training_diverged")


def test_a_closed_run_tells_its_seconds_its_ledger_and_its_log(record):
    start(record)
    evaluate(record, 105.0, 50.0)
    tell(record, "end", 106.0, clock=105.98, cpu=104.5)
    run = record.close("the last words")
    # From the first phase after the warm-up, at 103 s, to the last line.
    assert run.parent_seconds == 3.0
    assert run.child_seconds == pytest.approx(2.98)
    assert run.cpu_seconds == 1.5
    phases = {"init": 2.0, "warmup": 1.0, "data": 0.5, "train": 1.25, "eval": 1.25}
    assert {name: seconds for name, seconds in run.ledger.items() if seconds} == phases
    assert run.log_tail == "the last words"


def test_a_run_whose_clock_never_started_has_no_seconds(record, events):
    tell(record, "phase", 102.0, phase="warmup")
    run = record.close("")
    assert run.status == "failed"
    assert (run.parent_seconds, run.child_seconds, run.cpu_seconds) == (None, None, None)
    assert (events[-1].kind, events[-1].seconds) == ("run_finished", None)


def test_the_end_tells_the_processor_time_and_why_the_run_failed(record, events):
    start(record)
    evaluate(record, 105.0, 50.0)
    tell(record, "failure", 106.0, code="training_diverged", message="not a number")
    run = record.close("")
    assert events[-1].failure == run.failure is not None
    assert events[-1].cpu_seconds == run.cpu_seconds is not None


def test_phases_and_the_end_tell_the_ledger_so_far(record, events):
    start(record)
    evaluate(record, 105.0, 98.0)
    record.close("")
    told = [event for event in events if event.kind in ("phase", "run_finished")]
    assert [(event.ledger["train"], event.ledger["warmup"]) for event in told] == [
        *[(0.0, 0.0), (0.0, 1.0), (0.0, 1.0)],
        *[(1.25, 1.0), (1.25, 1.0)],
    ]
    assert told[-1].seconds == 2.0


def test_readings_count_from_the_start_of_the_clock(make_job, announcer):
    class Noting(Telemetry):
        def enter(self, phase, *, on_clock):
            noted.append((phase.value, on_clock))

    noted = []
    record = RunRecorder(make_job(), 0, at=100.0, announcer=announcer, telemetry=Noting(None))
    start(record)
    assert noted == [("warmup", False), ("data", True), ("train", True)]


def test_clocks_that_differ_within_the_tolerance_pass(record):
    start(record)
    evaluate(record, 105.0, 98.0, clock=104.92)
    assert record.close("").status == "reached"


@pytest.mark.parametrize(
    "line",
    [b"not json\n", b"[1, 2]\n", b'{"event": "applause"}\n', b'{"event": "phase"}\n', b"\xff\n"],
)
def test_a_line_that_is_no_event_fails_the_run(record, line):
    record.read(line, 101.0)
    assert record.failure.code == "child_died"


def test_a_run_that_ends_short_of_the_target_did_not_reach(record):
    start(record)
    evaluate(record, 105.0, 50.0)
    tell(record, "end", 105.1)
    run = record.close("")
    assert (run.status, run.tta_seconds) == ("not_reached", None)


@pytest.fixture
def timed(make_job, announcer):
    """A run whose model is to be timed, at its target after 2 s."""
    order = LatencyOrder(items=64, warmup_items=1, output_tolerance=0.1)
    record = RunRecorder(make_job(latency=order), 0, at=100.0, announcer=announcer)
    start(record)
    evaluate(record, 105.0, 98.0)
    return record


def test_a_run_whose_model_is_to_be_timed_goes_on_after_its_target(timed):
    assert timed.status is None
    tell(timed, "phase", 105.5, phase="idle")
    found = {"backend": "eager", "milliseconds": [1.5, 1.0], "seconds": 0.5, "cpu_seconds": 0.4}
    tell(timed, "latency", 108.0, latency=found | {"largest_difference": 0.0, "absence": None})
    refused = {"code": "not_installed", "message": "onnx is missing"}
    tell(timed, "latency", 109.0, latency={"backend": "onnxruntime", "absence": refused})
    tell(timed, "end", 109.0)
    run = timed.close("")
    assert (run.status, run.tta_seconds, run.failure) == ("reached", 2.0, None)
    assert [item.backend for item in run.latency] == ["eager", "onnxruntime"]
    assert run.latency[0].milliseconds == [1.5, 1.0]
    assert run.latency[1].absence == Absence("not_installed", "onnx is missing")
    assert run.ledger["idle"] == 3.5


@pytest.mark.parametrize(
    "broken", [{"backend": "abacus"}, {"milliseconds": [1.0]}, {"backend": "eager", "absence": {}}]
)
def test_a_latency_that_is_none_fails_the_run(timed, broken):
    tell(timed, "latency", 106.0, latency=broken)
    assert (timed.status, timed.failure.code) == ("failed", "child_died")


@pytest.mark.parametrize("qualities", [[98.0, 97.9], [50.0, 60.0]])
def test_at_a_fixed_stop_the_last_evaluation_counts_whatever_its_quality(
    make_job, announcer, qualities
):
    job = make_job()
    job = replace(job, target=replace(job.target, fixed_stop=True))
    record = RunRecorder(job, 0, at=100.0, announcer=announcer)
    start(record)
    for at, quality in zip((105.0, 107.0), qualities, strict=True):
        evaluate(record, at, quality)
        assert record.status is None
    tell(record, "end", 107.0)
    run = record.close("")
    assert (run.status, run.tta_seconds) == ("reached", 4.0)


def test_a_run_that_ends_before_its_first_evaluation_did_not_reach_a_fixed_stop(
    make_job, announcer
):
    job = make_job()
    job = replace(job, target=replace(job.target, fixed_stop=True))
    record = RunRecorder(job, 0, at=100.0, announcer=announcer)
    start(record)
    tell(record, "end", 104.0)
    assert record.close("").status == "not_reached"
