"""The charts of a board: figures and pages, under the board's filters and lens."""

import re
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from fastapi.testclient import TestClient

NAMES = ("pareto", "records", "curves", "distribution", "survival", "scaling")
PAGE = "/benchmarks/digits/charts"

pytestmark = pytest.mark.usefixtures("claims_are_numbered", "shown_claims")


@pytest.fixture
def enter(
    digits_submission: Any, submit: Callable[..., Any], make_log: Callable[..., bytes]
) -> Callable[..., str]:
    """Submits digits runs of a pace on so many accelerators; the id. 8 epochs a run."""

    def send(seconds_per_epoch: float, *, accelerators: int, model: str = "digits cnn") -> str:
        parts = deepcopy(digits_submission)
        parts.claim["model"] = model
        parts.claim["system"] |= {"accelerator": "H200", "accelerator_count": accelerators}
        for index, name in enumerate(parts.logs):
            parts.logs[name] = make_log(
                index, name=name, seconds_per_epoch=seconds_per_epoch + index * 0.004
            )
        response = submit(parts)
        assert response.status_code == 201, response.text
        return str(response.json()["id"])

    return send


@pytest.fixture
def two(enter: Callable[..., str]) -> tuple[str, str]:
    """A slow submission on one accelerator and a fast one on two."""
    return enter(0.2, accelerators=1, model="slow"), enter(0.11, accelerators=2, model="fast")


def figure(client: TestClient, name: str, **query: Any) -> Any:
    response = client.get(f"{PAGE}/{name}.json", params=query)
    assert response.status_code == 200, response.text
    return response.json()


def linked(page: str) -> list[str]:
    return re.findall(r'href="/submissions/(\w+)"', page)


def test_every_chart_has_a_figure_and_a_page_with_the_same_as_a_table(
    two: tuple[str, str], client: TestClient
) -> None:
    board = client.get("/benchmarks/digits").text
    for name in NAMES:
        page = client.get(f"{PAGE}/{name}")
        assert page.status_code == 200, name
        assert figure(client, name)["data"], name
        assert f'data-chart="{PAGE}/{name}.json"' in page.text
        assert set(linked(page.text)) == set(two), name
        assert f'href="{PAGE}/{name}?division=closed#figures"' in board
        assert f'data-chart="{PAGE}/{name}.json?division=closed"' in board


def test_without_a_submission_every_chart_says_what_it_needs(client: TestClient) -> None:
    for name in NAMES:
        page = client.get(f"{PAGE}/{name}").text
        if name == "curves":  # The reference alone has something to show.
            assert figure(client, name)["data"]
            continue
        assert figure(client, name)["layout"]["meta"]["empty"] in page
        assert "data-chart" not in page
        assert 'id="figures"' in page


def test_the_reference_stands_beside_the_curves(two: tuple[str, str], client: TestClient) -> None:
    drawn = figure(client, "curves")
    mean = next(trace for trace in drawn["data"] if trace["name"] == "reference mean")
    band = next(trace for trace in drawn["data"] if trace["name"] == "control-point band")

    assert mean["meta"]["view"] == "epochs"
    assert len(mean["x"]) >= 8
    assert all(y < upper for y, upper in zip(mean["y"], band["y"], strict=False))
    assert drawn["layout"]["shapes"][0]["y0"] == 97.5


def test_of_a_long_curve_an_even_sample_is_read_and_its_figures_are_of_all(
    two: tuple[str, str], client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = client.get(f"{PAGE}/curves").text
    monkeypatch.setattr("server.pages.board_charts.MOST_EVALUATIONS", 3)
    drawn = [t for t in figure(client, "curves")["data"] if t["meta"]["paint"] == "series"]

    assert {len(trace["x"]) for trace in drawn} == {3}
    assert drawn[0]["x"][-1] == pytest.approx(8 * 0.11, rel=0.1)
    assert client.get(f"{PAGE}/curves").text == whole


def test_submissions_are_selected_by_id_once_or_with_commas(
    two: tuple[str, str], client: TestClient
) -> None:
    slow, fast = two
    assert linked(client.get(f"{PAGE}/survival", params={"select": slow}).text) == [slow]
    both = client.get(f"{PAGE}/survival", params={"select": f"{slow}, {fast}"}).text
    assert linked(both) == [slow, fast]
    repeated = client.get(f"{PAGE}/survival?select={fast}&select={slow}").text
    assert linked(repeated) == [fast, slow]
    assert f'value="{slow}" checked' in repeated
    assert figure(client, "survival", select="nobody")["layout"]["meta"]["empty"]
    many = ",".join(f"id{i}" for i in range(13))
    assert client.get(f"{PAGE}/survival.json", params={"select": many}).status_code == 422


def test_filters_and_lens_of_the_board_hold_for_its_charts(
    two: tuple[str, str], client: TestClient
) -> None:
    slow, fast = two
    for name in ("pareto", "curves", "distribution", "survival"):
        assert set(linked(client.get(f"{PAGE}/{name}?q=slow").text)) == {slow}, name
    # Whichever page of the board was looked at, a chart is of all that fits.
    assert set(linked(client.get(f"{PAGE}/pareto?limit=1").text)) == {slow, fast}

    official = figure(client, "survival", select=fast)["data"][0]["x"]
    earlier = figure(client, "survival", select=fast, target=90)["data"][0]["x"]
    assert max(earlier) < max(official)
    at_ninety = figure(client, "curves", target=90)
    assert at_ninety["layout"]["shapes"][0]["y0"] == 90
    assert "Not the official ranking" in client.get(f"{PAGE}/curves?target=90").text


def test_records_are_those_of_everybody_and_say_so_under_filters(
    two: tuple[str, str], client: TestClient
) -> None:
    drawn = figure(client, "records", q="slow")
    assert drawn["layout"]["meta"]["note"].startswith("Records belong to the official ranking")
    assert drawn["data"] == figure(client, "records")["data"]
    assert "note" not in figure(client, "records", division="closed")["layout"]["meta"]
    assert figure(client, "records", division="open")["data"] == []
    assert "Tries: earlier submissions of its submitter" in client.get(f"{PAGE}/records").text


def test_times_are_set_against_what_is_asked_for(two: tuple[str, str], client: TestClient) -> None:
    page = client.get(f"{PAGE}/pareto?against=quality&division=closed").text

    assert 'href="?division=closed&amp;against=energy"' in page
    assert f'data-chart="{PAGE}/pareto.json?division=closed&amp;against=quality"' in page
    assert figure(client, "pareto", against="quality")["layout"]["xaxis"]["title"]["text"] == (
        "Best quality"
    )
    assert "No latency measured yet" in client.get(f"{PAGE}/pareto?against=latency").text
    assert client.get(f"{PAGE}/pareto.json?against=luck").status_code == 422


def test_an_unknown_chart_is_404_and_names_those_there_are(client: TestClient) -> None:
    response = client.get(f"{PAGE}/pie.json")

    assert response.status_code == 404
    assert "pareto, records" in response.json()["detail"]
    assert client.get("/benchmarks/mnist/charts/pareto").status_code == 404
