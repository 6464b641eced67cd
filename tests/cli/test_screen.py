"""Output on a screen: tables, figures, a replay's lines, and words on wrong usage."""

import io
import time
from pathlib import Path

import pytest
from rich.console import Console

from finishline.cli.board_tables import benchmark_table, leaderboard_table
from finishline.cli.demo import outcome_line
from finishline.cli.replay_screen import (
    Band,
    ReplayProgress,
    Target,
    line_of,
    read_bands,
    read_target,
    show_all,
)
from finishline.cli.screen import Screen, as_it_is, open_console
from finishline.cli.submission_tables import verdict_lines
from finishline.cli.tables import cost_text, make_table, number_text, quality_text, seconds_text
from finishline.cli.up.paths import VarPaths
from finishline.cli.up.services import Plan, RedisAddress
from finishline.cli.up.start import UpOptions, invitation
from finishline.cli.up.workers import LocalWorker
from finishline.cli.worker_tables import queue_table


def narrow_screen(width):
    written = io.StringIO()
    console = Console(file=written, width=width, force_terminal=True, color_system=None)
    return Screen(as_json=False, console=console), written


def test_the_commands_that_up_prints_are_one_line_each_and_name_its_own_folder():
    var = Path("/srv/a folder with a long name/of a competition")
    plan = Plan(VarPaths(var), "127.0.0.1", 8000, RedisAddress(None))
    options = UpOptions("127.0.0.1", 8000, var, devices="cpu", demo=None, once=False)
    screen, written = narrow_screen(60)

    screen.say_as_is(*invitation(options, plan, [LocalWorker("", "the processor")]))

    lines = written.getvalue().splitlines()
    for name in ("demo", "admin"):
        export = f"FINISHLINE_URL={plan.url} FINISHLINE_TOKEN=$(cat '{var}/tokens/{name}.token')"
        assert any(line.endswith(export) for line in lines)
    assert any(line.endswith(f"finishline backup --var '{var}'") for line in lines)
    assert "Worker local: the processor" in lines


def test_the_ids_of_what_waits_are_whole_beside_a_long_reason():
    waiting = {
        "position": 1,
        "verification_id": "5da07f0b9618183",
        "kind": "replay",
        "benchmark": "spring",
        "asked_at": "2030-01-01T12:00:00Z",
        "why_unknown": "every worker of its hardware class is paused, and its page says by whom",
    }
    screen, written = narrow_screen(100)

    screen.say(queue_table({"classes": [{"hardware_class": "cpu-amd-epyc", "waiting": [waiting]}]}))

    assert "5da07f0b9618183" in written.getvalue()
    assert "cpu-amd-epyc" in written.getvalue()


def test_a_failed_attempt_is_told_in_two_sentences():
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


def test_a_board_on_a_narrow_terminal_keeps_names_and_ids_and_names_what_it_left_out():
    screen, written = narrow_screen(80)

    screen.say(leaderboard_table({"entries": [ENTRY]}))

    header, row, told = (line.rstrip() for line in written.getvalue().splitlines())
    assert max(map(len, (header, row, told))) <= 80
    assert header.split()[-4:] == ["submitter", "model", "system", "submission"]
    assert "seconds" not in header
    assert row.endswith("nkdf7dywwe82")
    assert all(name in row for name in ("Four autho", "Custom Res", "Tesla V100", "9.429 s"))
    assert told.startswith("Columns left out on a narrow terminal: epochs, seconds")


def test_a_board_of_costs_keeps_the_cost_on_a_narrow_terminal():
    screen, written = narrow_screen(80)

    screen.say(leaderboard_table({"entries": [ENTRY], "metric": "cost"}))

    assert "$0.105006" in written.getvalue()


def test_a_board_that_fits_is_whole():
    screen, written = narrow_screen(240)

    screen.say(leaderboard_table({"entries": [ENTRY]}))

    header, row = written.getvalue().splitlines()
    assert header.split() == [
        "rank", "TTA", "seconds", "CV", "runs", "epochs", "cost", "evidence", "submitter", "model",
        "system", "submission",
    ]  # fmt: skip
    assert str(ENTRY["submitter"]) in row
    assert "left out" not in written.getvalue()


def test_the_targets_of_benchmarks_can_be_read_on_a_narrow_terminal():
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


