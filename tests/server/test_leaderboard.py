"""Leaderboards as JSON and CSV, with costs, energy and other measured figures."""

import re
from copy import deepcopy
from dataclasses import replace
from datetime import date
from html import unescape

import pytest

from finishline.api.boards import BoardView
from finishline.rules.measurements import RunTelemetry
from server.base.models import PublishedResult
from server.pages.queries import measured_beside
from tests.conftest import OWN_BENCHMARKS
from tests.support.boards import rows_of
from tests.support.build import taken

BOARD = "/api/v1/leaderboards/digits"


def read(client, **query):
    response = client.get(BOARD, params=query)
    assert response.status_code == 200, response.text
    return response.json()


def places(board):
    return [(e["submission_id"], e["rank"], e["tied"]) for e in rows_of(board)]


def ids(client, **query):
    return [entry["submission_id"] for entry in rows_of(read(client, **query))]


def test_the_fastest_is_first_equals_share_a_rank_and_none_is_last(enter, client):
    never = enter(reached=False)
    slow = enter(seconds_per_epoch=0.2)
    tied_1 = enter()
    fast = enter(seconds_per_epoch=0.1)
    tied_2 = enter()
    board = read(client)

    assert places(board) == [
        (fast, 1, False), (tied_1, 2, True), (tied_2, 2, True), (slow, 4, False),
        (never, None, False),
    ]  # fmt: skip
    last = rows_of(board)[-1]
    assert (last["tta_seconds"], last["unranked_reason"]) == (None, "did not reach the target")
    assert (last["runs_reached"], last["runs_started"]) == (0, 3)
    # 8 evaluations of 0.004 s and 8 epochs of 0.1 s.
    assert rows_of(board)[0]["tta_seconds"] == pytest.approx(0.832)
    assert board["total"] == 5


CELLS = (
    r'href="/submissions/(\w+)"', r'<td class="rank">([^\s<]*)', r'title="([^"]*\xa0s|–)"',
    r'title="(\S+) USD"',
)  # fmt: skip


def rows_of_page(page):
    rows = re.findall(r'<tr[^>]*>\s*<td class="rank.*?</tr>', page, flags=re.DOTALL)
    found = [[re.search(cell, row) for cell in CELLS] for row in rows]
    return [tuple(cell and unescape(cell[1]) for cell in row) for row in found]


def rows_of_json(entries):
    for entry in entries:
        rank, seconds, cost = (entry[name] for name in ("rank", "tta_seconds", "cost_usd"))
        yield (
            entry["submission_id"],
            "" if rank is None else f"={rank}" if entry["tied"] else str(rank),
            "–" if seconds is None else f"{seconds:,.3f}\u00a0s",
            None if cost is None else str(cost),
        )


def test_the_page_of_a_board_has_the_rows_of_its_json(enter, client):
    empty = read(client)
    assert (empty["version"], empty["total"], rows_of(empty)) == (0, 0, [])
    assert empty["next_cursor"] is None
    only = enter(division="open", seconds_per_epoch=500.0)
    assert places(read(client)) == [(only, 1, False)], "the division that has ranks"
    enter(reached=False)
    for pace, price in ((0.2, 0.1), (0.1, None), (0.1, 98.0), (0.3, 0.001)):
        enter(seconds_per_epoch=pace, price=price)
    for query in (
        {}, {"metric": "cost"}, {"sort": "cost", "order": "desc"}, {"division": "open"},
        {"price": "2.5"}, {"limit": "3", "page": "2"}, {"metric": "cost", "price": "0.001"},
    ):  # fmt: skip
        entries = rows_of(read(client, **query))
        page = client.get("/benchmarks/digits", params=query | {"columns": "cost"}).text
        assert rows_of_page(page) == list(rows_of_json(entries)), query
        assert len(entries) == {"open": 1}.get(query.get("division"), 2 if "page" in query else 5)


