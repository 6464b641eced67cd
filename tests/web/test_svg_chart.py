"""Figures as SVG: where lines, marks, bands and ticks stand."""

import pytest

from web.chart_parts import axis, band_traces, empty_figure, target_line
from web.svg_chart import draw


def figure(*traces, **layout):
    axes = {"xaxis": axis("Time"), "yaxis": axis("Quality")}
    return {"data": list(traces), "layout": axes | layout}


def line(y, **more):
    return {"type": "scatter", "mode": "lines", "name": "run", "x": [0, 5, 10], "y": y} | more


def test_a_line_runs_between_margins_and_breaks_where_a_value_is_missing():
    [panel] = draw(figure(line([0, None, 10]))).panels
    assert panel.traces[0].path == "M45.5 954.5M954.5 45.5"
    assert [tick.text for tick in panel.x_ticks] == ["0", "2", "4", "6", "8", "10"]
    assert panel.x_ticks[0].at == pytest.approx(100 / 22)


def test_a_logarithmic_axis_sets_ratios_apart():
    marks = {"mode": "markers", "customdata": ["/submissions/a"] * 3, "text": ["1<br>&lt;2"] * 3}
    axes = {"yaxis": axis("Time", [1.0, 10.0, 100.0])}
    [panel] = draw(figure(line([1.0, 10.0, 100.0], **marks), **axes)).panels
    low, middle, high = panel.traces[0].marks
    assert low.y - middle.y == pytest.approx(middle.y - high.y)
    assert (low.words, low.address) == ("1, <2", "/submissions/a")
    assert [tick.text for tick in panel.y_ticks] == ["1", "10", "100"]


def test_a_view_has_a_panel_with_its_own_lines_and_the_band_of_two():
    band = band_traces([{"lower": 1, "upper": 3}, {"lower": 2, "upper": 4}], [0, 10], view="b")
    views = [{"name": each, "label": each, "title": each.upper()} for each in ("a", "b")]
    shapes = [target_line({"value": 5.0})]
    drawing = draw(
        figure(line([1, 2, 3], meta={"view": "a"}), *band, meta={"views": views}, shapes=shapes)
    )
    first, second = drawing.panels
    assert [(each.name, each.is_band) for each in first.traces] == [("run", False)]
    assert [(each.name, each.is_band) for each in second.traces] == [("control-point band", True)]
    assert second.traces[0].path.count("L") == 3
    assert (second.x_title, second.target.text if second.target else "") == ("B", "target 5")


def test_what_cannot_be_drawn_is_a_sentence():
    drawing = draw(empty_figure("A line needs two."))
    assert (drawing.panels, drawing.empty) == ((), "A line needs two.")
