"""The energy counters of processor packages, in a folder that plays the kernel's."""

import pytest

from worker.sensors import open_powercap


@pytest.fixture
def package(tmp_path):
    def make(index, *, microjoules, wraps_at=1_000_000):
        folder = tmp_path / f"intel-rapl:{index}"
        folder.mkdir(exist_ok=True)
        (folder / "energy_uj").write_text(f"{microjoules}\n")
        (folder / "max_energy_range_uj").write_text(f"{wraps_at}\n")
        return folder / "energy_uj"

    return make


def test_energy_counts_from_the_first_look_over_all_packages(package, tmp_path):
    one, two = package(0, microjoules=100_000), package(1, microjoules=0)
    sensors = open_powercap(tmp_path)
    assert sensors.energy_joules() == 0.0
    one.write_text("350000")
    two.write_text("500000")
    assert sensors.energy_joules() == pytest.approx(0.75)


def test_a_counter_that_wraps_around_goes_on_counting(package, tmp_path):
    counter = package(0, microjoules=900_000)
    sensors = open_powercap(tmp_path)
    sensors.energy_joules()
    counter.write_text("50000")  # 100,000 up to its end, 50,000 after it.
    assert sensors.energy_joules() == pytest.approx(0.15)
    counter.write_text("60000")
    assert sensors.energy_joules() == pytest.approx(0.16)


def test_parts_of_a_package_are_not_counted_twice(package, tmp_path):
    package(0, microjoules=0)
    part = package("0:0", microjoules=0)
    sensors = open_powercap(tmp_path)
    sensors.energy_joules()
    part.write_text("500000")
    assert sensors.energy_joules() == 0.0


def test_a_host_without_readable_counters_has_no_sensors(package, tmp_path):
    assert open_powercap(tmp_path / "absent") is None
    package(0, microjoules="not a number")
    assert open_powercap(tmp_path) is None


def test_a_counter_that_vanishes_makes_the_energy_absent(package, tmp_path):
    counter = package(0, microjoules=0)
    sensors = open_powercap(tmp_path)
    sensors.energy_joules()
    counter.unlink()
    assert sensors.energy_joules() is None