def test_a_board_by_cost_leaves_out_who_states_no_price(enter, client):
    fast_and_dear = enter(seconds_per_epoch=0.1, price=10.0)
    slow_and_cheap = enter(seconds_per_epoch=0.2, price=0.1)
    unpriced = enter(seconds_per_epoch=0.05, price=None)
    board = read(client, metric="cost")

    assert places(board) == [
        (slow_and_cheap, 1, False),
        (fast_and_dear, 2, False),
        (unpriced, None, False),
    ]
    assert rows_of(board)[-1]["unranked_reason"] == "states no price"
    for metric in ("latency", "inference_cost"):
        assert rows_of(read(client, metric=metric)) == []


def test_filters_keep_the_rank_among_all(measured, client, bob):
    one = {"hardware_class": "one"}
    first = measured(seconds_per_epoch=0.1, system=one)
    wide = {"batch_size": 128}
    second = measured(seconds_per_epoch=0.2, system=one, hyperparameters=wide, by=bob)
    open_one = measured(seconds_per_epoch=0.05, division="open")

    assert places(read(client, q="SIZE 128", division="closed")) == [(second, 2, False)]
    assert places(read(client, q="bob", division="closed")) == [(second, 2, False)]
    assert places(read(client, division="open")) == [(open_one, 1, False)]
    assert places(read(client, division="closed")) == [(first, 1, False), (second, 2, False)]
    assert rows_of(read(client, status="claimed")) == []
    assert read(client, status="verified")["total"] == 2
    assert read(client, q="", division="", status="")["total"] == 2


def test_best_of_each_submitter_keeps_its_rank(enter, client, bob, digits_submission):
    slow, fast = enter(seconds_per_epoch=0.3), enter(seconds_per_epoch=0.1)
    digits_submission.claim["system"] |= {"name": "node", "accelerator": "H100", "processor": "?"}
    digits_submission.claim["system"] |= {"accelerator_count": 8}
    of_bob = enter(seconds_per_epoch=0.2, by="bob")

    everything = places(read(client))
    assert [place[0] for place in everything] == [fast, of_bob, slow]
    for name in ("submitter", "system", "accelerator"):
        assert places(read(client, best=name)) == everything[:2], name
    assert places(read(client, best="submitter", q="bob")) == everything[1:2]
    assert read(client, best="system")["total"] == 2
    assert read(client, best="")["total"] == 3
    page = client.get("/benchmarks/digits?best=submitter").text
    assert '<option value="submitter" selected>' in page
    assert f"/submissions/{slow}" not in page.partition("<tbody>")[2].partition("</table>")[0]


def test_filters_by_hardware_framework_and_day(enter, client, database, digits_submission):
    cpu = enter(framework="jax 0.9")
    digits_submission.claim["system"] |= {"hardware_class": "8-h100", "accelerator": "H100 SXM5"}
    digits_submission.claim["system"] |= {"accelerator_count": 8, "availability": "on-premise"}
    gpu = enter(seconds_per_epoch=0.1)
    with database.write() as session:
        session.get_one(PublishedResult, cpu).published_on = date(2020, 2, 29)

    for field, value, found in (
        ("hardware_class", "8-h100", [gpu]),
        ("hardware_class", "8-h", []),
        ("framework", "jax 0.9", [cpu]),
        ("framework", "JAX", [cpu]),
        ("framework", "ja", []),
        ("vendor", "NVIDIA", [gpu]),
        ("vendor", "CPU", [cpu]),
        ("accelerator", "H100", [gpu]),
        ("accelerator", "not stated", []),
        ("size", "2-8", [gpu]),
        ("size", "9-64", []),
        ("ids", [cpu], [cpu]),
        ("date_to", "2020-02-29", [cpu]),
        ("date_from", "2020-03-01", [gpu]),
    ):
        assert ids(client, **{field: value}) == found, (field, value)
    assert ids(client, date_from="2020-02-29", date_to="2020-02-29") == [cpu]
    assert ids(client, hardware_class="", framework="", date_from="", date_to="") == [gpu, cpu]
    assert places(read(client, framework="jax 0.9")) == [(cpu, 2, False)]
    page = client.get("/benchmarks/digits?framework=JAX&columns=availability").text
    assert '<option value="JAX" selected>JAX (1)</option>' in page
    for choice in ("NVIDIA (1)", "H100 (1)"):
        assert f">{choice}</option>" in page
    assert '<input type="hidden" name="columns" value="availability">' in page
    assert ">Availability</th>" in page
    chosen = client.get("/benchmarks/digits?size=2-8&accelerator=H100").text
    for value in ("H100", "2-8"):
        assert f'<option value="{value}" selected>' in chosen


