"""What is made of a run's sensors, on ones that say what a test wants."""

import threading

import pytest

from finishline.rules.scoring.run import Clock, Phase
from worker.sensors import open_sensors
from worker.telemetry import Reading, Telemetry


class FakeSensors:
    """A counter that a test sets; readings one after the other, the last one again and again."""

    source = "nvml"

    def __init__(self, *readings):
        self.joules = 1_000.0
        self.readings = list(readings) or [Reading()]
        self.asked = 0
        self.changed = threading.Condition()

    def energy_joules(self):
        return self.joules

    def read(self):
        with self.changed:
            self.asked += 1
            self.changed.notify_all()
        return self.readings.pop(0) if len(self.readings) > 1 else self.readings[0]

    def wait_for_readings(self, count):
        with self.changed:
            assert self.changed.wait_for(lambda: self.asked >= count, timeout=20)


def follow(sensors, phases):
    """Spend so many joules in each phase, one after the other."""
    telemetry = Telemetry(sensors, every_seconds=60.0)
    for phase, joules in phases:
        telemetry.enter(phase, on_clock=phase not in (Phase.INIT, Phase.WARMUP))
        sensors.joules += joules
    telemetry.stop()
    return telemetry


PHASES = [
    (Phase.WARMUP, 100.0),
    (Phase.DATA, 1.0),
    (Phase.TRAIN, 20.0),
    (Phase.EVAL, 3.0),
    (Phase.TRAIN, 40.0),
]


@pytest.mark.parametrize(
    ("clock", "joules"),
    [
        ("mlperf", 1 + 20 + 3 + 40),  # all but the preparation
        ("dawnbench", 100 + 1 + 20 + 40),  # all but the evaluation
        ("speedrun", 1 + 20 + 40),  # neither
    ],
)
def test_energy_is_that_of_the_phases_on_the_benchmarks_clock(clock, joules):
    summary = follow(FakeSensors(), PHASES).summary(Clock(clock), samples=640)
    assert summary.energy_joules == pytest.approx(joules)
    assert summary.samples_per_joule == pytest.approx(640 / joules)
    assert summary.energy_source == "nvml"


def test_a_counter_that_is_lost_during_a_run_makes_its_energy_absent():
    sensors = FakeSensors()
    telemetry = Telemetry(sensors, every_seconds=60.0)
    telemetry.enter(Phase.TRAIN, on_clock=True)
    sensors.joules = None
    telemetry.enter(Phase.EVAL, on_clock=True)
    sensors.joules = 2_000.0
    telemetry.stop()
    summary = telemetry.summary(Clock("mlperf"), samples=1)
    assert (summary.energy_joules, summary.energy_source) == (None, None)
    assert summary.samples_per_joule is None


def test_a_counter_that_starts_again_makes_the_energy_absent():
    sensors = FakeSensors()
    telemetry = Telemetry(sensors, every_seconds=60.0)
    telemetry.enter(Phase.TRAIN, on_clock=True)
    sensors.joules = 3.0  # The driver was loaded again.
    telemetry.stop()
    assert telemetry.summary(Clock("mlperf"), samples=1).energy_joules is None


def test_readings_are_taken_while_the_clock_runs():
    sensors = FakeSensors(Reading(watts=100, celsius=40), Reading(watts=300, celsius=55))
    telemetry = Telemetry(sensors, every_seconds=0.005)
    telemetry.enter(Phase.TRAIN, on_clock=True)
    sensors.wait_for_readings(2)
    telemetry.stop()
    summary = telemetry.summary(Clock("mlperf"), samples=1)
    assert summary.readings >= 2
    assert summary.power_max_watts == 300
    assert 100 < summary.power_mean_watts < 300
    assert summary.temperature_max_celsius == 55
    assert summary.clock_mean_mhz is None


def test_a_run_without_sensors_knows_its_memory_alone():
    telemetry = Telemetry(None)
    telemetry.enter(Phase.TRAIN, on_clock=True)
    telemetry.note_memory(resident=5, accelerator=None)
    telemetry.note_memory(resident=3, accelerator=None)
    telemetry.stop()
    summary = telemetry.summary(Clock("mlperf"), samples=64)
    assert (summary.memory_peak_bytes, summary.accelerator_memory_peak_bytes) == (5, None)
    assert (summary.readings, summary.energy_joules, summary.power_mean_watts) == (0, None, None)


def test_a_training_on_an_accelerator_is_never_given_the_processors_energy(monkeypatch):
    monkeypatch.setattr("worker.sensors.open_nvml", lambda *, visible: None)
    monkeypatch.setattr("worker.sensors.open_powercap", lambda: FakeSensors())
    assert open_sensors("cuda") is None
    assert open_sensors("cpu") is not None