def test_a_path_to_be_copied_is_not_broken_at_a_blank():
    screen, written = narrow_screen(40)
    path = "results/a/folder/with/a/long/name/result_0.txt"

    screen.say(as_it_is(("refused", "red"), f" {path}: 1 problem"))

    assert written.getvalue().splitlines() == [f"refused {path}: 1 problem"]


def test_no_text_gives_a_terminal_orders(capsys):
    table = make_table("package")
    table.add_row("\x9b2J\u202egnp")
    for text in (as_it_is("a\x1b]0;b\x07\n c"), "\x1b[2Jd\ud800", table):
        open_console().print(text)

    shown = capsys.readouterr().out
    assert shown.splitlines()[:3] == ["a\ufffd]0;b", " c", "\ufffd[2Jd\ufffd"]
    assert "\ufffd2J\ufffdgnp" in shown


def test_a_cost_keeps_digits_that_tell_something():
    assert [cost_text(usd) for usd in (None, 0.0, 2.0, 0.25, 0.000012)] == [
        "–", "$0.000000", "$2.00", "$0.250000", "$0.000012",
    ]  # fmt: skip
    assert cost_text(1e-9) == "$1e-09"


@pytest.mark.parametrize("figure", [1.5e15, 1e300, -1e308])
def test_no_figure_fills_a_terminal_with_digits(figure):
    assert number_text(figure, unit=" %") == f"{figure:.3g} %"
    assert quality_text(figure, "percent") == f"{figure:.3g} %"
    assert quality_text(figure, "loss", target=figure * 2) == f"{figure:.3g}"
    assert seconds_text(abs(figure)) == f"{abs(figure):.3g} s"
    assert cost_text(abs(figure)) == f"${abs(figure):.3g}"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["chek"], "No such command 'chek'. Did you mean 'check'? See `finishline --help`."),
        (["check"], "Missing argument 'PATH'. See `finishline check --help`."),
        (["admin", "user", "approve"], "Missing argument 'NAME'. See `finishline admin user approve"
         " --help`."),
        (["admin", "rescore", "--definition", "x"], "Invalid value for '--definition': 'x' is not "
         "one of 'stored', 'current'. See `finishline admin rescore --help`."),
        (["run", "digits", "--runs", "0"], "Invalid value for '--runs': Input should be greater "
         "than or equal to 1. See `finishline run --help`."),
    ],
)  # fmt: skip
def test_a_wrong_call_is_told_in_sentences_with_the_help_of_its_command(
    finishline, arguments, said
):
    ran = finishline(*arguments)

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.lower() == f"error: {said}\n".lower()


@pytest.mark.parametrize("arguments", [[], ["admin"], ["prices"]])
def test_no_command_is_answered_with_the_help_alone(finishline, arguments):
    ran = finishline(*arguments)

    assert (ran.code, ran.err) == (2, "")
    assert "Usage: " + " ".join(["finishline", *arguments]) in ran.out


@pytest.mark.parametrize("command", [["prices", "import"], ["check-proof", "--log"]])
def test_of_a_file_that_is_not_there_its_name_is_told_once(finishline, command, tmp_path):
    ran = finishline(*command, str(tmp_path / "gone"))

    assert ran.code == 1
    assert ran.err.count("gone") == 1
    assert "(No such file or directory)" in ran.err


CLAIMED = {"evidence": "claimed", "unranked_reason": "claimed: the epochs agree"}


def test_a_busy_machine_is_named_as_the_reason():
    verification = {"reasons": [{"code": "within_band"}, {"code": "noisy_host"}]}
    said = outcome_line(CLAIMED, verification).plain
    assert said.endswith("took part of the processor; run it again on a quiet machine.")
    assert outcome_line(CLAIMED, {"reasons": []}).plain == (
        "Not measured: claimed: the epochs agree."
    )


DIGITS = Target(metric="top1Accuracy", value=97.5, unit="percent", direction="higher")


def evaluation(run, quality, **more):
    return {
        "kind": "evaluation",
        "run": run,
        "quality": quality,
        "epoch": 1.0,
        "seconds": 0.5,
    } | more


