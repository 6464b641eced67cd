import re
from collections.abc import Callable
from typing import Any

from web.records_chart import HEIGHT, WIDTH, record_sparkline
from web.render import render

Make = dict[str, Callable[..., dict[str, Any]]]
# The records of CIFAR-10 training in DAWNBench that opened each year.
DAWNBENCH = [("2017-10-11", 349838.7), ("2018-01-31", 4075.0), ("2019-04-14", 73.8)]


def records(*rows: tuple[str, float]) -> list[dict[str, Any]]:
    return [{"date": date, "tta_seconds": seconds} for date, seconds in rows]


def test_a_history_goes_down_in_steps_and_says_so_in_words() -> None:
    line = record_sparkline(records(*DAWNBENCH))

    assert line is not None
    assert re.fullmatch(r"M[\d.]+ [\d.]+(H[\d.]+V[\d.]+){2}H[\d.]+", line.path)
    assert line.words == "3 records, from 97:10:39 on 2017-10-11 down to 0:01:14 on 2019-04-14"


def test_equal_ratios_are_equal_steps() -> None:
    # 100, 10 and 1 second: on a logarithmic scale the second stands half way down.
    line = record_sparkline(
        records(("2020-01-01", 100.0), ("2020-01-11", 10.0), ("2020-01-21", 1.0))
    )

    assert line is not None
    top, middle, bottom = (float(y) for y in re.findall(r"(?:V|^M[\d.]+ )([\d.]+)", line.path))
    assert middle - top == bottom - middle
    assert 0 < top < bottom < HEIGHT
    assert (line.end_x, line.end_y) == (WIDTH - 3, bottom)


def test_a_time_that_no_training_has_is_drawn_as_the_shortest_that_is_measured() -> None:
    def last(*seconds: float) -> float:
        line = record_sparkline(records(("2020-01-01", seconds[0]), ("2020-01-11", seconds[1])))
        assert line is not None
        return line.end_y

    assert last(1.0, 0.0) == last(1.0, 0.001) > last(0.001, 0.0)


def test_one_record_or_one_day_is_no_history() -> None:
    assert record_sparkline([]) is None
    assert record_sparkline(records(DAWNBENCH[0])) is None
    same_day = records(("2026-11-21T14:22:13+00:00", 9.0), ("2026-11-21T14:22:14+00:00", 8.0))
    assert record_sparkline(same_day) is None


def test_a_card_shows_the_line_with_its_words(make: Make) -> None:
    history = [
        make["record"](date=date, tta_seconds=seconds, submission_id=date)
        for date, seconds in DAWNBENCH
    ]
    card = make["benchmark"](records=history)
    page = render("home.html", benchmarks=[card], live=[], live_count=0, verdicts=[])

    words = "3 records, from 97:10:39 on 2017-10-11 down to 0:01:14 on 2019-04-14"
    assert f'role="img" aria-label="{words}"' in page
    assert "3 records since 2017" in page
    assert 'href="/submissions/2019-04-14"' in page
