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
from worker.machine.sensors import Reading, Telemetry
from worker.replay import Attempts
from worker.state import WorkerState
from worker.training import RunRecorder


@pytest.fixture
def state():
    return WorkerState()


@pytest.fixture
def make_attempt(server_client, fake_server, system, host, state):
    def make_attempt(job):
        fake_server.job = job
        Attempts(server_client, system, host, state).make(job.attempt_id)

    return make_attempt


def test_attempt_is_claimed_trained_and_reported(make_attempt, fake_server, make_job):
    """All that follows the claim carries its token and its fence."""
    fake_server.fence = 7
    make_attempt(make_job("climb", seeds=(11, 12)))
    [claim] = fake_server.bodies("claim")
    assert claim == {"worker": "grace", "protocol": 1}
    [report] = fake_server.bodies("report")
    assert (report["failure"], report["system"]["worker"]) == (None, "grace")
    runs = [(run["status"], run["seed"]) for run in report["runs"]]
    assert runs == [("reached", 11), ("reached", 12)]
    events = fake_server.events()
    assert [event["sequence"] for event in events] == list(range(len(events)))
    assert [event["run"] for event in events if event["kind"] == "run_started"] == [0, 1]
    qualities = [event["quality"] for event in events if event["kind"] == "evaluation"]
    assert qualities == [50.0, 80.0, 96.0, 98.0] * 2
    for kind, token, fence in (
        ("claim", "worker", None), ("evaluations", "attempt", "7"), ("report", "attempt", "7")
    ):  # fmt: skip
        assert fake_server.tokens(kind) == {f"Bearer {token}-token"}
        assert fake_server.fences(kind) == {fence}


@pytest.mark.parametrize("status", [401, 404, 409])
def test_refused_claim_trains_nothing(make_attempt, fake_server, make_job, status):
    fake_server.answers["claim"] = [(status, {"detail": "no"})]
    make_attempt(make_job())
    assert [kind for kind, _, _ in fake_server.posts] == ["claim"]


@pytest.mark.parametrize(
    ("status", "answer", "codes"),
    [
        (404, {"detail": "the attempt is gone"}, []),
        (409, {"detail": "the lease ran out"}, []),
        (200, {"proceed": False, "reason": "cancelled"}, []),
        (200, {"proceed": False, "reason": "time_limit"}, ["run_time_limit"]),
    ],
)
def test_server_ends_an_attempt(make_attempt, fake_server, make_job, status, answer, codes):
    fake_server.answers["evaluations"] = [(status, answer)]
    make_attempt(make_job("hang", seeds=(1, 2), run_limit_seconds=60))
    reports = fake_server.bodies("report")
    assert [report["failure"]["code"] for report in reports] == codes
    assert [len(report["runs"]) for report in reports] == [1] * len(codes)
    assert {event["run"] for event in fake_server.events()} == {0}
    # Once the lease is gone nothing more is posted.
    ended = [event for event in fake_server.events() if event["kind"] == "run_finished"]
    assert len(ended) == (1 if status == 200 else 0)


def test_hanging_training_does_not_stop_the_heartbeat(make_attempt, fake_server, make_job):
    fake_server.lease_seconds = 0.4  # a heartbeat every 0.1 s
    go_on, enough = (200, {"proceed": True}), (200, {"proceed": False, "reason": "time_limit"})
    fake_server.answers["evaluations"] = [*[go_on] * 5, enough]
    make_attempt(make_job("hang_at_start", run_limit_seconds=120))
    posted = [body["events"] for body in fake_server.bodies("evaluations")]
    assert (len(posted) > 5, posted.count([]) >= 4) == (True, True)
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


REFUSED = {"batch_size": -1}  # By the fake trainers.


