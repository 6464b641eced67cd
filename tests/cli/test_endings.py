"""The ends that a command comes to by what is around it: closed outputs, Ctrl-C, wrong servers."""

import os
import sys
from pathlib import Path

import pytest

from finishline.cli import processes, start
from finishline.cli.client import ServerClient
from finishline.cli.main import main

BENCHMARKS = "GET /api/v1/benchmarks"


@pytest.mark.parametrize(
    "command", [["--help"], ["--version"], ["board", "--json"], ["admin", "queue", "list"]]
)
def test_a_reader_that_has_seen_enough_is_no_failure(command, standin, monkeypatch):
    standin.answer(BENCHMARKS, {"benchmarks": []})
    standin.answer("GET /api/v1/queue", {"classes": [], "waiting": 0})
    monkeypatch.setenv("FINISHLINE_URL", standin.url)
    read, written = os.pipe()
    os.close(read)
    with os.fdopen(written, "w", buffering=1) as output:
        monkeypatch.setattr(sys, "stdout", output)

        assert main(command) == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is full")
def test_a_full_disk_is_told_in_a_sentence(finishline, standin, monkeypatch):
    standin.answer(BENCHMARKS, {"benchmarks": []})
    with Path("/dev/full").open("w", buffering=1) as output:
        monkeypatch.setattr(sys, "stdout", output)
        done = finishline("board", "--json")

    assert (done.code, done.error()["message"]) == (
        1,
        "Cannot use the output (No space left on device).",
    )


def test_a_command_without_outputs_does_its_work(finishline, standin, monkeypatch):
    standin.answer(BENCHMARKS, {"benchmarks": []})
    monkeypatch.setattr(sys, "stdout", None)
    try:
        done = finishline("board")
    finally:
        sys.stdout.close()

    assert (done.code, done.err) == (0, "")


PRINTS = """
import sys
for line in ("a library says hello", "{", "[1]", '"text"', '{"seed": 1}', "[" * 100_000):
    print(line)
print("warming up", "error: no memory", sep=chr(10), file=sys.stderr)
sys.exit(7)
"""


@pytest.mark.parametrize(
    "command",
    ["benchmark check mine", "benchmark fetch digits --check", "run digits", "run ./package"],
)
def test_prints_of_a_child_are_no_events(command, finishline, tmp_path, monkeypatch):
    root = Path.cwd()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FINISHLINE_BENCHMARKS_DIR", str(root / "benchmarks"))
    assert finishline("benchmark", "init", "mine").code == 0
    assert finishline("init", "package").code == 0
    spawn = processes.spawn
    monkeypatch.setattr(
        processes, "spawn", lambda _, **given: spawn([sys.executable, "-c", PRINTS], **given)
    )

    done = finishline(*command.split(), "--json")

    assert (done.code, done.error()["message"][-9:]) in [(1, "no memory"), (4, "no memory")]


def test_up_says_that_it_trains_no_code(finishline, standin, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))  # There is no bubblewrap.
    taken = standin.url.rpartition(":")[2]
    ran = finishline("up", "--port", taken, "--var", str(tmp_path / "var"))
    assert (ran.code, "apt install bubblewrap" in ran.out) == (4, True)


def test_an_interrupted_command_says_so(finishline, monkeypatch, capsys):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(ServerClient, "get", interrupt)
    while_asking = finishline("board")
    monkeypatch.setattr(start, "import_module", interrupt)

    assert (while_asking.code, while_asking.err) == (130, "Interrupted by Ctrl-C.\n")
    assert start.main() == 130
    assert capsys.readouterr().err == "Interrupted by Ctrl-C.\n"


def test_a_server_of_another_kind_is_told_with_the_field_that_it_lacks(finishline, standin):
    standin.answer(BENCHMARKS, {"message": "welcome"})
    standin.answer("GET /api/v1/calibrations", {"calibrations": [{"id": "c1"}]})

    other, older = finishline("board"), finishline("benchmark", "calibrate", "list")

    assert (other.code, older.code) == (4, 4)
    assert f"Unexpected answer from {standin.url}: no field 'benchmarks'. Check --url" in other.err
    assert "no field 'benchmark'." in older.err


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("run", "has no training.toml; expected code with a training.toml"),
        ("check", "with a submission.json and its logs, or one with code and a training.toml"),
        ("submit", "with a submission.json and its logs, or one with code and a training.toml"),
    ],
)
def test_a_folder_that_is_no_submission_is_told_what_it_lacks(command, words, finishline, tmp_path):
    done = finishline(command, str(tmp_path))

    assert done.code in (1, 2)
    assert words in " ".join(done.err.split())


def test_a_long_list_of_problems_is_cut_at_a_terminal(finishline, tmp_path):
    (tmp_path / "training.toml").write_text("")
    for number in range(60):
        (tmp_path / f"{number}.bin").write_bytes(b"\xff\0")
    done = finishline("check", str(tmp_path))
    listed = finishline("check", str(tmp_path), "--json").error()["problems"]

    assert (done.code, len(done.err.splitlines())) == (1, 22)
    assert f"and {len(listed) - 20} problems more" in done.err
