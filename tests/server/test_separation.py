"""Rows that cannot be told apart, and stored figures that no training has."""

import re

import numpy as np
import pytest
import scipy.stats
from sqlalchemy.orm.attributes import flag_modified

from finishline.rules.run import EPOCH, LEDGER, QUALITY, SECONDS
from finishline.rules.scoring.tta import calibrated_spread
from server.base.board_versions import raise_board_version
from server.base.database import utc_now
from server.base.models import Submission
from server.pages.home import EVIDENCE_OF_ROUND
from tests.server.test_console import Console
from tests.server.test_inference import publish_entry, send
from tests.support.boards import rows_of
from tests.support.build import send_entry
from tests.support.pages import BROWSER, words_of

BOARD = "/api/v1/leaderboards/digits"
COMPARE = "/api/v1/compare"
RECORDS = "/api/v1/benchmarks/digits/records"
LEADER, NEAR, FAR = (0.100, 0.101, 0.102), (0.101, 0.102, 0.103), (0.200, 0.201, 0.202)


def seconds(*paces):
    return [8 * pace + 0.032 for pace in paces]


def welch(first, second, alternative="two-sided"):
    return scipy.stats.ttest_ind(
        np.log(first), np.log(second), equal_var=False, alternative=alternative
    )


def read(client, path=BOARD, **query):
    response = client.get(path, params=query)
    assert response.status_code == 200, response.text
    return response.json()


def test_the_board_says_which_rows_its_runs_cannot_tell_apart(enter, client, digits):
    ids = [enter(*paces) for paces in (LEADER, NEAR, FAR)]

    entries = rows_of(read(client))

    assert [(e["submission_id"], e["rank"]) for e in entries] == list(
        zip(ids, (1, 2, 3), strict=True)
    )
    assert [e["not_separated_from"] for e in entries] == [None, 1, None]
    gaps = [e["visible_gap_percent"] for e in entries]
    assert gaps[0] is gaps[2] is None
    # Both means of three runs each, at the spread that the calibration of digits tells.
    spread = calibrated_spread(digits)
    half = scipy.stats.t.ppf(0.975, spread.degrees_of_freedom) * spread.stdev
    assert gaps[1] == pytest.approx(100 * np.expm1(half * np.sqrt(2 * 0.449)), rel=1e-6)
    assert not {"group", "group_rank", "p_same_as_leader", "single_run"} & set(entries[0])


def test_separation_by_cost_is_of_what_the_runs_cost(enter, client):
    """At a tenth of the price the far one is the cheapest, and nothing is near it."""
    near, leader, far = enter(*NEAR), enter(*LEADER), enter(*FAR, price=0.01)

    entries = rows_of(read(client, metric="cost"))

    apart = [(e["submission_id"], e["not_separated_from"]) for e in entries]
    assert apart == [(far, None), (leader, None), (near, 2)]


def test_a_filter_changes_no_separation(enter, client):
    enter(*LEADER)
    enter(*NEAR)

    (entry,) = rows_of(read(client, limit=1, sort="tta", order="desc"))

    assert (entry["rank"], entry["not_separated_from"]) == (2, 1)


def test_rows_of_inference_are_not_separated(client, publish_entry):
    publish_entry()

    board = read(client, "/api/v1/leaderboards/cifar10", metric="latency", clock="speedrun")

    (entry_view,) = rows_of(board)
    assert (entry_view["rank"], entry_view["not_separated_from"]) == (1, None)
    assert board["what_if"] is None
    assert read(client, "/api/v1/benchmarks/cifar10/records")["divisions"][0]["records"] == []


def test_a_comparison_is_welchs_with_holms_correction(enter, client):
    ids = [enter(*paces) for paces in (LEADER, NEAR, FAR)]

    answer = read(client, COMPARE, submissions=",".join(ids))

    assert answer["benchmark"] == "digits"
    assert [s["submission_id"] for s in answer["submissions"]] == ids
    assert answer["submissions"][0]["run_seconds"] == pytest.approx(seconds(*LEADER), abs=1e-5)
    pairs = {(p["first"], p["second"]): p for p in answer["pairs"]}
    assert list(pairs) == [(ids[0], ids[1]), (ids[0], ids[2]), (ids[1], ids[2])]
    near, far = pairs[ids[0], ids[1]], pairs[ids[0], ids[2]]
    oracle = welch(seconds(*LEADER), seconds(*NEAR))
    one_sided = welch(seconds(*LEADER), seconds(*NEAR), "less").pvalue
    assert near["p_value"] == pytest.approx(oracle.pvalue, rel=1e-3)
    assert near["p_adjusted"] == pytest.approx(oracle.pvalue, rel=1e-3)  # Holm's last step.
    assert near["p_faster"] == pytest.approx(1 - one_sided, rel=1e-3)
    low, high = np.exp(oracle.confidence_interval(0.95))
    assert (near["ratio_low"], near["ratio_high"]) == pytest.approx((low, high), rel=1e-4)
    assert near["p_one_run_faster"] == pytest.approx(7 / 9)  # Of 9 pairs 6 won and 2 equal.
    assert (near["told_apart"], far["told_apart"]) == (False, True)
    other = pairs[ids[1], ids[2]]
    p_far = welch(seconds(*LEADER), seconds(*FAR)).pvalue
    p_other = welch(seconds(*NEAR), seconds(*FAR)).pvalue
    assert p_other < p_far < oracle.pvalue  # Holm's first and second step.
    assert other["p_adjusted"] == pytest.approx(3 * p_other, rel=2e-2)
    assert far["p_adjusted"] == pytest.approx(max(3 * p_other, 2 * p_far), rel=2e-2)
    needed = near["runs_needed"]
    assert near["sentence"].endswith(
        f"A gap of this size needs {needed} runs on each side to show."
    )
    slower = f"{ids[1]} takes 1.01 times as long as {ids[0]}"  # 0.848 s against 0.840 s
    assert f"{slower} over all runs (geometric means, 95" in near["sentence"]
    assert far["sentence"].startswith(f"{ids[0]} is significantly faster than {ids[2]} (p")


