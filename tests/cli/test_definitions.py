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


def test_check_asks_the_server_for_a_definition_that_is_not_here(
    finishline: "Finishline", standin: "StandIn", tmp_path: Path
) -> None:
    submission = write_submission(tmp_path / "mine")
    for file in submission.iterdir():
        file.write_bytes(file.read_bytes().replace(b'"digits"', b'"spring"'))
    standin.answer(PATH, SPRING)
    standin.answer("GET /api/v1/benchmarks/spring", {"phases": {"sentence": "Open."}})

    ran = finishline("check", str(submission), "--url", standin.url)

    assert ran.code == 0, ran.err
    assert "Accepted by the rules: spring closed" in ran.out


def test_check_says_that_the_server_with_the_definition_does_not_answer(
    finishline: "Finishline", tmp_path: Path
) -> None:
    submission = write_submission(tmp_path / "mine", benchmark="spring")

    ran = finishline("check", str(submission), "--url", "http://127.0.0.1:9")

    assert ran.code == 4
    assert "127.0.0.1:9" in ran.err


def test_a_definition_is_checked_by_itself(finishline: "Finishline", tmp_path: Path) -> None:
    mine = tmp_path / "spring.toml"
    mine.write_bytes(SPRING)

    assert "definition of spring, target" in finishline("check", str(mine)).out
    mine.write_bytes(SPRING.replace(b"[target]", b"[targets]"))
    refused = finishline("check", str(mine))
    assert refused.code == 1
    assert "spring.toml" in refused.err


def test_score_takes_a_definition_file_and_those_of_a_server(
    finishline: "Finishline", standin: "StandIn", tmp_path: Path
) -> None:
    log = write_submission(tmp_path / "mine") / "run_0.log"
    standin.answer("GET /api/v1/benchmarks", {"benchmarks": [{"id": "digits"}, {"id": "spring"}]})
    standin.answer(PATH, SPRING)
    mine = tmp_path / "spring.toml"
    mine.write_bytes(SPRING)

    for option in (("--benchmarks", str(mine)), ("--url", standin.url)):
        assert finishline("score", str(log), *option).code == 0
    asked = [each.path for each in standin.asked]
    assert asked == ["/api/v1/benchmarks", "/api/v1/benchmarks/spring.toml"]