def test_a_price_of_ones_own_ranks_by_what_the_accelerators_cost(enter, client, digits_submission):
    one = enter(seconds_per_epoch=0.2, price=None)
    digits_submission.claim["system"] |= {"accelerator": "H100", "accelerator_count": 8}
    eight = enter(seconds_per_epoch=0.1, price=0.001)
    board = read(client, metric="cost", price=2.5)

    assert places(board) == [(one, 1, False), (eight, 2, False)]
    # 8 epochs of 0.2 s and evaluations of 4 ms, at 2.50 USD an hour; 8 of 0.1 s at 8 times that.
    assert [e["cost_usd"] for e in rows_of(board)] == [
        pytest.approx(1.632 / 3600 * 2.5), pytest.approx(0.832 / 3600 * 20.0),
    ]  # fmt: skip
    assert board["price"]["usd_per_accelerator_hour"] == 2.5
    assert board["price"]["note"].startswith("Not the official costs: at $2.50 per accelerator")
    assert read(client, metric="cost")["price"] is None
    assert places(read(client, metric="cost")) == [(eight, 1, False), (one, None, False)]
    under_lens = rows_of(read(client, price=2.5, target=95.0, metric="cost"))[0]
    assert under_lens["cost_usd"] == pytest.approx(under_lens["tta_seconds"] / 3600 * 2.5)


def test_sorting_goes_both_ways_with_absent_figures_last(enter, client):
    low = enter(seconds_per_epoch=0.1, spread=0.001, price=0.1, model="Alpha", by="alice")
    high = enter(seconds_per_epoch=0.2, spread=0.05, price=0.2, model="beta", by="bob")
    for sort in ("model", "submitter", "date"):
        assert ids(client, sort=sort, order="asc") == [low, high], sort
        assert ids(client, sort=sort, order="desc") == [high, low], sort
    absent = enter(reached=False, price=None, model="Gamma")

    for sort in ("tta", "cv", "cost"):
        assert ids(client, sort=sort, order="asc") == [low, high, absent], sort
        assert ids(client, sort=sort, order="desc") == [high, low, absent], sort
    for order in ("asc", "desc"):  # Both take eight epochs.
        assert ids(client, sort="epochs", order=order)[2:] == [absent]


def test_pages_hold_every_entry_once(enter, client):
    made = [enter(seconds_per_epoch=0.1 + 0.01 * index) for index in range(5)]

    seen, cursor = [], {}
    while True:
        page = read(client, limit=2, **cursor)
        assert page["total"] == 5
        seen += [entry["submission_id"] for entry in rows_of(page)]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert seen == made
    numbered = [read(client, limit=2, page=page) for page in (1, 2, 3, 4)]
    assert [e["submission_id"] for page in numbered for e in rows_of(page)] == made
    assert [page["first"] for page in numbered] == [1, 3, 5, None]
    assert numbered[-1]["next_cursor"] is None

    cursor = read(client, limit=1)["next_cursor"]
    enter(reached=False)
    changed = client.get(BOARD, params={"limit": 1, "cursor": cursor})
    assert (changed.status_code, "has changed" in changed.json()["detail"]) == (409, True)
    board = read(client, clock="speedrun", price=3)
    assert BoardView.model_validate(board).model_dump(mode="json") == board


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"metric": "speed"}, "query.metric"),
        ({"division": "sideways"}, "query.division"),
        ({"status": "good"}, "query.status"),
        ({"sort": "luck"}, "query.sort"),
        ({"order": "up"}, "query.order"),
        ({"limit": 0}, "query.limit"),
        ({"limit": 1001}, "query.limit"),
        ({"q": "x" * 201}, "query.q"),
        ({"colour": "red"}, "query.colour"),
        ({"best": "me"}, "query.best"),
        ({"price": 0}, "query.price"),
        ({"price": "inf"}, "query.price"),
        ({"date_from": "2026-02-30"}, "query.date_from"),
        ({"date_to": "1700000000"}, "query.date_to"),
        ({"prices_on": "June"}, "query.prices_on"),
        ({"page": 0}, "query.page"),
        ({"page": 2, "cursor": "1.1"}, "query"),
        *(({"cursor": cursor}, "query.cursor") for cursor in ("x", "1", "1.x", "-1.0", "٣.٣")),
    ],
)
@pytest.mark.parametrize("suffix", ["", ".csv"])
def test_a_query_that_makes_no_sense_is_422(query, field, suffix, client):
    response = client.get(BOARD + suffix, params=query)

    assert response.status_code == 422
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["problems"][0]["field"] == field


