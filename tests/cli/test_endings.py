from pathlib import Path

import pytest

from finishline.cli.up.lifecycle import ending_in_words, last_line, said_since, size_of

FAREWELLS = {"drained: ending": "was drained"}


@pytest.mark.parametrize(
    ("code", "said", "words"),
    [
        (0, "INFO drained: ending\nbye\n", "was drained"),
        (0, "INFO ready\n", "exited without a request to stop (exit code 0)"),
        (1, "INFO drained: ending\n", "died (exit code 1)"),
        (-9, "", "died (SIGKILL)"),
        (-1000, "", "died (signal 1000)"),
    ],
)
def test_only_what_did_not_end_by_order_died(code: int, said: str, words: str) -> None:
    assert ending_in_words(code, said, FAREWELLS) == words


def test_what_an_earlier_process_said_is_not_taken_for_this_ones(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    assert (size_of(log), said_since(log, 0), last_line(log)) == (0, "", "")
    log.write_text("drained: ending\n")
    started = size_of(log)
    with log.open("a") as more:
        more.write("ready \xe9\n\n")

    assert said_since(log, started) == "ready \xe9\n\n"
    assert last_line(log) == "ready \xe9"
    log.write_text("x" * 10_000 + "\nlast\n")
    assert len(said_since(log, 0)) == 8192
