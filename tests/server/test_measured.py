"""What a replay measured beside its time, over its runs."""

from typing import Any

import pytest

from server.pages.measured import measured_beside

pytestmark = pytest.mark.usefixtures("claims_are_numbered")


def report(*telemetry: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    system = {"worker": "walter-1", "hardware_class": "gpu"}
    return {"runs": [{"telemetry": each} for each in telemetry], "system": system} | more


def test_energy_is_the_mean_of_the_runs_that_have_it_and_memory_the_most() -> None:
    one = {"energy_joules": 10.0, "energy_source": "nvml", "memory_peak_bytes": 5}
    other = {"energy_joules": 30.0, "energy_source": "nvml", "memory_peak_bytes": 7}
    without = {"energy_joules": None, "memory_peak_bytes": None}
    found = measured_beside(report(one, other, without, None, precision={"lowest": "bf16"}))

    assert found is not None
    assert found["energy_joules"] == 20.0
    assert found["energy_sources"] == ["nvml"]
    assert found["memory_peak_bytes"] == 7
    assert found["power_mean_watts"] is None
    assert (found["precision"], found["runs"], found["worker"]) == ("bf16", 3, "walter-1")


def test_a_report_without_measurements_has_nothing_to_show() -> None:
    assert measured_beside(None) is None
    assert measured_beside(report(None)) is None
