"""What people copy from a screen is whole, however narrow the screen is."""

import io
from pathlib import Path

from rich.console import Console

from finishline.cli.board_tables import benchmark_table, leaderboard_table
from finishline.cli.screen import Screen, as_it_is
from finishline.cli.submission_tables import verdict_lines
from finishline.cli.up.paths import VarPaths
from finishline.cli.up.services import Plan, RedisAddress
from finishline.cli.up.start import UpOptions, invitation
from finishline.cli.worker_tables import queue_table


def narrow_screen(width: int) -> tuple[Screen, io.StringIO]:
    written = io.StringIO()
    console = Console(file=written, width=width, force_terminal=True, color_system=None)
    return Screen(as_json=False, console=console), written


def test_the_commands_that_up_prints_are_one_line_each_and_name_its_own_folder() -> None:
    var = Path("/srv/a folder with a long name/of a competition")
    plan = Plan(VarPaths(var), "127.0.0.1", 8000, RedisAddress(None))
    options = UpOptions("127.0.0.1", 8000, var, worker=True, demo=None, once=False)
    screen, written = narrow_screen(60)

    screen.say_as_is(*invitation(options, plan))

    settings = (
        f"export FINISHLINE_DATABASE_URL='sqlite:///{var}/finishline.db' "
        f"FINISHLINE_ARTIFACTS_DIR='{var}/artifacts' "
        f"FINISHLINE_SIGNING_KEY='{var}/signing-key.pem'"
    )
    lines = written.getvalue().splitlines()
    assert any(line.endswith(settings) for line in lines)
    assert any(
        line.endswith(" python -m server.admin token --user YOU --role admin") for line in lines
    )


def test_the_ids_of_what_waits_are_whole_beside_a_long_reason() -> None:
    waiting = {
        "position": 1,
        "verification_id": "5da07f0b9618183",
        "kind": "replay",
        "benchmark": "spring",
        "asked_at": "2030-01-01T12:00:00Z",
        "why_unknown": "every worker of its hardware class is paused or draining, and says so",
    }
    screen, written = narrow_screen(100)

    screen.say(queue_table({"classes": [{"hardware_class": "cpu-amd-epyc", "waiting": [waiting]}]}))

    assert "5da07f0b9618183" in written.getvalue()
    assert "cpu-amd-epyc" in written.getvalue()


def test_a_failed_attempt_is_told_in_two_sentences() -> None:
    failure = {"code": "clock_mismatch", "message": "It measured 1 s.", "next_step": "Look there."}
    [line] = [
        str(each)
        for each in verdict_lines({"attempts": [{"number": 1, "failure": failure}]})
        if "failed" in str(each)
    ]
    assert line == "  attempt 1 failed (clock_mismatch): It measured 1 s. Look there."


ENTRY = {
    "rank": 1, "tta_display": "0:00:10", "tta_seconds": 9.429, "runs_reached": 1, "runs_started": 1,
    "epochs_to_target": 15.0, "cost_usd": 0.105006, "evidence": "claimed",
    "submitter": "Four authors of one laboratory, each with a first name and a second one",
    "model": "Custom ResNet 9", "system": {"name": "Tesla V100 * 8 GPU / 488 GB / 56 CPU"},
    "submission_id": "nkdf7dywwe82",
}  # fmt: skip


def test_a_board_on_a_narrow_terminal_keeps_names_and_ids_and_names_what_it_left_out() -> None:
    screen, written = narrow_screen(80)

    screen.say(leaderboard_table({"entries": [ENTRY]}))

    header, row, told = (line.rstrip() for line in written.getvalue().splitlines())
    assert max(map(len, (header, row, told))) <= 80
    assert header.split()[-4:] == ["submitter", "model", "system", "submission"]
    assert "seconds" not in header
    assert row.endswith("nkdf7dywwe82")
    assert all(name in row for name in ("Four autho", "Custom Res", "Tesla V100", "0:00:10"))
    assert told.startswith("Columns left out on a narrow terminal: epochs, seconds")


def test_a_board_of_costs_keeps_the_cost_on_a_narrow_terminal() -> None:
    screen, written = narrow_screen(80)

    screen.say(leaderboard_table({"entries": [ENTRY], "metric": "cost"}))

    assert "$0.105006" in written.getvalue()


def test_a_board_that_fits_is_whole() -> None:
    screen, written = narrow_screen(240)

    screen.say(leaderboard_table({"entries": [ENTRY]}))

    header, row = written.getvalue().splitlines()
    assert header.split() == [
        "rank", "TTA", "seconds", "CV", "runs", "epochs", "cost", "evidence", "submitter", "model",
        "system", "submission",
    ]  # fmt: skip
    assert str(ENTRY["submitter"]) in row
    assert "Left out" not in written.getvalue()


def test_the_targets_of_benchmarks_can_be_read_on_a_narrow_terminal() -> None:
    target = {"metric": "mask-LM accuracy", "value": 0.72, "unit": "fraction",
              "direction": "higher"}  # fmt: skip
    benchmark = {"id": "mlperf-v4.1-stable_diffusion", "target": target, "clock": "mlperf",
                 "runs": {"count": 10}, "divisions": ["closed", "open"], "replayable": True,
                 "submissions": 62, "phases": {"phase": "open"}}  # fmt: skip
    screen, written = narrow_screen(80)

    screen.say(benchmark_table([benchmark]))

    first, second, third, told = written.getvalue().splitlines()
    assert "mask-LM accuracy" in second
    assert "≥ 0.7200" in third
    assert "mlperf-v4.1-stable_diffusion" in second
    assert first.split()[:2] == ["benchmark", "target"]
    assert told.rstrip() == "Columns left out on a narrow terminal: divisions, clock."


def test_a_path_to_be_copied_is_not_broken_at_a_blank() -> None:
    screen, written = narrow_screen(40)
    path = "results/a/folder/with/a/long/name/result_0.txt"

    screen.say(as_it_is(("refused", "red"), f" {path}: 1 problem"))

    assert written.getvalue().splitlines() == [f"refused {path}: 1 problem"]