@pytest.mark.parametrize("suffix", ["", ".csv"])
def test_an_unknown_benchmark_is_404_and_tells_the_known_ones(suffix, client):
    response = client.get(f"/api/v1/leaderboards/mnist{suffix}")

    assert response.status_code == 404
    assert ", ".join(OWN_BENCHMARKS) in response.json()["detail"]


@pytest.mark.parametrize("suffix", ["", ".csv"])
def test_a_board_that_did_not_change_is_304_and_names_the_next_page(suffix, enter, client):
    enter()
    first = client.get(BOARD + suffix)
    known = {"If-None-Match": first.headers["etag"]}
    again = client.get(BOARD + suffix, headers=known)
    enter()
    changed = client.get(BOARD + suffix, headers=known)

    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert first.headers["cache-control"] == "no-cache"
    assert (changed.status_code, changed.headers["etag"] != first.headers["etag"]) == (200, True)
    page = client.get(BOARD + suffix, params={"limit": 1})
    assert page.headers["x-total-count"] == "2"
    following = client.get(page.links["next"]["url"])
    assert (following.status_code, "next" in following.links) == (200, False)


def test_the_version_rises_with_each_write_that_can_change_the_board(replay, client, olivia):
    asked = read(client)["version"]
    assert asked >= 2  # The submission, and its status after the request.
    grant = replay.claim().json()
    begun = read(client)
    assert begun["version"] > asked
    assert rows_of(begun)[0]["check"] == "running"
    replay.post(grant, [])
    assert read(client)["version"] == begun["version"]
    replay.train(grant)
    judged = read(client)
    assert judged["version"] > begun["version"]
    assert rows_of(judged)[0]["status"] == "verified"
    replay.ask_again(olivia)
    assert read(client)["version"] == judged["version"]  # An earlier verdict stands meanwhile.
    replay.cancel(olivia)
    assert read(client)["version"] > judged["version"]
    assert client.get("/api/v1/leaderboards/cifar10").json()["version"] == 0


CLOUD = {"provider": "cloud", "instance": "gpu.8", "region": "north", "count": 2}


@pytest.fixture
def add_price(olivia):
    def add(usd, starts, **others):
        names = {name: CLOUD[name] for name in ("provider", "instance", "region")}
        page = {"source_url": "https://cloud.example/prices"}
        body = names | page | {"usd_per_hour": usd, "effective_on": starts} | others
        return taken(olivia.post("/api/v1/prices", body))["id"]

    return add


@pytest.fixture
def rented(digits_submission, submit):
    def send(**system):
        parts = deepcopy(digits_submission)
        parts.claim["system"] |= {"cloud": CLOUD} | system
        return taken(submit(parts))

    return send


def entry_of(client, submission_id, **query):
    entries = rows_of(read(client, **query))
    return next(entry for entry in entries if entry["submission_id"] == submission_id)


