"""Inference entries: sent as one JSON without a log, ranked on boards of their own."""

import pytest

from server.base.models import Submission
from server.submissions.rescoring import rescore_submissions
from tests.server.conftest import without_place
from tests.support.boards import rows_of
from tests.support.build import send_entry, take_from_archive, taken
from tests.support.services import services_of

SUBMISSIONS = "/api/v1/submissions"
BOARD = "/api/v1/leaderboards/cifar10"
ENTRY = {
    "version": "v1.0",
    "author": "Ada & Co <b>",
    "authorEmail": "ada@example.org",
    "framework": "any 1.0",
    "model": "small net",
    "hardware": "1 T4 / 16 GB",
    "timestamp": "2019-10-15",
    "latency": 2.5,
    "cost": 0.000004,
    "top1Accuracy": 94.5,
}
CURVE = b"epoch\thours\ttop1Accuracy\n1\t0.5\t90.0\n2\t1.0\t94.5\n"


@pytest.fixture
def send(client, alice):
    def post(*, by=None, form=None, log=None, key=None, **changes):
        entry = {name: value for name, value in (ENTRY | changes).items() if value is not None}
        return send_entry(client, by or alice, entry, curve=log, key=key, **form or {})

    return post


def enter(send, **changes):
    return taken(send(**changes))["id"]


@pytest.fixture
def publish_entry(send, olivia, database):
    def enter_as_archive(**changes):
        submission_id = enter(send, by=olivia, form={"archive": "true"}, **changes)
        take_from_archive(database, submission_id)
        return submission_id

    return enter_as_archive


def places(client, **query):
    entries = rows_of(client.get(BOARD, params=query).json())
    return [(e["submission_id"], e["rank"], e["unranked_reason"]) for e in entries]


def test_an_entry_without_a_log_is_stored_with_its_figures(send, client):
    view = taken(send())

    assert (view["kind"], view["status"], view["division"]) == ("inference", "claimed", "open")
    assert (view["runs"], view["verifications"]) == ([], [])
    result = view["result"]
    shown = (result["latency_ms"], result["quality"], result["metric"])
    assert shown == (2.5, 94.5, "top1Accuracy")
    assert result["cost_usd_per_10000"] == pytest.approx(0.04)
    assert (result["reached"], result["eligible"]) == (True, True)
    assert [step["value"] for step in result["steps"]] == [94.5, 2.5, pytest.approx(0.04)]
    assert without_place(client.get(f"{SUBMISSIONS}/{view['id']}").json()) == view
    assert client.get(f"{SUBMISSIONS}/{view['id']}/runs").json() == {"runs": []}
    listed = client.get(SUBMISSIONS).json()["submissions"]
    assert [without_place(each) for each in listed] == [view]


def test_an_entry_with_a_log_is_a_training_whatever_else_it_states(send, client):
    view = send(log=CURVE, top1Accuracy=None, costPerHour=3.0).json()

    assert (view["kind"], view["result"]["tta_seconds"]) == ("logs", 3600.0)
    assert places(client, metric="latency") == []
    assert places(client) == [(view["id"], None, "claimed: not measured here")]


@pytest.mark.parametrize(
    ("changes", "form", "field"),
    [
        ({"latency": None}, {}, "runs"),
        ({"latency": "2.5"}, {}, "latency"),
        ({"latency": 0}, {}, "latency"),
        ({"latency": -1}, {}, "latency"),
        ({"cost": "4e-6"}, {}, "cost"),
        ({"top1Accuracy": None}, {}, "top1Accuracy"),
        ({"top1Accuracy": None, "top5Accuracy": 99.0}, {}, "top1Accuracy"),
        ({"top1Accuracy": 0.945}, {}, "top1Accuracy"),
        ({}, {"benchmark": "mnist"}, "benchmark"),
        ({}, {"benchmark": "mlperf-v5.1-rgat"}, "benchmark"),
        ({}, {"division": "closed"}, "division"),
    ],
)
def test_bad_entry_leaves_nothing_behind(changes, form, field, send, row_counts, stored_files):
    answer = send(form=form, **changes)

    assert answer.status_code == 422, answer.text
    (problem,) = answer.json()["problems"]
    assert (problem["file"], problem["field"]) == ("entry.json", field)
    assert problem["expected"]
    assert row_counts()["submissions"] == 0
    assert stored_files() == []


def test_an_entry_of_an_archive_stands_under_its_author_and_date(send, client, olivia):
    view = send(by=olivia, form={"archive": "true"}).json()

    assert (view["submitter"], view["submitted_on"]) == ("Ada & Co <b>", "2019-10-15")
    for address in (f"/submissions/{view['id']}", "/benchmarks/cifar10?metric=latency"):
        page = client.get(address).text
        assert "Ada &amp; Co &lt;b&gt;" in page
        assert "2019-10-15" in page