def test_each_evaluation_is_held_against_the_band_of_its_number():
    bands = read_bands(
        [
            {"index": 1, "mean": 15.0, "lower": 10.0, "upper": 20.0},
            {"index": 2, "mean": 45.0, "lower": 40.0, "upper": 50.0},
        ]
    )
    progress = ReplayProgress(DIGITS, bands=bands)
    places = [
        progress.take_event(evaluation(0, 20.0)).place,
        progress.take_event(evaluation(0, 39.9)).place,
        progress.take_event(evaluation(0, 99.0)).place,
        progress.take_event(evaluation(1, 20.1)).place,
    ]
    assert places == ["inside", "below", None, "above"]


@pytest.mark.parametrize(
    ("quality", "target", "unit", "shown"),
    [
        (58400 / 599, 97.5, "percent", "97.496 %"),  # 584 of 599, where 585 reach it
        (58500 / 599, 97.5, "percent", "97.66 %"),
        (97.5, 97.5, "percent", "97.50 %"),
        (0.74998, 0.75, "fraction", "0.74998"),
        (97.4999999, 97.5, "percent", "97.500000 %"),
        (97.496, None, "percent", "97.50 %"),
    ],
)
def test_a_quality_just_short_of_its_target_does_not_read_as_the_target(
    quality, target, unit, shown
):
    assert quality_text(quality, unit, target=target) == shown


def test_the_line_of_a_run_just_short_of_its_target_says_so():
    progress = ReplayProgress(DIGITS)
    run = progress.take_event(evaluation(0, 58400 / 599))
    assert "97.496 %" in line_of(run, progress).plain


def test_band_edges_are_inside():
    assert Band(10.0, 20.0).place_of(10.0) == Band(10.0, 20.0).place_of(20.0) == "inside"


def test_a_second_attempt_starts_all_over():
    progress = ReplayProgress(DIGITS)
    progress.take_event({"attempt": 1} | evaluation(0, 50.0))
    progress.take_event({"attempt": 1} | evaluation(1, 60.0))
    progress.take_event({"attempt": 2} | evaluation(0, 12.0))
    assert [(run.index, run.quality) for run in progress.runs.values()] == [(0, 12.0)]


@pytest.mark.parametrize(
    ("target", "quality", "way"),
    [
        (DIGITS, 97.5, 1.0),
        (DIGITS, 48.75, 0.5),
        (DIGITS, 99.0, 1.0),
        (DIGITS, None, 0.0),
        (Target("loss", 0.8, "nats/byte", "lower"), 1.6, 0.5),
        (Target("loss", 0.8, "nats/byte", "lower"), 0.7, 1.0),
    ],
)
def test_way_to_the_target(target, quality, way):
    assert target.fraction_of_way(quality) == pytest.approx(way)


def test_a_line_tells_epoch_quality_seconds_place_and_end():
    progress = ReplayProgress(DIGITS, bands={1: Band(10.0, 20.0)})
    run = progress.take_event(evaluation(0, 14.8, epoch=1.0, seconds=0.1234))
    assert line_of(run, progress).plain.split() == [
        "epoch", "1", "14.80", "%", "0.123", "s", "inside", "10.00..20.00",
    ]  # fmt: skip
    progress.bands = {2: Band(-3.0, 101.5)}
    wide = progress.take_event(evaluation(0, 90.0, epoch=2.0, seconds=0.2))
    assert line_of(wide, progress).plain.endswith(" 0.00..100.00")
    ended = progress.take_event({"kind": "run_finished", "run": 0, "status": "below_band"})
    assert line_of(ended, progress).plain.endswith("  below band")


def test_a_warm_up_tells_how_long_it_has_taken(monkeypatch):
    clock = iter((100.0, 512.4))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    progress = ReplayProgress(DIGITS)
    run = progress.take_event({"kind": "phase", "run": 0, "phase": "warmup"})
    assert line_of(run, progress).plain == "warming up, on made-up data, 412 s"
    monkeypatch.undo()
    phases = [{"kind": "phase", "run": 0, "phase": name} for name in ("compile", "data", "train")]
    written = io.StringIO()
    screen = Screen(as_json=False, console=Console(file=written, width=80))
    show_all(screen, ReplayProgress(DIGITS), [*phases, evaluation(0, 50.0)])
    lines = [line.split() for line in written.getvalue().splitlines()]
    assert [line[2] for line in lines] == ["compiling,", "reading", "epoch"]


def test_target_is_read_from_a_view():
    view = {"metric": "top1Accuracy", "value": 97.5, "unit": "percent", "direction": "higher"}
    assert read_target(view) == DIGITS