def test_price_of_the_book_is_applied_and_corrected(client, rented, add_price):
    sent = rented()
    hours = sent["result"]["tta_seconds"] / 3600
    stated = entry_of(client, sent["id"])
    assert (stated["cost_usd"], stated["cost_price"]) == (pytest.approx(hours * 0.1), None)
    assert sent["result"]["cost_basis"]["source"] == "claim"

    wrong = add_price(500.0, "2026-01-01")
    assert entry_of(client, sent["id"])["cost_usd"] == pytest.approx(hours * 1000.0)
    right = add_price(5.0, "2026-01-01", supersedes=wrong)

    entry = entry_of(client, sent["id"])
    assert (entry["cost_usd"], entry["cost_price"]) == (pytest.approx(hours * 10.0), right)
    shown = client.get(f"/api/v1/submissions/{sent['id']}").json()["result"]
    assert shown["cost_usd"] == entry["cost_usd"]
    basis = shown["cost_basis"]
    assert (basis["price"], basis["count"], basis["usd_per_hour"]) == (right, 2, 10.0)
    assert basis["source_url"] == "https://cloud.example/prices"
    step = next(step for step in shown["steps"] if step["name"] == "cost to accuracy")
    assert (step["value"], step["numbers"]["price (USD/h)"]) == (entry["cost_usd"], 10.0)
    page = client.get(f"/submissions/{sent['id']}?tab=scoring").text
    assert f"/prices#price-{right}" in page
    page = client.get(f"/submissions/{sent['id']}?tab=system").text
    assert "2 × gpu.8" in page


def test_a_spot_price_never_ranks_in_a_claim_or_in_the_book(client, rented, add_price):
    sent = rented(pricing="spot")
    add_price(0.01, "2026-01-01", pricing="spot")

    entry = entry_of(client, sent["id"], metric="cost")
    assert (entry["cost_usd"], entry["rank"]) == (None, None)
    page = client.get(f"/submissions/{sent['id']}?tab=scoring").text
    assert "a spot price never ranks" in page


def test_instance_ranks_the_class_it_belongs_to(client, rented, add_price):
    sent = rented()
    add_price(5.0, "2026-01-01")
    unknown = entry_of(client, sent["id"], metric="cost")
    assert unknown["cost_usd"] > 0
    assert "does not say that gpu.8 belongs to" in unknown["unranked_reason"]
    page = client.get(f"/submissions/{sent['id']}?tab=scoring").text
    assert "Not ranked by cost: the price book does not say" in page

    add_price(5.0, "2026-01-02", hardware_class="others")
    other = entry_of(client, sent["id"], metric="cost")
    assert other["unranked_reason"] == unknown["unranked_reason"]
    add_price(5.0, "2026-01-01", hardware_class=sent["system"]["hardware_class"])
    ranked = entry_of(client, sent["id"], metric="cost")
    assert ranked["unranked_reason"] == "claimed: not measured here"


def test_a_board_may_be_asked_for_at_the_prices_of_a_day(client, rented, add_price):
    sent = rented()
    hours = sent["result"]["tta_seconds"] / 3600
    add_price(8.0, "2020-01-01")
    later = add_price(1.0, "2999-01-01")

    assert entry_of(client, sent["id"])["cost_usd"] == pytest.approx(hours * 16.0)
    dear = entry_of(client, sent["id"], prices_on="2999-06-01")
    assert (dear["cost_usd"], dear["cost_price"]) == (pytest.approx(hours * 2.0), later)
    before = entry_of(client, sent["id"], prices_on="2019-12-31")
    assert (before["cost_usd"], before["cost_price"]) == (pytest.approx(hours * 0.1), None)

    board = client.get(BOARD, params={"prices_on": "2999-06-01"}).json()
    assert board["price"]["prices_on"] == "2999-06-01"
    page = client.get("/benchmarks/digits", params={"prices_on": "2999-06-01"}).text
    assert board["price"]["note"].split(":")[0] in page
    both = client.get(BOARD, params={"prices_on": "2026-06-01", "price": "2"})
    assert both.status_code == 422


