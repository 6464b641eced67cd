from collections.abc import Callable
from typing import Any

import pytest

from web.curves_chart import convergence_figure
from web.render import render

View = dict[str, Any]
Make = dict[str, Callable[..., View]]


def traces(figure: View) -> dict[str, View]:
    return {trace["name"]: trace for trace in figure["data"]}


def test_the_figure_has_envelope_limit_points_and_submissions(make: Make) -> None:
    places = (make["place"](), make["place"](id="sub-2", verdict="fail", mean=5.0))
    found = traces(convergence_figure(make["convergence"](*places)))

    assert found["reference mean"]["x"] == [64, 4096]
    assert found["least epochs allowed"]["y"] == [7.9, 10.2]
    assert found["reference point"]["y"] == [8.5, 11.0]
    assert found["pruned point"]["x"] == [128]
    assert found["submission, passes"]["customdata"] == ["/submissions/sub-1"]
    assert found["submission, converges too fast"]["y"] == [5.0]


def test_the_limit_is_drawn_where_submissions_are_held_to_it(make: Make) -> None:
    limit = traces(convergence_figure(make["convergence"](allowance=0.5)))["least epochs allowed"]
    assert limit["y"] == pytest.approx([7.4, 9.7])

    open_points = [p | {"lowest": None} for p in make["convergence"]()["points"]]
    free = make["convergence"](judged=False, points=open_points, envelope=open_points)
    assert "least epochs allowed" not in traces(convergence_figure(free))


def test_a_normalised_submission_says_so_where_it_is_pointed_at(make: Make) -> None:
    places = (make["place"](normalised=True), make["place"](id="sub-2", normalised=False))
    raised, plain = traces(convergence_figure(make["convergence"](*places)))["submission, passes"][
        "text"
    ]

    assert raised.endswith(", normalised")
    assert "normalised" not in plain


def test_wide_axes_are_logarithmic(make: Make) -> None:
    layout = convergence_figure(make["convergence"]())["layout"]

    assert layout["xaxis"]["type"] == "log"
    assert "type" not in layout["yaxis"]


def test_text_of_strangers_is_escaped(make: Make, hostile: str) -> None:
    place = make["place"](model=hostile, submitter=hostile)
    figure = convergence_figure(make["convergence"](place))
    page = render(
        "convergence.html", benchmark=make["benchmark"](), convergence=make["convergence"](place)
    )

    (text,) = traces(figure)["submission, passes"]["text"]
    assert "<img" not in text
    assert "<script" not in text
    assert "<img" not in page


def test_a_normalised_time_is_marked_on_the_board_and_shown_raw_on_its_page(make: Make) -> None:
    entry = make["entry"](rcp=make["rcp"](), tta_seconds=106.25, raw_tta_seconds=100.0)
    plain = make["entry"](submission_id="sub-2", rcp=make["rcp"](factor=1.0, normalised=False))
    board = render(
        "benchmark.html",
        benchmark=make["benchmark"](),
        board=make["board"](entry, plain),
        filters={},
    )
    assert board.count('title="normalised by convergence, × 1.0625; as measured 100.000') == 1

    result = make["result"](rcp=make["rcp"](), tta_seconds=106.25, raw_tta_seconds=100.0)
    page = render("submission.html", submission=make["submission"](result=result))
    assert "0:01:47" in page
    assert "0:01:40" in page
    assert "normalised × 1.0625" in page
