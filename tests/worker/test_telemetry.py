"""Sensors, energy counters and surroundings, in folders and libraries that play the host."""

import sys
import threading
from types import SimpleNamespace

import pytest

from finishline.rules.run import Clock, Phase
from worker.events import accelerator_peak_bytes, resident_peak_bytes
from worker.machine.probe import accelerator_facts, describe_surroundings
from worker.machine.sensors import Reading, Telemetry, open_nvml, open_powercap, open_sensors


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


@pytest.mark.parametrize("then", [(None, 2_000.0), (3.0,)])
def test_a_counter_that_is_lost_or_starts_again_makes_the_energy_absent(then):
    sensors = FakeSensors()
    telemetry = Telemetry(sensors, every_seconds=60.0)
    telemetry.enter(Phase.TRAIN, on_clock=True)
    for joules in then[:-1]:
        sensors.joules = joules
        telemetry.enter(Phase.EVAL, on_clock=True)
    sensors.joules = then[-1]
    telemetry.stop()
    summary = telemetry.summary(Clock("mlperf"), samples=1)
    assert (summary.energy_joules, summary.energy_source) == (None, None)
    assert summary.samples_per_joule is None


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
    monkeypatch.setattr("worker.machine.sensors.open_nvml", lambda uuids: None)
    monkeypatch.setattr("worker.machine.sensors.open_powercap", lambda: FakeSensors())
    assert open_sensors("cuda") is None
    assert open_sensors("cpu") is not None


class NVMLError(Exception):
    pass


NVML_ANSWERS = {
    "nvmlDeviceGetTotalEnergyConsumption": {"GPU-a": 1_000, "GPU-b": 5_000},
    "nvmlDeviceGetPowerUsage": {"GPU-a": 300_000, "GPU-b": 400_000},
    "nvmlDeviceGetClockInfo": {"GPU-a": 1980, "GPU-b": 1000},
    "nvmlDeviceGetTemperature": {"GPU-a": 50, "GPU-b": 61},
    "nvmlDeviceGetUtilizationRates": {
        "GPU-a": SimpleNamespace(gpu=100), "GPU-b": SimpleNamespace(gpu=50)
    },
    "nvmlDeviceGetHandleByUUID": {"GPU-a": "GPU-a", "GPU-b": "GPU-b"},
}  # fmt: skip


class FakeNvml:
    NVML_CLOCK_SM = 1
    NVML_TEMPERATURE_GPU = 0
    NVMLError = NVMLError

    def __init__(self, *, lacking=(), driver=True):
        self.lacking, self.driver, self.fallen = lacking, driver, None

    def nvmlInit(self):
        if not self.driver:
            raise NVMLError("driver not loaded")

    def __getattr__(self, name):
        if name not in NVML_ANSWERS:
            raise AttributeError(name)

        def answer(handle, *_):
            if name in self.lacking or handle == self.fallen:
                raise NVMLError("not supported")
            return NVML_ANSWERS[name][handle]

        return answer


ENERGY, POWER = "nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetPowerUsage"


@pytest.mark.parametrize(
    ("cards", "lacking", "joules", "watts", "means", "celsius"),
    [
        ("GPU-a GPU-b", (), 6.0, 700.0, (1490.0, 75.0), 61),
        ("GPU-b", (), 5.0, 400.0, (1000.0, 50.0), 61),  # Only those of the training count.
        ("GPU-a GPU-b", (ENERGY, POWER), None, None, (1490.0, 75.0), 61),
    ],
)
def test_energy_is_a_sum_over_accelerators(cards, lacking, joules, watts, means, celsius):
    sensors = open_nvml(cards.split(), library=FakeNvml(lacking=lacking))
    assert sensors.energy_joules() == joules
    reading = sensors.read()
    assert (reading.watts, reading.celsius) == (watts, celsius)
    assert (reading.clock_mhz, reading.utilisation_percent) == means


def test_an_accelerator_that_falls_off_the_bus_during_a_run_costs_its_energy_alone():
    library = FakeNvml()
    sensors = open_nvml(["GPU-a", "GPU-b"], library=library)
    telemetry = Telemetry(sensors, every_seconds=60.0)
    telemetry.enter(Phase.TRAIN, on_clock=True)
    library.fallen = "GPU-b"
    telemetry.enter(Phase.EVAL, on_clock=True)
    library.fallen = None
    telemetry.stop()
    assert telemetry.summary(Clock("mlperf"), samples=1).energy_joules is None
    library.fallen = "GPU-b"
    assert sensors.read() == Reading()


