"""Output on a screen: tables, figures, a replay's lines, and words on wrong usage."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from finishline.cli.answers import queue_lines
from finishline.cli.commands.board import leaderboard_lines
from finishline.cli.listings import table_of
from finishline.cli.screen import Screen, as_it_is, open_console
from finishline.cli.tables import cost_text, make_table, number_text, quality_text, seconds_text
from finishline.cli.watching import share_of_way
from finishline.rules.benchmarks.quality import QualityTarget
from server.commands.paths import VarPaths
from server.commands.services import LocalWorker, Plan
from server.commands.up import invitation
from tests.support.boards import as_row


def narrow_screen(width):
    written = io.StringIO()
    console = Console(file=written, width=width, force_terminal=True, color_system=None)
    return Screen(as_json=False, console=console), written


def test_the_commands_that_up_prints_are_one_line_each_and_name_its_own_folder():
    var = Path("/srv/a folder with a long name/of a competition")
    plan = Plan(VarPaths(var), "127.0.0.1", 8000, var / "redis.sock")
    screen, written = narrow_screen(60)

    workers = [LocalWorker("", "the processor")]
    screen.say(*map(as_it_is, invitation(plan, workers, is_demo=False)))

    lines = written.getvalue().splitlines()
    for name in ("demo", "admin"):
        export = f"FINISHLINE_URL={plan.url} FINISHLINE_TOKEN=$(cat '{var}/tokens/{name}.token')"
        assert any(line.endswith(export) for line in lines)
    assert any(line.endswith(f"finishline admin backup --var '{var}'") for line in lines)
    assert "Worker local: the processor" in lines


ENTRY = {
    "rank": 1, "tta_display": "0:00:10", "tta_seconds": 9.429, "runs_reached": 1, "runs_started": 1,
    "epochs_to_target": 15.0, "cost_usd": 0.105006, "evidence": "claimed",
    "submitter": "Four authors of one laboratory, each with a first name and a second one",
    "model": "Custom ResNet 9", "system": {"name": "Tesla V100 * 8 GPU / 488 GB / 56 CPU"},
    "submission_id": "nkdf7dywwe82",
}  # fmt: skip
BOARD = {"entries": [as_row(ENTRY)]}
WAITING = {
    "position": 1, "verification_id": "5da07f0b9618183", "kind": "replay", "benchmark": "spring",
    "asked_at": "2030-01-01T12:00:00Z",
    "why_unknown": "every worker of its hardware class is paused, and its page says by whom",
}  # fmt: skip
BENCHMARK = {
    "id": "mlperf-v4.1-stable_diffusion", "clock": "mlperf", "runs": {"count": 10},
    "target": {"metric": "mask-LM accuracy", "value": 0.72, "unit": "fraction",
               "direction": "higher"},
    "divisions": ["closed", "open"], "replayable": True, "submissions": 62,
    "phases": {"phase": "open"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "width", "shown", "left_out"),
    [
        (queue_lines({"classes": [{"hardware_class": "cpu-amd-epyc", "waiting": [WAITING]}]}, {}),
         100, ("5da07f0b9618183", "cpu-amd-epyc"), None),
        (leaderboard_lines(BOARD), 80,
         ("Four autho", "Custom Res", "Tesla V100", "9.43 s", "nkdf7dywwe82"),
         "Columns left out on a narrow terminal: epochs, seconds"),
        (leaderboard_lines(BOARD | {"metric": "cost"}), 80, ("$0.105006",), "epochs"),
        (leaderboard_lines(BOARD), 240, (ENTRY["submitter"], "seconds"), None),
        ([table_of("benchmarks", [BENCHMARK])], 80,
         ("mask-LM accuracy", "≥ 0.7200", "mlperf-v4.1-stable_diffusion"),
         "Columns left out on a narrow terminal: divisions, clock."),
    ],
)  # fmt: skip
def test_narrow_table_keeps_ids_and_says_what_it_leaves_out(lines, width, shown, left_out):
    screen, written = narrow_screen(width)

    screen.say(*lines)

    lines = [line.rstrip() for line in written.getvalue().splitlines()]
    assert max(map(len, lines)) <= width
    assert [word for word in shown if word not in written.getvalue()] == []
    assert (left_out or "") in lines[-1]
    assert ("left out" in lines[-1]) == (left_out is not None)


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


@pytest.mark.parametrize(
    ("usd", "shown"),
    [(None, "–"), (0.0, "$0.000000"), (2.0, "$2.00"), (0.25, "$0.250000"), (0.000012, "$0.000012"),
     (1e-9, "$1e-09")],
)  # fmt: skip
def test_a_cost_keeps_digits_that_tell_something(usd, shown):
    assert cost_text(usd) == shown


@pytest.mark.parametrize("figure", [1.5e15, 1e300, -1e308])
def test_no_figure_fills_a_terminal_with_digits(figure):
    assert number_text(figure, unit=" %") == f"{figure:.3g} %"
    assert quality_text(figure, "percent") == f"{figure:.3g} %"
    assert quality_text(figure, "loss", target=figure * 2) == f"{figure:.3g}"
    assert seconds_text(abs(figure)) == f"{abs(figure):.3g} s"
    assert cost_text(abs(figure)) == f"${abs(figure):.3g}"


@pytest.mark.parametrize(
    ("quality", "target", "unit", "shown"),
    [
        (58500 / 599, 97.5, "percent", "97.66 %"),
        (97.5, 97.5, "percent", "97.50 %"),
        (0.74998, 0.75, "fraction", "0.74998"),
        (97.4999999, 97.5, "percent", "97.500000 %"),
        (97.496, None, "percent", "97.50 %"),
    ],
)
def test_quality_below_target_shows_its_digits(quality, target, unit, shown):
    assert quality_text(quality, unit, target=target) == shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["chek"], "No such command 'chek'. Did you mean 'check'? See `finishline --help`."),
        (["admin", "user", "approve"], "Missing argument 'NAME'. See `finishline admin user approve"
         " --help`."),
        (["admin", "rescore", "--definition", "x"], "Invalid value for '--definition': 'x' is not "
         "one of 'stored', 'current'. See `finishline admin rescore --help`."),
        (["import"], "Missing argument 'dawnbench|mlperf|nanogpt'. Choose from: dawnbench, mlperf, "
         "nanogpt. See `finishline import --help`."),
    ],
)  # fmt: skip
def test_wrong_call_is_told_in_sentences(finishline, arguments, said):
    ran = finishline(*arguments)

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.lower() == f"error: {said}\n".lower()


@pytest.mark.parametrize("arguments", [[], ["admin"], ["admin", "price"]])
def test_no_command_is_answered_with_the_help_alone(finishline, arguments):
    ran = finishline(*arguments)

    assert (ran.code, ran.err) == (2, "")
    assert "Usage: " + " ".join(["finishline", *arguments]) in ran.out


@pytest.mark.parametrize("command", [["admin", "price", "add"], ["proof", "--log"]])
def test_of_a_file_that_is_not_there_its_name_is_told_once(finishline, command, tmp_path):
    ran = finishline(*command, str(tmp_path / "gone"))

    assert ran.code == 1
    assert ran.err.count("gone") == 1
    assert "(No such file or directory)" in ran.err


@pytest.mark.parametrize(
    ("target", "quality", "way"),
    [
        ((97.5, "percent", "higher"), 97.5, 1.0),
        ((97.5, "percent", "higher"), 48.75, 0.5),
        ((97.5, "percent", "higher"), None, 0.0),
        ((0.8, "nats/byte", "lower"), 1.6, 0.5),
        ((0.8, "nats/byte", "lower"), 0.7, 1.0),
    ],
)
def test_way_to_the_target(target, quality, way):
    assert share_of_way(QualityTarget("quality", *target), quality) == pytest.approx(way)
