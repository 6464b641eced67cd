"""The settings that a claim states and those that its logs add."""

from web.run_measurements import Setting, stated_settings


def test_what_only_the_logs_state_follows_the_claims_own_settings() -> None:
    runs = [{"settings": {"batch_size": 64.0, "opt_base_learning_rate": 0.00055}}] * 2
    submission = {"hyperparameters": {"batch_size": 64.0}, "runs": runs}

    assert stated_settings(submission) == [
        Setting("batch_size", (64.0,), by_logs=False),
        Setting("opt_base_learning_rate", (0.00055,), by_logs=True),
    ]


def test_runs_that_differ_show_every_value() -> None:
    runs = [{"settings": {"lora_rank": 16.0}}, {"settings": {"lora_rank": 32.0}}]
    found = stated_settings({"hyperparameters": {}, "runs": runs})

    assert [each.text for each in found] == ["16, 32"]


def test_a_run_stored_without_its_settings_states_none() -> None:
    assert stated_settings({"hyperparameters": {}, "runs": [{"settings": None}, {}]}) == []
