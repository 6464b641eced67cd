"""A stored figure that no training has breaks no page; one that would rank does not.

A claim with one is refused. What was stored before it was, or published elsewhere, may have any.
"""

import re
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy.orm.attributes import flag_modified

from finishline.rules.scoring.run import EPOCH, LEDGER, QUALITY, SECONDS
from server.base.board_versions import raise_board_version
from server.base.database import Database
from server.base.models import Submission
from tests.server.test_console import Console
from tests.server.test_inference import enter, send
from tests.support.pages import BROWSER, words_of

pytestmark = pytest.mark.usefixtures("claims_are_numbered")

__all__ = ["send"]  # A fixture.

Change = Callable[[Submission], None]
QUERIES = (
    *("", "?metric=cost", "?clock=speedrun", "?target=90", "?price=2", "?limit=1", "?q=digits"),
    *("?sort=tta&order=desc", "?sort=epochs", "?sort=quality", "?sort=cv"),
)
CHARTS = ("pareto", "records", "curves", "distribution", "survival", "scaling")
# Written out, such a figure has hundreds, and no page is as wide.
TOO_MANY_DIGITS = re.compile(r"(\d[.,:]?){60}")
NO_TIME = "impossible time"


def store(database: Database, submission_id: str, change: Change) -> None:
    """Change the rows of a submission as no claim could."""
    with database.write() as session:
        submission = session.get_one(Submission, submission_id)
        change(submission)
        for row, column in ((submission, "result"), *((run, "curve") for run in submission.runs)):
            assert getattr(row, column)  # What is not loaded cannot be changed.
            flag_modified(row, column)
        raise_board_version(session, submission.benchmark_id, submission_id=submission_id)


def with_time(seconds: float) -> Change:
    def change(submission: Submission) -> None:
        figures = ("tta_seconds", "raw_tta_seconds", "tta_low_seconds", "tta_high_seconds")
        submission.result |= dict.fromkeys((*figures, "evaluation_interval_seconds"), seconds)
        submission.tta_seconds = seconds
        for run in submission.runs:
            run.tta_seconds = seconds
            for row in run.curve:
                row[SECONDS], row[LEDGER] = seconds, dict.fromkeys(row[LEDGER], seconds)

    return change


def with_quality(quality: float) -> Change:
    def change(submission: Submission) -> None:
        submission.result["best_quality"] = quality
        for run in submission.runs:
            run.best_quality = run.curve[-1][QUALITY] = quality

    return change


def with_epochs(epochs: float) -> Change:
    def change(submission: Submission) -> None:
        submission.result["epochs_to_target"] = epochs
        for run in submission.runs:
            run.epochs_to_target = run.convergence = run.curve[-1][EPOCH] = epochs

    return change


def addresses(board: str, one: str, other: str) -> list[str]:
    """Every page and export that shows a submission of a board or two of them side by side."""
    ranked, page, both = f"/api/v1/leaderboards/{board}", f"/benchmarks/{board}", f"{one},{other}"
    return [
        *("/", "/console/account", "/api/v1/submissions", "/api/v1/benchmarks"),
        *(each + query for query in QUERIES for each in (page, ranked, f"{ranked}.csv")),
        *(f"{page}/charts/{name}{end}" for name in CHARTS for end in ("", ".json")),
        *(f"{page}/{name}" for name in ("feed.atom", "convergence", "charts/convergence.json")),
        *(f"/api/v1{page}{end}" for end in ("", "/records", "/runs.json", "/convergence")),
        *(f"/submissions/{one}{end}" for end in ("", "/charts/curves.json", "/badge.svg")),
        *(f"/api/v1/submissions/{one}{end}" for end in ("", "/runs", "/runs/0/curve")),
        f"/api/v1/compare?submissions={both}",
        *(f"/compare?ids={ids}" for ids in (one, both, f"{both}&rows=different")),
        *(f"/compare/charts/{name}.json?ids={both}" for name in ("curves", "times")),
    ]


def places(client: TestClient, board: str, query: str = "") -> list[tuple[Any, ...]]:
    entries = client.get(f"/api/v1/leaderboards/{board}{query}").json()["entries"]
    return [(e["submission_id"], e["rank"], e["unranked_reason"]) for e in entries]


@pytest.fixture
def two(digits_submission: Any, submit: Callable[..., Any]) -> tuple[str, str]:
    """Two submissions of the same claim; the first is to become odd."""
    return submit(digits_submission).json()["id"], submit(digits_submission).json()["id"]


