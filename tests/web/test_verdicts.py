"""Verdicts, measurements and settings in words."""

from web.progress import reads_between_evaluations, short_reason, verdict_checks
from web.run_measurements import (
    Setting,
    measured_columns,
    stated_settings,
)


def test_epochs_between_evaluations_are_marked():
    """7, 8 and 7 whole epochs, whose curves cross the target after 6.89 on average."""
    whole = {"result": {"epochs_to_target": 7.3333}}

    def judged(epochs):
        numbers = {"claimed_mean_epochs": epochs}
        return {"reasons": [{"code": "convergence_agrees", "numbers": numbers}, {"numbers": {}}]}

    assert reads_between_evaluations(judged(6.8903), whole)
    assert not reads_between_evaluations(judged(7.3331), whole)
    assert not reads_between_evaluations(judged(6.8903), {"result": {"epochs_to_target": None}})
    assert not reads_between_evaluations({"reasons": []}, whole)


def test_head_to_head_has_a_short_sentence():
    def line(ratio, kind="head_to_head", outcome="challenger_faster"):
        numbers = {"ratio": ratio, "pairs": 10.0, "challenger_won": 9.0}
        reason = {"message": "all well", "numbers": numbers}
        return {"kind": kind, "outcome": outcome, "reason": reason}

    quick = "Over 10 pairs it was 50 times as fast as Ann, and won 9 of them."
    assert short_reason(line(0.02), "Ann") == quick
    faster = "Over 10 pairs it took 0.900 times as long as first place, and won 9 of them."
    assert short_reason(line(0.9)) == faster
    stays = "Over 10 pairs it took 1.02 times as long as first place, which stays."
    assert short_reason(line(1.0228, outcome="not_proven")) == stays
    assert short_reason(line(0.02, "replay")) == "All well"
    told = "not proven, chance: the challenger reached 1.08 points more than the holder (95"
    numbers = {"pairs": 30, "challenger_won": 20}
    budget = line(1) | {"reason": {"message": told, "numbers": numbers}}
    assert short_reason(budget, "Ann") == "It reached 1.08 points more than Ann over 30 pairs."


def replay(*reasons):
    return {"kind": "replay", "outcome": "verified", "reasons": list(reasons)}


def reason(code, weight, message="said", **numbers):
    return {"code": code, "weight": weight, "message": message, "numbers": numbers}


def test_checks_have_one_order():
    checks = verdict_checks(replay(reason("reached_target", "supports", "3 of 3 replays reached")))

    assert [(name, found and found["weight"]) for name, found in checks] == [
        ("Reached the target", "supports"),
        ("Learned like the reference", None),
        ("Same number of epochs", None),
        ("Speed as claimed", None),
    ]
    assert verdict_checks({"kind": "latency", "outcome": "verified", "reasons": []}) == []


def test_heaviest_reason_speaks_for_its_check():
    untimed = reason("worker_drifted", "note", "time was not compared: the worker was slow")
    slow = reason("slower_than_claimed", "rejects", ratio=2.0, tolerated_ratio=1.5)
    assert verdict_checks(replay(untimed, slow))[3][1] == slow
    assert verdict_checks(replay(untimed))[3][1] == untimed


def verification(*runs, utilisation):
    reported = [{"index": index, "telemetry": telemetry} for index, telemetry in enumerate(runs)]
    return {"report": {"runs": reported}, "utilisation": utilisation}


def used(run, **figures):
    nothing = dict.fromkeys(("samples_per_second", "achieved_flops", "utilisation", "missing"))
    return {"run": run} | nothing | figures


def test_columns_are_those_that_a_run_fills():
    shown = verification(
        {"energy_joules": None, "memory_peak_bytes": 3 * 2**20, "communication_share": 0.25},
        {"energy_joules": 5430.5, "memory_peak_bytes": None},
        utilisation=[
            used(0, samples_per_second=45_678.9, achieved_flops=2.5e12),
            used(1, utilisation=0.4217),
        ],
    )

    assert measured_columns(shown) == {
        "Samples per second": ["45,679", "–"],
        "Energy, timed": ["–", "5,430\u00a0J"],
        "Memory, peak": ["3.000\u00a0MiB", "–"],
        "In communication": ["25.0\u00a0%", "–"],
        "Model FLOP/s": ["2,500\u00a0GFLOP/s", "–"],
        "MFU": ["–", "42.2\u00a0%"],
    }


def test_replay_without_telemetry_has_no_column():
    assert measured_columns({"report": None, "utilisation": []}) == {}
    assert measured_columns(verification({}, utilisation=[])) == {}


def test_settings_of_logs_follow_the_claims():
    runs = [{"settings": {"batch_size": 64.0, "opt_base_learning_rate": 0.00055}}] * 2
    submission = {"hyperparameters": {"batch_size": 64.0}, "runs": runs}

    assert stated_settings(submission) == [
        Setting("batch_size", "64", by_logs=False),
        Setting("opt_base_learning_rate", "0.00055", by_logs=True),
    ]


def test_runs_that_differ_show_every_value():
    runs = [{"settings": {"lora_rank": 16.0}}, {"settings": {"lora_rank": 32.0}}]
    found = stated_settings({"hyperparameters": {}, "runs": runs})

    assert [each.text for each in found] == ["16, 32"]


def test_run_without_settings_states_none():
    assert stated_settings({"hyperparameters": {}, "runs": [{"settings": None}]}) == []
