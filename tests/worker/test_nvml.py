"""The sensors of accelerators, on a library that plays the driver."""

import sys
from types import SimpleNamespace

import pytest

from worker.sensors import open_nvml


class NVMLError(Exception):
    """What the library raises."""


class FakeNvml:
    """Two accelerators; `lacking` names the calls that they do not support."""

    NVML_CLOCK_SM = 1
    NVML_TEMPERATURE_GPU = 0
    NVMLError = NVMLError

    def __init__(self, *, lacking=(), driver=True, count=2):
        self.lacking, self.driver, self.count = lacking, driver, count
        self.millijoules = {0: 1_000, 1: 5_000, "GPU-b": 5_000}

    def nvmlInit(self):  # noqa: N802
        if not self.driver:
            raise NVMLError("driver not loaded")

    def nvmlDeviceGetCount(self):  # noqa: N802
        return self.count

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        if index >= self.count:
            raise NVMLError("invalid argument")
        return index

    def nvmlDeviceGetHandleByUUID(self, name):  # noqa: N802
        return name

    def __getattr__(self, name):
        answers = {
            "nvmlDeviceGetTotalEnergyConsumption": lambda h: self.millijoules[h],
            "nvmlDeviceGetPowerUsage": lambda h: 300_000 if h == 0 else 400_000,
            "nvmlDeviceGetClockInfo": lambda h, kind: 1980 if h == 0 else 1000,
            "nvmlDeviceGetTemperature": lambda h, kind: 50 if h == 0 else 61,
            "nvmlDeviceGetUtilizationRates": lambda h: SimpleNamespace(gpu=100 if h == 0 else 50),
        }
        if name not in answers:
            raise AttributeError(name)
        if name in self.lacking:

            def refuse(*_):
                raise NVMLError("not supported")

            return refuse
        return answers[name]


def test_power_and_energy_are_sums_over_the_accelerators():
    sensors = open_nvml(library=FakeNvml())
    assert sensors.energy_joules() == 6.0
    assert sensors.read().watts == 700.0


def test_clock_and_utilisation_are_means_and_temperature_is_the_highest():
    reading = open_nvml(library=FakeNvml()).read()
    assert (reading.clock_mhz, reading.utilisation_percent, reading.celsius) == (1490.0, 75.0, 61)


@pytest.mark.parametrize(("visible", "joules"), [("1", 5.0), ("GPU-b", 5.0), ("0, 1", 6.0)])
def test_only_the_accelerators_a_training_sees_are_counted(visible, joules):
    assert open_nvml(visible=visible, library=FakeNvml()).energy_joules() == joules


@pytest.mark.parametrize("visible", ["", "7", "none"])
def test_no_visible_accelerator_is_no_sensor(visible):
    assert open_nvml(visible=visible, library=FakeNvml()) is None


def test_a_sensor_that_is_not_supported_is_absent_and_the_others_are_there():
    lacking = ("nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetPowerUsage")
    sensors = open_nvml(library=FakeNvml(lacking=lacking))
    assert sensors.energy_joules() is None
    assert (sensors.read().watts, sensors.read().celsius) == (None, 61)


def test_without_driver_or_accelerator_there_are_no_sensors():
    assert open_nvml(library=FakeNvml(driver=False)) is None
    assert open_nvml(library=FakeNvml(count=0)) is None


def test_without_the_library_there_are_no_sensors(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert open_nvml() is None