@pytest.mark.parametrize(
    "change",
    [
        *(pytest.param(with_time(s), id=f"{s:g} s") for s in (0.0, -5.0, 5e-324, 1e308)),
        *(pytest.param(with_quality(q), id=f"quality {q:g}") for q in (1e308, -1e308, 5e-324)),
        *(pytest.param(with_epochs(e), id=f"{e:g} epochs") for e in (1e308, 5e-324)),
    ],
)
def test_a_figure_that_no_training_has_breaks_no_page(
    change: Change, two: tuple[str, str], client: TestClient, database: Database, alice: Any
) -> None:
    store(database, two[0], change)
    Console(client, alice)

    for address in addresses("digits", *two):
        accept = {} if address.startswith("/api") else BROWSER
        answer = client.get(address, headers=accept)
        assert answer.status_code == 200, address
        if answer.headers["content-type"].startswith("text/html"):
            assert not TOO_MANY_DIGITS.search(words_of(answer.text)), address


@pytest.mark.parametrize("seconds", [0.0, -5.0, 5e-324, 1e308])
def test_a_time_that_no_training_has_neither_ranks_nor_holds_a_record(
    seconds: float, two: tuple[str, str], client: TestClient, database: Database
) -> None:
    odd, other = two
    store(database, odd, with_time(seconds))

    for query in ("", "?limit=1", "?metric=cost", "?division=closed"):
        assert places(client, "digits", query)[0] == (other, 1, None)
    assert places(client, "digits")[1] == (odd, None, NO_TIME)
    assert NO_TIME in words_of(client.get("/benchmarks/digits", headers=BROWSER).text)
    assert NO_TIME in words_of(client.get(f"/submissions/{odd}", headers=BROWSER).text)
    assert f",{NO_TIME}," in client.get("/api/v1/leaderboards/digits.csv").text
    histories = client.get("/api/v1/benchmarks/digits/records").json()["divisions"]
    holders = [record["submission_id"] for each in histories for record in each["records"]]
    assert holders == [other]


@pytest.mark.parametrize("price", [-1.0, 1e308])
def test_a_cost_that_no_training_has_is_shown_and_does_not_rank(
    price: float, two: tuple[str, str], client: TestClient, database: Database
) -> None:
    odd, other = two

    def change(submission: Submission) -> None:
        submission.system = submission.system | {"price_usd_per_hour": price}

    store(database, odd, change)

    reason = "impossible cost"
    assert places(client, "digits", "?metric=cost") == [(other, 1, None), (odd, None, reason)]
    assert {rank for _, rank, _ in places(client, "digits")} == {1}
    for path in ("/benchmarks/digits?metric=cost", "/benchmarks/digits/charts/pareto.json",
                 f"/submissions/{odd}"):  # fmt: skip
        answer = client.get(path, headers=BROWSER)
        assert answer.status_code == 200, path
        assert not TOO_MANY_DIGITS.search(words_of(answer.text)), path


@pytest.mark.parametrize(
    ("field", "value", "metric", "reason"),
    [
        *(("latency_ms", ms, "latency", "impossible latency")
          for ms in (0.0, 5e-324, 1e308)),
        ("cost_usd_per_10000", 1e308, "inference_cost", "impossible cost"),
    ],
)  # fmt: skip
def test_an_inference_of_a_figure_that_none_has_is_shown_and_does_not_rank(
    field: str,
    value: float,
    metric: str,
    reason: str,
    send: Callable[..., Any],
    client: TestClient,
    database: Database,
) -> None:
    odd, other = enter(send), enter(send, latency=3.0, cost=0.000005)

    def change(submission: Submission) -> None:
        setattr(submission, field, value)
        submission.result[field] = value

    store(database, odd, change)

    by_metric = f"?metric={metric}"
    assert places(client, "cifar10", by_metric) == [(other, 1, None), (odd, None, reason)]
    paths = [
        "/benchmarks/cifar10" + by_metric,
        *("/api/v1/leaderboards/cifar10.csv" + by_metric, "/api/v1/submissions"),
        *(f"{place}/{odd}" for place in ("/submissions", "/api/v1/submissions")),
        *(f"/submissions/{odd}/badge.svg", f"/compare?ids={odd},{other}"),
    ]
    for path in paths:
        assert client.get(path, headers=BROWSER).status_code == 200, path
