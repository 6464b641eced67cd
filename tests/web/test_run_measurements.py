"""What was measured beside a replay: only what some run tells, absent as absent."""

from typing import Any

from web.run_measurements import measured_columns, why_no_utilisation


def verification(*runs: dict[str, Any], utilisation: list[dict[str, Any]]) -> dict[str, Any]:
    reported = [{"index": index, "telemetry": telemetry} for index, telemetry in enumerate(runs)]
    return {"report": {"runs": reported}, "utilisation": utilisation}


def used(run: int, **figures: Any) -> dict[str, Any]:
    nothing = dict.fromkeys(("samples_per_second", "achieved_flops", "utilisation", "missing"))
    return {"run": run} | nothing | figures


def test_a_column_is_shown_where_a_run_fills_it_and_no_other() -> None:
    shown = verification(
        {"energy_joules": None, "memory_peak_bytes": 3 * 2**20, "communication_share": 0.25},
        {"energy_joules": 5430.5, "memory_peak_bytes": None},
        utilisation=[
            used(0, samples_per_second=45_678.9, achieved_flops=2.5e12),
            used(1, utilisation=0.4217),
        ],
    )

    assert [(column.heading, list(column.texts)) for column in measured_columns(shown)] == [
        ("Samples per second", ["45,679", "–"]),
        ("Energy, timed", ["–", "5,430\u00a0J"]),
        ("Memory, peak", ["3.000\u00a0MiB", "–"]),
        ("In communication", ["25.0\u00a0%", "–"]),
        ("Model FLOP/s", ["2,500\u00a0GFLOP/s", "–"]),
        ("MFU", ["–", "42.2\u00a0%"]),
    ]


def test_a_replay_without_telemetry_shows_no_column() -> None:
    assert measured_columns({"report": None, "utilisation": []}) == []
    assert measured_columns(verification({}, utilisation=[])) == []


def test_why_no_run_tells_its_utilisation_is_said_once() -> None:
    told = [used(0, missing="no measured roof")]
    assert why_no_utilisation(verification({}, utilisation=told)) == told[0]["missing"]
    assert why_no_utilisation(verification({}, utilisation=[used(0, utilisation=0.1)])) is None
    assert why_no_utilisation({"report": None}) is None