def test_equal_submissions_cannot_be_told_apart(enter, client):
    one, other = enter(*LEADER), enter(*LEADER)

    (pair,) = read(client, COMPARE, submissions=f"{one}, {other}")["pairs"]

    assert (pair["ratio"], pair["p_faster"], pair["runs_needed"]) == (1.0, 0.5, None)
    gap = (pair["ratio_high"] / pair["ratio"] - 1) * 100
    seen = f"(p = 1, these runs show gaps of {gap:.2g} % and more)"
    assert pair["sentence"].startswith(f"These runs cannot tell {one} and {other} apart {seen}: ")


def test_a_single_run_and_one_that_never_arrived_are_told_so(client, alice):
    head = "epoch\thours\ttop1Accuracy\n1\t0.1\t90.0\n"
    curves = (head + "2\t0.2\t94.5\n", head + "2\t0.2\t94.6\n", head)
    single, third, never = (send_entry(client, alice, curve=one).json()["id"] for one in curves)

    pairs = read(client, COMPARE, submissions=f"{single},{third},{never}")["pairs"]

    assert [p["p_adjusted"] for p in pairs] == [None, None, None]
    assert "a single run has no spread to test against" in pairs[0]["sentence"]
    assert pairs[0]["ratio"] == 1.0
    assert pairs[1]["sentence"].endswith(f"{never} has no run that reached the target.")
    assert not any(p["told_apart"] for p in pairs)


def test_only_different_known_submissions_of_one_benchmark_are_compared(enter, client, alice):
    for text in ("a", "a,b,c,d,e,f,g", "a,", ""):
        (problem,) = client.get(COMPARE, params={"submissions": text}).json()["problems"]
        assert problem["field"] == "query.submissions", text
        assert problem["expected"] == "2 to 6 different ids, separated by commas"
    made, other = enter(*LEADER), send_entry(client, alice).json()["id"]
    for second, status in ((made, 422), (other, 422), ("nosuch", 404)):
        answer = client.get(COMPARE, params={"submissions": f"{made},{second}"})
        assert answer.status_code == status, second
    assert client.get(COMPARE).status_code == 422
    mixed = client.get(COMPARE, params={"submissions": f"{made},{other}"}).json()
    assert mixed["problems"][0]["expected"] == "submissions of one benchmark"


def test_a_record_falls_only_to_who_is_faster_beyond_chance(enter, client, database):
    assert [d["records"] for d in read(client, RECORDS)["divisions"]] == [[], []]
    first, close, fast = enter(*NEAR), enter(*LEADER), enter(0.05, 0.051, 0.052)
    out = {"status": "rejected", "withdrawn_at": utc_now(), "embargoed": True, "eligible": False}
    for number, (name, value) in enumerate(out.items()):
        lower = enter(0.01, 0.011, 0.012 + number / 1000)
        with database.write() as session:
            setattr(session.get_one(Submission, lower), name, value)
    other_division = enter(*FAR, division="open")

    closed, opened = read(client, RECORDS)["divisions"]

    beaten = [(r["submission_id"], r["beaten"]) for r in closed["records"]]
    assert beaten == [(first, None), (fast, first)]
    assert closed["records"][1]["margin_percent"] == pytest.approx(
        (1 - seconds(0.051)[0] / seconds(0.102)[0]) * 100, abs=0.01
    )
    (missed,) = closed["not_records"]
    assert (missed["submission_id"], missed["holder"]) == (close, first)
    assert missed["submitter"] == "olivia"
    oracle = welch(seconds(*LEADER), seconds(*NEAR), "less").pvalue
    assert missed["p_value"] == pytest.approx(oracle, rel=1e-3)
    assert "not significantly faster than the holder" in missed["reason"]
    assert (closed["division"], opened["division"]) == ("closed", "open")
    assert [r["submission_id"] for r in opened["records"]] == [other_division]


