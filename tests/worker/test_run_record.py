import json
from dataclasses import replace

import pytest

from finishline.rules.verification.messages import Absence, LatencyOrder
from worker.telemetry import Reading, Telemetry
from worker.training import RunRecord


@pytest.fixture
def record(make_job, announcer):
    """A run whose process was started at 100 s."""
    return RunRecord(make_job(), 0, at=100.0, announcer=announcer)


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
    record = RunRecord(make_job(), 0, at=100.0, announcer=announcer, telemetry=telemetry)
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
    record = RunRecord(job, 0, at=100.0, announcer=announcer, telemetry=Telemetry(None))
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
    record = RunRecord(make_job(), 0, at=100.0, announcer=announcer)
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
    record = RunRecord(make_job(), 0, at=100.0, announcer=announcer, telemetry=Noting(None))
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
    record = RunRecord(make_job(latency=order), 0, at=100.0, announcer=announcer)
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
    record = RunRecord(job, 0, at=100.0, announcer=announcer)
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
    record = RunRecord(job, 0, at=100.0, announcer=announcer)
    start(record)
    tell(record, "end", 104.0)
    assert record.close("").status == "not_reached"