def test_the_boards_rank_inference_by_latency_and_by_cost(publish_entry, client):
    fast = publish_entry(latency=1.0, cost=9e-6)
    cheap = publish_entry(latency=5.0, cost=1e-6)
    unpriced = publish_entry(latency=3.0, cost=None)
    weak = publish_entry(latency=0.1, cost=1e-7, top1Accuracy=93.99)
    publish_entry(log=CURVE)

    below = (weak, None, "did not reach the target")
    by_latency = [(fast, 1, None), (unpriced, 2, None), (cheap, 3, None), below]
    assert places(client, metric="latency") == by_latency
    by_cost = places(client, metric="inference_cost")
    assert by_cost[:2] == [(cheap, 1, None), (fast, 2, None)]
    assert set(by_cost[2:]) == {(unpriced, None, "states no cost"), below}
    board = client.get(BOARD, params={"metric": "latency", "sort": "quality"}).json()
    assert (board["kind"], board["total"]) == ("inference", 4)
    assert [entry["quality"] for entry in rows_of(board)] == [93.99, 94.5, 94.5, 94.5]


def test_training_boards_never_show_an_inference(publish_entry, client):
    publish_entry()
    trained = publish_entry(log=CURVE, latency=None, top1Accuracy=None, costPerHour=3.0)

    for metric in ("tta", "cost"):
        assert places(client, metric=metric) == [(trained, 1, None)]
    counts = client.get("/api/v1/benchmarks/cifar10").json()
    assert (counts["submissions"], counts["inference_submissions"]) == (2, 1)
    convergence = client.get("/api/v1/benchmarks/cifar10/convergence").json()
    assert convergence["left_out"] + len(convergence["submissions"]) == 1


def test_no_inference_is_replayed_and_a_sentence_says_what_to_ask_for(send, olivia, row_counts):
    submission_id = enter(send, form={"benchmark": "digits"})
    answer = olivia.post(f"{SUBMISSIONS}/{submission_id}/verifications", {"kind": "replay"})

    assert answer.status_code == 422
    assert "an inference result. Request its latency" in answer.json()["detail"]
    assert row_counts()["verifications"] == 0


def test_a_fraction_given_in_percent_is_divided_and_flagged(send, client):
    changes = {"top1Accuracy": None, "f1Score": 82.52}
    view = send(form={"benchmark": "squad"}, **changes).json()

    assert view["result"]["quality"] == pytest.approx(0.8252)
    assert (view["result"]["given_in_percent"], view["result"]["eligible"]) == (True, True)
    assert "divided by 100" in client.get(f"/submissions/{view['id']}").text


def test_every_page_takes_a_benchmark_that_has_inference_alone(send, client):
    submission_id = enter(send)
    weak = enter(send, top1Accuracy=90.0, cost=None)

    def page(address):
        answer = client.get(address)
        assert answer.status_code == 200, (address, answer.text)
        return answer.text

    assert "No time yet" in page("/")
    assert 'href="/benchmarks/cifar10?metric=latency"' in page("/")
    assert "Submissions appear here" in page("/benchmarks/cifar10")
    assert 'href="?metric=latency#board"' in page("/benchmarks/cifar10")
    board = page("/benchmarks/cifar10?metric=inference_cost")
    assert "2.50\u00a0ms" in board
    assert "$0.0400" in board
    assert "not ranked: did not reach the target" in board
    assert "charts.js" not in board
    assert "Cost is the price of 10,000 items" in board
    assert "counts on the dawnbench clock" not in board
    assert "Here they stay the submitters' own results." in board
    assert "A verification trains" not in board
    assert "Inference" not in page("/benchmarks/squad")
    assert "2.50\u00a0ms" in page(f"/submissions/{submission_id}")
    assert "Not ranked." in page(f"/submissions/{weak}")
    for path in (
        "/benchmarks/cifar10/convergence",
        "/benchmarks/cifar10/charts/pareto.json?metric=latency",
    ):
        page(path)


def test_rescoring_derives_an_inference_again_from_its_entry(send, client, database):
    submission_id = enter(send)
    before = client.get(f"{SUBMISSIONS}/{submission_id}").json()
    with database.write() as session:
        damaged = session.get_one(Submission, submission_id)
        damaged.latency_ms = 0.1
        damaged.result = damaged.result | {"latency_ms": 0.1}

    summary = rescore_submissions(services_of(client), progress=print)
    assert (summary.failed, len(summary.changed)) == ([], 1)
    assert [change.field for change in summary.changed[0]["changes"]] == [
        "latency_ms",
        "result.latency_ms",
    ]
    assert client.get(f"{SUBMISSIONS}/{submission_id}").json() == before
    with database.read() as session:
        assert session.get_one(Submission, submission_id).latency_ms == 2.5
    again = rescore_submissions(services_of(client), progress=print)
    assert (again.unchanged, again.changed) == (1, [])