def test_the_home_page_shows_the_first_row_of_an_archive(enter, client, monkeypatch):
    """The lowest published time, also where it is not significantly lower than the record."""
    monkeypatch.setitem(EVIDENCE_OF_ROUND, "open", ("published",))
    holder, lower = enter(*NEAR), enter(*LEADER)

    page = client.get("/").text

    row = page[page.index('href="/benchmarks/digits?division=') :].partition("</tr>")[0]
    assert f'href="/submissions/{lower}"' in row
    assert holder not in row


__all__ = ["publish_entry", "send"]  # Fixtures.


QUERIES = (
    *("", "?metric=cost", "?clock=speedrun", "?target=90", "?price=2", "?limit=1", "?q=digits"),
    *("?sort=tta&order=desc", "?sort=epochs", "?sort=quality", "?sort=cv"),
)
CHARTS = ("pareto", "records", "curves", "distribution", "scaling")
# Written out, such a figure has hundreds, and no page is as wide.
TOO_MANY_DIGITS = re.compile(r"(\d[.,:]?){60}")
NO_TIME = "impossible time"


def store(database, submission_id, change):
    """Change the rows of a submission as no claim could."""
    with database.write() as session:
        submission = session.get_one(Submission, submission_id)
        change(submission)
        for row, column in ((submission, "result"), *((run, "curve") for run in submission.runs)):
            assert getattr(row, column)  # What is not loaded cannot be changed.
            flag_modified(row, column)
        raise_board_version(session, submission.benchmark_id, submission_id=submission_id)


def with_time(seconds):
    def change(submission):
        figures = ("tta_seconds", "raw_tta_seconds", "tta_low_seconds", "tta_high_seconds")
        submission.result |= dict.fromkeys((*figures, "evaluation_interval_seconds"), seconds)
        submission.tta_seconds = seconds
        for run in submission.runs:
            run.tta_seconds = seconds
            for row in run.curve:
                row[SECONDS], row[LEDGER] = seconds, dict.fromkeys(row[LEDGER], seconds)

    return change


def with_quality(quality):
    def change(submission):
        submission.result["best_quality"] = quality
        for run in submission.runs:
            run.best_quality = run.curve[-1][QUALITY] = quality

    return change


def with_epochs(epochs):
    def change(submission):
        submission.result["epochs_to_target"] = epochs
        for run in submission.runs:
            run.epochs_to_target = run.convergence = run.curve[-1][EPOCH] = epochs

    return change


def addresses(board, one, other):
    ranked, page, both = f"/api/v1/leaderboards/{board}", f"/benchmarks/{board}", f"{one},{other}"
    return [
        *("/", "/account", "/api/v1/submissions", "/api/v1/benchmarks"),
        *(each + query for query in QUERIES for each in (page, ranked, f"{ranked}.csv")),
        *(f"{page}/charts/{name}{end}" for name in CHARTS for end in ("", ".json")),
        *(f"{page}/{name}" for name in ("feed.atom", "convergence")),
        *(f"/api/v1{page}{end}" for end in ("", "/records", "/runs.json", "/convergence")),
        *(f"/submissions/{one}{end}" for end in ("", "?tab=runs", "/badge.svg")),
        *(f"/api/v1/submissions/{one}{end}" for end in ("", "/runs", "/runs/0/curve")),
        f"/api/v1/compare?submissions={both}",
        *(f"/compare?ids={ids}" for ids in (one, both)),
    ]


def places(client, board, query=""):
    entries = rows_of(client.get(f"/api/v1/leaderboards/{board}{query}").json())
    return [(e["submission_id"], e["rank"], e["unranked_reason"]) for e in entries]


@pytest.fixture
def two(digits_submission, publish):
    """Two results of the same claim; the first is to become odd."""
    return publish(digits_submission), publish(digits_submission)


@pytest.mark.parametrize(
    "change",
    [
        *(pytest.param(with_time(s), id=f"{s:g} s") for s in (0.0, -5.0, 5e-324, 1e308)),
        *(pytest.param(with_quality(q), id=f"quality {q:g}") for q in (1e308, -1e308, 5e-324)),
        *(pytest.param(with_epochs(e), id=f"{e:g} epochs") for e in (1e308, 5e-324)),
    ],
)
def test_a_figure_that_no_training_has_breaks_no_page(change, two, client, database, alice):
    store(database, two[0], change)
    Console(client, alice)

    for address in addresses("digits", *two):
        accept = {} if address.startswith("/api") else BROWSER
        answer = client.get(address, headers=accept)
        assert answer.status_code == 200, address
        if answer.headers["content-type"].startswith("text/html"):
            assert not TOO_MANY_DIGITS.search(words_of(answer.text)), address


@pytest.mark.parametrize("seconds", [0.0, -5.0, 5e-324, 1e308])
def test_an_impossible_time_holds_no_record(seconds, two, client, database):
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
def test_a_cost_that_no_training_has_is_shown_and_does_not_rank(price, two, client, database):
    odd, other = two

    def change(submission):
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
def test_odd_inference_is_unranked(field, value, metric, reason, publish_entry, client, database):
    odd, other = publish_entry(), publish_entry(latency=3.0, cost=0.000005)

    def change(submission):
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
