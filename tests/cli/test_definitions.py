"""A benchmark of a server's own: its definition goes into the folder that run and check read."""

from pathlib import Path
from typing import TYPE_CHECKING

from tests.cli.test_check import write_submission

if TYPE_CHECKING:
    from conftest import Finishline, StandIn

DIGITS = Path(__file__).parents[2] / "benchmarks" / "digits.toml"
SPRING = DIGITS.read_bytes().replace(b'id = "digits"', b'id = "spring"')
PATH = "GET /api/v1/benchmarks/spring.toml"


def test_a_fetched_definition_is_the_one_that_a_submission_is_checked_under(
    finishline: "Finishline", standin: "StandIn", tmp_path: Path
) -> None:
    folder, submission = tmp_path / "benchmarks", write_submission(tmp_path / "mine")
    here = ("--benchmarks-dir", str(folder))
    for file in submission.iterdir():
        file.write_bytes(file.read_bytes().replace(b'"digits"', b'"spring"'))
    standin.answer(PATH, SPRING)

    for before in (("run", "spring"), ("check", str(submission))):
        assert "finishline benchmark fetch" in finishline(*before).err
    ran = finishline("benchmark", "fetch", "spring", *here)

    assert ran.code == 0, ran.err
    assert (folder / "spring.toml").read_bytes() == SPRING
    assert finishline("check", str(submission), *here).code == 0


def test_a_file_that_says_otherwise_is_replaced_only_if_that_is_asked_for(
    finishline: "Finishline", standin: "StandIn", tmp_path: Path
) -> None:
    mine = tmp_path / "spring.toml"
    mine.write_text("title = 'mine'")
    fetch = ("benchmark", "fetch", "spring", "--benchmarks-dir", str(tmp_path))
    standin.answer(PATH, SPRING)

    refused = finishline(*fetch)

    assert (refused.code, mine.read_text()) == (1, "title = 'mine'")
    assert "--replace" in refused.err
    assert finishline(*fetch, "--replace").code == 0
    assert finishline(*fetch).code == 0
    assert mine.read_bytes() == SPRING


def test_an_answer_that_is_no_definition_writes_nothing(
    finishline: "Finishline", standin: "StandIn", tmp_path: Path
) -> None:
    standin.answer(PATH, b"<html>")
    ran = finishline("benchmark", "fetch", "spring", "--benchmarks-dir", str(tmp_path))
    assert ran.code == 1
    assert "spring.toml: not TOML" in ran.err
    assert not list(tmp_path.iterdir())