@pytest.mark.parametrize(
    ("reference", "asked", "codes", "ends"),
    [
        ("killed", {}, ["child_died"], True),
        ("climb", {"hyperparameters_by_run": ({"batch_size": 64}, REFUSED, {"batch_size": 64})},
         [None, "bad_hyperparameter"], True),
        ("diverge", {}, ["training_diverged", None, "training_diverged"], False),  # Odd seeds do.
        ("hang", {"run_limit_seconds": 1.0}, ["run_time_limit"] * 3, False),
    ],
)  # fmt: skip
def test_a_failure_that_is_no_result_of_its_run_ends_the_attempt(
    make_attempt, fake_server, make_job, reference, asked, codes, ends
):
    make_attempt(make_job(reference, seeds=(1, 2, 3), **asked))
    [report] = fake_server.bodies("report")
    failures = [run["failure"] for run in report["runs"]]
    assert [failure and failure["code"] for failure in failures] == codes
    assert report["failure"] == (failures[-1] if ends else None)
    told = ["failed" if code else "reached" for code in codes]
    assert [run["status"] for run in report["runs"]] == told


def test_events_and_report_survive_a_server_that_restarts(make_attempt, fake_server, make_job):
    fake_server.answers["evaluations"] = [(503, {})] * 3 + [(200, {"proceed": True})]
    fake_server.answers["report"] = [(503, {}), (503, {}), (200, {})]
    make_attempt(make_job())
    posted = {event["sequence"] for event in fake_server.events()}
    assert posted == set(range(max(posted) + 1))
    first, second, third = fake_server.bodies("report")
    assert first == second == third
    assert first["runs"][0]["status"] == "reached"


DIGITS = Path(__file__).parents[2] / "benchmarks" / "digits.toml"


def test_local_training_writes_a_submission_and_logs_that_read_back(tmp_path, capfd):
    out = tmp_path / "out"
    given = ["--runs", "2", "--out", str(out), "--seed", "40", "--device", "cpu"]
    assert main([str(DIGITS), *given]) == 0
    events = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [event["sequence"] for event in events] == list(range(len(events)))
    ends = [event["status"] for event in events if event["kind"] == "run_finished"]
    assert ends == ["reached", "reached"]
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
        assert 5 <= len(run.evaluations) <= 12
        assert run.status == "success"
        qualities = [e["quality"] for e in trained]
        assert [e.quality for e in run.evaluations] == pytest.approx(qualities)
        assert run.evaluations[-1].seconds == pytest.approx(trained[-1]["seconds"], abs=0.002)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("digits.toml --set batch_size=64.5", "whole number"),
        ("digits.toml --set momentum=0.8", "closed division"),
        ("digits.toml --division mixed", "closed or open"),
        ("cifar10.toml --device cpu --data-dir data", "benchmark fetch cifar10 --data data"),
        ("digits.toml --device cpu --out /dev/null/out", "Cannot write in /dev/null/out"),
        ("absent.toml", "absent.toml"),
        ("digits.toml --device cuda", "no GPU can be used from here"),
    ],
)
def test_impossible_training_makes_no_folder(tmp_path, capsys, monkeypatch, arguments, said):
    monkeypatch.setattr("worker.local.choose_device", lambda device: device)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    name, *options = arguments.split()
    assert main([str(DIGITS.with_name(name)), "--out", str(tmp_path / "out"), *options]) == 2
    told = capsys.readouterr()
    assert (told.out, said in told.err) == ("", True)
    assert list(tmp_path.iterdir()) == []


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


def test_the_share_of_the_processor_is_told_once_the_clock_has_run_long_enough(record):
    start(record)
    tell(record, "phase", 107.0, phase="eval")
    # From 103 s to 107 s: the fake's processor clock is its wall clock.
    assert record.processor_share(least_seconds=4.0) == 1.0
    assert record.processor_share(least_seconds=4.1) is None


def test_events_tell_the_seconds_and_the_ledger_so_far(record, events):
    start(record)
    evaluate(record, 105.0, 98.0)
    record.close("")
    assert [event.sequence for event in events] == list(range(7))
    ledgers = [event.ledger or {} for event in events]
    told = [
        (each.kind, each.seconds, ledger.get("train"), ledger.get("warmup"))
        for each, ledger in zip(events, ledgers, strict=True)
    ]
    assert told == [
        ("run_started", None, None, None),
        ("phase", None, 0.0, 0.0),
        ("phase", 0.0, 0.0, 1.0),
        ("phase", 0.5, 0.0, 1.0),
        ("phase", 1.75, 1.25, 1.0),
        ("evaluation", 2.0, 1.25, 1.0),
        ("run_finished", 2.0, 1.25, 1.0),
    ]
    assert events[-1].status == "reached"