def test_energy_is_the_mean_of_the_runs_that_have_it_and_memory_the_most():
    runs = [
        {"energy_joules": 10.0, "energy_source": "nvml", "memory_peak_bytes": 5},
        {"energy_joules": 30.0, "energy_source": "nvml", "memory_peak_bytes": 7},
        {"energy_joules": None, "memory_peak_bytes": None},
        None,
    ]
    report = {
        "runs": [{"telemetry": each} for each in runs],
        "system": {"worker": "walter-1", "hardware_class": "gpu"},
        "precision": {"lowest": "bf16"},
    }
    found = measured_beside(report)

    assert (found["energy_joules"], found["energy_sources"]) == (20.0, ["nvml"])
    assert (found["memory_peak_bytes"], found["power_mean_watts"]) == (7, None)
    assert (found["precision"], found["runs"], found["worker"]) == ("bf16", 3, "walter-1")
    assert measured_beside(None) is None
    assert measured_beside(report | {"precision": None, "runs": [{"telemetry": None}]}) is None


def measured(report, *joules):
    of_run = [*joules, *[joules[-1]] * len(report.runs)]
    runs = [
        replace(run, telemetry=RunTelemetry(readings=9, energy_joules=of_run[run.index]))
        for run in report.runs
    ]
    return replace(report, runs=runs)


def shown(client):
    (entry,) = rows_of(client.get(BOARD).json())
    return entry


def test_mean_energy_of_a_replay_is_on_the_board(replay, client, olivia, make_report):
    assert shown(client)["verification_id"] == replay.verification_id
    report = make_report(replay.seeds())
    more = 60.0 * (len(report.runs) - 1)
    assert replay.report(replay.claim().json(), measured(report, 30.0, 60.0)).is_success

    entry = shown(client)
    joules = (30.0 + more) / len(report.runs)
    assert entry["energy_joules"] == pytest.approx(joules)
    assert entry["energy_kwh"] == pytest.approx(joules / 3_600_000)
    page = client.get("/benchmarks/digits?metric=cost").text
    assert " kWh" in page
    official = rows_of(client.get(BOARD, params={"target": 90}).json())[0]
    assert official["energy_kwh"] is None
    assert (entry["status"], entry["verification_id"]) == ("verified", replay.verification_id)
    by_energy = client.get(BOARD, params={"metric": "energy"}).json()
    assert (by_energy["kind"], rows_of(by_energy)[0]["rank"]) == ("train", 1)
    row = client.get("/benchmarks/digits?metric=energy&columns=cv").text.split("<tbody>")[1]
    assert re.search(r"<b>\d[\d.]*\xa0J</b>", row)
    assert f"%, {entry['runs_reached']} runs" in row
    proof = f'class="proof" href="/verifications/{replay.verification_id}"'
    assert proof in client.get("/benchmarks/digits").text

    # The energy of a rerun waits for its decision.
    first = replay.ask_again(olivia)
    replay.report(replay.claim().json(), measured(make_report(replay.seeds()), 90.0))
    entry = shown(client)
    assert (entry["energy_joules"], entry["verification_id"]) == (pytest.approx(joules), first)
    replay.decide(olivia, "publish")
    entry = shown(client)
    assert (entry["energy_joules"], entry["verification_id"]) == (90.0, replay.verification_id)


@pytest.mark.parametrize("case", ["one run unmeasured", "another hardware class"])
def test_energy_that_is_not_of_the_claim_stays_absent(case, replay, client, make_report):
    report = make_report(replay.seeds())
    if case == "one run unmeasured":
        report = measured(report, None, 60.0)
    else:
        system = replace(report.system, hardware_class="cpu-other")
        report = replace(measured(report, 60.0), system=system)
    assert replay.report(replay.claim().json(), report).is_success

    entry = shown(client)
    assert (entry["status"], entry["energy_joules"]) == ("verified", None)
    assert ">Energy<" not in client.get("/benchmarks/digits").text
    assert "energy not measured" in client.get("/benchmarks/digits?metric=cost").text