def test_without_driver_accelerator_or_library_there_are_no_sensors(monkeypatch):
    assert open_nvml(["GPU-a", "GPU-b"], library=FakeNvml(driver=False)) is None
    assert open_nvml([], library=FakeNvml()) is None
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert open_nvml(["GPU-a"]) is None


@pytest.fixture
def package(tmp_path):
    def make(index, *, microjoules, wraps_at=1000000):
        folder = tmp_path / f"intel-rapl:{index}"
        folder.mkdir(exist_ok=True)
        (folder / "energy_uj").write_text(f"{microjoules}\n")
        (folder / "max_energy_range_uj").write_text(f"{wraps_at}\n")
        return folder / "energy_uj"

    return make


def test_energy_counts_from_the_first_look_over_all_packages(package, tmp_path):
    """A counter may wrap around, and a part of a package does not count twice."""
    one, two = package(0, microjoules=100_000), package(1, microjoules=900_000)
    part = package("0:0", microjoules=0)
    sensors = open_powercap(tmp_path)
    assert sensors.energy_joules() == 0.0
    one.write_text("350000")
    part.write_text("500000")
    two.write_text("50000")  # 100,000 up to its end, 50,000 after it.
    assert sensors.energy_joules() == pytest.approx(0.4)
    two.write_text("60000")
    assert sensors.energy_joules() == pytest.approx(0.41)
    one.unlink()
    assert sensors.energy_joules() is None


def test_a_host_without_readable_counters_has_no_sensors(package, tmp_path):
    assert open_powercap(tmp_path / "absent") is None
    package(0, microjoules="not a number")
    assert open_powercap(tmp_path) is None


def test_container_nodes_governor_and_limit_are_read_from_the_host(tmp_path):
    def write(path, text):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    names = ("container", "numa_nodes", "governor", "processor_power_limit")
    assert [describe_surroundings(root=tmp_path)[name] for name in names] == [None] * 4
    write("proc/self/cgroup", "0::/system.slice/docker-" + "ab" * 32 + ".scope\n")
    for node in range(11):
        write(f"sys/devices/system/node/node{node}/cpulist", f"{node}\n")
    write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n")
    write("sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw", "350000000\n")
    found = describe_surroundings(image_digest="sha256:1", root=tmp_path)
    assert found["container"] == "ab" * 32
    assert (found["governor"], found["processor_power_limit"]) == ("performance", "350 W")
    assert found["image_digest"] == "sha256:1"
    assert found["kernel"]
    assert found["numa_nodes"].endswith("9: 9, 10: 10")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("570.1, 143771 MiB, 700.00 W", ("570.1", "143771 MiB", "700.00 W")),
        ("570.1, 143771 MiB, [N/A]", ("570.1", "143771 MiB", None)),
        ("", (None, None, None)),
    ],
)
def test_power_limit_comes_from_the_drivers_tool(tmp_path, monkeypatch, said, expected):
    tool = tmp_path / "nvidia-smi"
    listed = "GPU 0: NVIDIA H200 (UUID: GPU-1)"
    tool.write_text(f"#!/bin/sh\n[ $1 = -L ] && echo '{listed}' || echo '{said}'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    facts = accelerator_facts()
    assert (facts["driver"], facts["accelerator_memory"], facts["power_limit"]) == expected


def test_peak_of_the_resident_set_is_in_bytes(tmp_path):
    status = tmp_path / "status"
    assert resident_peak_bytes(status) is None
    status.write_text("Name:\tpython\nVmPeak:\t 900 kB\nVmHWM:\t   512 kB\nVmRSS:\t 400 kB\n")
    assert resident_peak_bytes(status) == 512 * 1024
    assert 2**20 < resident_peak_bytes() < 2**50


def test_accelerators_are_added_up_once_torch_uses_them(monkeypatch):
    cuda = SimpleNamespace(
        is_initialized=lambda: True,
        device_count=lambda: 2,
        max_memory_allocated=[100, 50].__getitem__,
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert accelerator_peak_bytes() == 150
    cuda.is_initialized = lambda: False
    assert accelerator_peak_bytes() is None