def test_the_end_tells_the_processor_time_and_why_the_run_failed(record, events):
    start(record)
    evaluate(record, 105.0, 50.0)
    tell(record, "failure", 106.0, code="training_diverged", message="not a number")
    run = record.close("")
    assert events[-1].failure == run.failure is not None
    assert events[-1].cpu_seconds == run.cpu_seconds is not None


class CountingSensors:
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


DIVERGED = {"code": "training_diverged", "message": "not a number"}


@pytest.mark.parametrize(
    ("quality", "clock", "end", "status", "code"),
    [
        (98.0, 105.0, None, "reached", None),
        (98.0, 104.92, None, "reached", None),  # Within the tolerance.
        (98.0, 104.9, None, "failed", "clock_mismatch"),
        (98.0, 103.0, None, "failed", "clock_mismatch"),  # It stands still.
        (50.0, 105.0, ("end", 105.1, {}), "not_reached", None),
        (50.0, 105.0, ("end", 106.0, {"clock": 104.0}), "failed", "clock_mismatch"),
        (50.0, 103.6, ("failure", 106.0, DIVERGED), "failed", "training_diverged"),
    ],
)
def test_a_run_is_held_to_two_clocks(record, quality, clock, end, status, code):
    start(record)
    evaluate(record, 105.0, quality, clock=clock)
    if end is not None:
        kind, at, fields = end
        tell(record, kind, at, **fields)
    run = record.close("")
    assert (run.status, run.failure and run.failure.code) == (status, code)
    assert run.tta_seconds == (2.0 if status == "reached" else None)


def test_a_closed_run_tells_its_seconds_its_ledger_and_its_log(record):
    start(record)
    evaluate(record, 105.0, 50.0)
    tell(record, "end", 106.0, clock=105.98, cpu=104.5)
    run = record.close("the last words")
    [evaluation] = run.evaluations
    spent = [evaluation.ledger[phase] for phase in ("init", "train", "eval")]
    assert (evaluation.seconds, spent) == (2.0, [2.0, 1.25, 0.25])
    # From the first phase after the warm-up, at 103 s, to the last line.
    assert run.parent_seconds == 3.0
    assert run.child_seconds == pytest.approx(2.98)
    assert run.cpu_seconds == 1.5
    phases = {"init": 2.0, "warmup": 1.0, "data": 0.5, "train": 1.25, "eval": 1.25}
    assert {name: seconds for name, seconds in run.ledger.items() if seconds} == phases
    assert run.log_tail == "the last words"


@pytest.mark.parametrize(
    "line",
    [b"not json\n", b"[1, 2]\n", b'{"event": "applause"}\n', b'{"event": "phase"}\n', b"\xff\n"],
)
def test_a_line_that_is_no_event_fails_a_run_which_has_no_seconds(record, events, line):
    record.read(line, 101.0)
    assert record.failure.code == "child_died"
    run = record.close("")
    assert run.status == "failed"
    assert (run.parent_seconds, run.child_seconds, run.cpu_seconds) == (None, None, None)
    assert (events[-1].kind, events[-1].seconds) == ("run_finished", None)


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


@pytest.mark.parametrize(
    ("qualities", "end"),
    [
        ([98.0, 97.9], ("reached", 4.0)),
        ([50.0, 60.0], ("reached", 4.0)),
        ([], ("not_reached", None)),
    ],
)
def test_at_a_fixed_stop_the_last_evaluation_counts(make_job, announcer, qualities, end):
    job = make_job()
    job = replace(job, target=replace(job.target, fixed_stop=True))
    record = RunRecorder(job, 0, at=100.0, announcer=announcer)
    start(record)
    for at, quality in zip((105.0, 107.0), qualities, strict=False):
        evaluate(record, at, quality)
        assert record.status is None
    tell(record, "end", 107.0)
    run = record.close("")
    assert (run.status, run.tta_seconds) == end
