"""What is said of a command that was not written as it should be."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Finishline


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["chek"], "No such command 'chek'. Did you mean 'check'? See `finishline --help`."),
        (["check"], "Missing argument 'PATH'. See `finishline check --help`."),
        (["admin", "user", "disable"], "Missing argument 'NAME'. See `finishline admin user disable"
         " --help`."),
        (["rescore", "--definition", "x"], "Invalid value for '--definition': 'x' is not one of "
         "'stored', 'current'. See `finishline rescore --help`."),
        (["run", "digits", "--runs", "0"], "Invalid value for '--runs': Input should be greater "
         "than or equal to 1. See `finishline run --help`."),
    ],
)  # fmt: skip
def test_a_wrong_call_is_told_in_sentences_with_the_help_of_its_command(
    finishline: "Finishline", arguments: list[str], said: str
) -> None:
    ran = finishline(*arguments)

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.lower() == f"error: {said}\n".lower()


@pytest.mark.parametrize("arguments", [[], ["admin"], ["prices"]])
def test_no_command_is_answered_with_the_help_alone(
    finishline: "Finishline", arguments: list[str]
) -> None:
    ran = finishline(*arguments)

    assert (ran.code, ran.err) == (2, "")
    assert "Usage: " + " ".join(["finishline", *arguments]) in ran.out


@pytest.mark.parametrize("command", [["prices", "import"], ["check-proof", "--log"]])
def test_of_a_file_that_is_not_there_its_name_is_told_once(
    finishline: "Finishline", command: list[str], tmp_path: Path
) -> None:
    ran = finishline(*command, str(tmp_path / "gone"))

    assert ran.code == 1
    assert ran.err.count("gone") == 1
    assert "(No such file or directory)" in ran.err
