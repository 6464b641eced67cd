"""Boards of one version: as pages, JSON and CSV, after a write, in memory, and at home."""

import html
import re
import threading
from dataclasses import dataclass, replace
from html import unescape

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, update

from finishline.rules.ranking.ranking import Standing, rank
from server.app import create_app
from server.base.board_versions import (
    MOST_CHANGES,
    VersionedCache,
    _note_change,
    changes_between,
    raise_board_version,
)
from server.base.database import Database, utc_now
from server.base.models import (
    BenchmarkDefinition,
    PublishedResult,
    RunRow,
    Submission,
    User,
)
from server.boards import records as queries
from tests.support.build import SOURCE
from tests.support.statements import statements_of

SORTS = ("rank", "tta", "cost", "cv", "model", "system", "status", "division", "precision", "date")


BROWSER = {"Accept": "text/html"}


@dataclass(frozen=True)
class Entry:
    """A stored submission: few values each, so that many are equal."""

    tta: float | None
    spread: float
    price: float | None
    accelerators: int
    division: str
    status: str
    eligible: bool
    precision: str | None
    model: str


ENTRIES = st.builds(
    Entry,
    tta=st.sampled_from([None, 10.0, 10.5, 3600.0, 5025.2]),
    spread=st.sampled_from([0.0, 0.01, 0.3]),
    price=st.sampled_from([None, 0.1, 98.0]),
    accelerators=st.sampled_from([0, 1, 8]),
    division=st.sampled_from(["closed", "open"]),
    status=st.sampled_from(["claimed", "verified", "verifying", "rejected", "inconclusive"]),
    eligible=st.sampled_from([True, True, True, False]),
    precision=st.sampled_from([None, "fp32", "bf16"]),
    model=st.sampled_from(["net", "Net <b>2</b>", "=1+1", "x" * 200]),
)


QUERIES = st.fixed_dictionaries(
    {"metric": st.sampled_from(["tta", "cost"]), "sort": st.sampled_from(SORTS)},
    optional={
        "order": st.sampled_from(["asc", "desc"]),
        "division": st.sampled_from(["closed", "open"]),
        "status": st.sampled_from(["verified", "rejected"]),
        "price": st.sampled_from(["2.5", "0.001"]),
        "limit": st.just("3"),
        "page": st.sampled_from(["1", "2"]),
    },
)


def store(database, benchmark, entries):
    with database.write() as session:
        for table in (RunRow, PublishedResult, Submission):
            session.execute(delete(table))
        if session.get(User, 1) is None:
            session.add(User(id=1, name="u", created_at=utc_now()))
            session.add(
                BenchmarkDefinition(
                    sha256="b", benchmark_id="digits", version="1", content="", created_at=utc_now()
                )
            )
            session.flush()
        for number, entry in enumerate(entries):
            session.add(submission(number, entry))
        raise_board_version(session, benchmark.benchmark_id)


def submission(number, entry):
    tta = entry.tta
    system = {"name": f"m{entry.accelerators}", "hardware_class": "c", "processor": "p"}
    system |= {"processor_count": None, "memory_gib": None, "accelerator": None}
    counts = {"accelerator_count": entry.accelerators}
    prices = {"price_usd_per_hour": entry.price, "price_source": None}
    runs = [] if tta is None else [tta * (1 + entry.spread * step) for step in (-1, 0, 1)]
    return Submission(
        id=f"s{number}",
        user_id=1,
        benchmark_id="digits",
        benchmark_sha256="b",
        division=entry.division,
        model=entry.model,
        framework="f",
        system=system | counts | prices,
        hyperparameters={},
        claim_sha256="c",
        status=entry.status,
        evidence="published",
        published=PublishedResult(source=SOURCE),
        eligible=entry.eligible,
        tta_seconds=tta,
        cost_usd=official_cost(entry),
        result={
            "reached": len(runs),
            "started": 3,
            "best_quality": 98.0,
            "cv_percent": entry.spread * 100 if runs else None,
            "violations": [] if entry.eligible else [{"code": "same_log"}],
        },
        request_sha256="r",
        submitted_at=utc_now(),
        precision=entry.precision,
        runs=[
            RunRow(
                index=index,
                file="f.log",
                log_sha256="l",
                log_bytes=1,
                reached=True,
                tta_seconds=seconds,
                curve=[],
            )
            for index, seconds in enumerate(runs)
        ],
        verifications=[],
    )


def official_cost(entry):
    if entry.tta is None or entry.price is None:
        return None
    return entry.tta / 3600.0 * entry.price


def cost(entry, price):
    if price is None:
        return official_cost(entry)
    per_hour = float(price) * max(1, entry.accelerators)
    return official_cost(replace(entry, price=per_hour))


def html_rows(page):
    """Id, rank, time and cost of each row, as the page says them."""
    rows = re.findall(r'<tr[^>]*>\s*<td class="r num rank.*?</tr>', page, flags=re.DOTALL)
    found = []
    for row in rows:
        label = re.search(r'<td class="r num rank[^>]*>([^\s<]+)', row)
        link = re.search(r'href="/submissions/(\w+)"', row)
        time = re.search(r'<b title="([^"]*)"', row)
        cost_cell = re.search(r'title="(\S+) USD"', row)
        assert label is not None
        assert link is not None
        assert time is not None
        words = label[1], unescape(time[1]), cost_cell and cost_cell[1]
        found.append((link[1], *words))
    return found


@settings(
    max_examples=20,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(entries=st.lists(ENTRIES, min_size=1, max_size=8), query=QUERIES)
def test_page_and_json_agree_and_rank_as_the_rule_does(client, database, digits, entries, query):
    store(database, digits, entries)
    board = client.get("/api/v1/leaderboards/digits", params=query).json()
    page = client.get(
        "/benchmarks/digits", params=query | {"columns": "cost"}, headers=BROWSER
    ).text

    by_id = {f"s{number}": entry for number, entry in enumerate(entries)}
    costs = {name: cost(entry, query.get("price")) for name, entry in by_id.items()}

    def places_in(division):
        standings = [
            Standing(name, e.status, name, e.tta, costs[name], None, e.eligible)
            for name, e in by_id.items()
            if e.division == division
        ]
        return rank(standings, metric=query["metric"])

    asked = [query["division"]] if "division" in query else ["closed", "open"]
    boards = [places_in(division) for division in asked]
    numbered = [found for found in boards if any(p.rank is not None for p in found)]
    places = next(iter(numbered or filter(None, boards)), [])
    fits = [p for p in places if query.get("status") in (None, by_id[p.submission_id].status)]
    shown = board["entries"]

    wanted = {p.submission_id: (p.rank, p.tied, p.unranked_reason) for p in fits}
    assert board["total"] == len(wanted)
    for entry in shown:
        place = entry["rank"], entry["tied"], entry["unranked_reason"]
        assert place == wanted[entry["submission_id"]]
    if query["sort"] == "rank" and query.get("order") != "desc":
        limit, number = int(query.get("limit", 100)), int(query.get("page", 1))
        page_of_rule = fits[(number - 1) * limit : number * limit]
        assert [e["submission_id"] for e in shown] == [p.submission_id for p in page_of_rule]

    assert html_rows(page) == [
        (
            e["submission_id"],
            "–" if e["rank"] is None else f"={e['rank']}" if e["tied"] else str(e["rank"]),
            "–" if e["tta_seconds"] is None else f"{e['tta_seconds']:,.3f}\u00a0s",
            None if e["cost_usd"] is None else str(e["cost_usd"]),
        )
        for e in shown
    ]
    for entry in shown:
        name = entry["submission_id"]
        assert (entry["tta_seconds"], entry["cost_usd"]) == (by_id[name].tta, costs[name])


BOARD = "/api/v1/leaderboards/digits"


PATHS = (BOARD, f"{BOARD}?metric=cost", f"{BOARD}?sort=rank&order=desc", f"{BOARD}.csv")


@pytest.fixture
def read_whole(settings):
    """What a process that has nothing in memory answers."""

    def read(path):
        with TestClient(create_app(settings, dispatch=False)) as other:
            return str(other.get(path).text)

    return read


@pytest.fixture
def reads_of_submissions(database):
    """The statements that read figures of submissions for a board."""

    def reads_figures(text):
        return "submissions.pool_id" in text and "submissions.check_word" in text

    with statements_of(database, reads_figures) as sent:
        yield sent


def test_a_board_after_each_step_of_a_submission_is_what_reading_all_gives(
    replay, digits_submission, submit, client, make_report, read_whole, reads_of_submissions
):
    def submit_another():
        digits_submission.claim["model"] = "another"
        assert submit(digits_submission).status_code == 201

    client.get(BOARD)
    reads_of_submissions.clear()
    steps = (submit_another, lambda: replay.report(replay.claim().json(), report()), submit_another)

    def report():
        return make_report(replay.seeds())

    for step in steps:
        step()
        for path in PATHS:
            assert client.get(path).text == read_whole(path)
    assert '"verified"' in client.get(BOARD).text
    on_board = [
        text for text in reads_of_submissions if "(submissions.benchmark_id || ?) =" in text
    ]
    # How a submission stands, and its details.
    assert len(on_board) == 2 * len(steps)
    assert all("submissions.id IN" in text for text in on_board)
    assert not any("WHERE submissions.benchmark_id" in text for text in reads_of_submissions)


def test_a_change_that_another_process_wrote_has_all_read_again(
    digits_submission, submit, client, settings, read_whole
):
    submit(digits_submission)
    client.get(BOARD)
    other = Database(settings.database_url)
    with other.write() as session:
        session.execute(update(Submission).values(model="changed elsewhere"))
        raise_board_version(session, "digits")
    other.close()
    digits_submission.claim["model"] = "another"
    submit(digits_submission)

    models = {entry["model"] for entry in client.get(BOARD).json()["entries"]}
    assert models == {"changed elsewhere", "another"}
    assert client.get(BOARD).text == read_whole(BOARD)


def test_a_change_of_one_submission_by_another_process_has_that_one_read_again(
    digits_submission, submit, client, settings, read_whole, reads_of_submissions
):
    for model in ("first", "second"):
        digits_submission.claim["model"] = model
        changed = submit(digits_submission).json()["id"]
    client.get(BOARD)
    reads_of_submissions.clear()
    other = Database(settings.database_url)
    with other.write() as session:
        which = update(Submission).where(Submission.id == changed)
        session.execute(which.values(model="changed elsewhere"))
        raise_board_version(session, "digits", submission_id=changed)
    other.close()

    assert '"changed elsewhere"' in client.get(BOARD).text
    assert client.get(BOARD).text == read_whole(BOARD)
    assert all("submissions.id IN" in text for text in reads_of_submissions)
    assert len(reads_of_submissions) == 2


def test_what_changed_is_known_only_if_every_version_is(database):
    with database.write() as session:
        for version, submission_id in ((4, "a"), (5, "b"), (6, "a"), (8, "c")):
            _note_change(session, "digits", version, submission_id)
    with database.read() as session:
        assert changes_between(session, "digits", 3, 6) == {"a", "b"}
        assert changes_between(session, "digits", 5, 5) == set()
        assert changes_between(session, "digits", 6, 8) is None
        assert changes_between(session, "digits", 6, 5) is None
        assert changes_between(session, "cifar10", 3, 4) is None


def test_of_many_changes_the_latest_are_known(database):
    with database.write() as session:
        for version in range(1, 2 * MOST_CHANGES + 1):
            _note_change(session, "digits", version, f"s{version}")
    with database.read() as session:
        latest = changes_between(session, "digits", MOST_CHANGES, 2 * MOST_CHANGES)
        assert latest == {f"s{v}" for v in range(MOST_CHANGES + 1, 2 * MOST_CHANGES + 1)}
        assert changes_between(session, "digits", MOST_CHANGES - 1, MOST_CHANGES + 1) is None
        assert changes_between(session, "digits", 0, 2 * MOST_CHANGES) is None


@dataclass
class Weight:
    weight: int


def test_a_value_is_made_once_for_each_version():
    cache, made = VersionedCache(10), []
    for version in (1, 1, 2, 1):
        cache.get("key", version, made.append)
    assert made == [None, (1, None), (2, None)]
    assert cache.get("key", 1, lambda _: 99) is None


def test_the_longest_unused_go_when_it_grows_too_heavy():
    cache = VersionedCache(10)
    for name in ("a", "b", "c"):
        cache.get(name, 1, lambda _: Weight(4))
        cache.get("a", 1, lambda _: Weight(100))
    assert [name for name in "abc" if cache.latest(name)] == ["a", "c"]
    assert cache.get("d", 1, lambda _: Weight(50)) == Weight(50)
    assert [name for name in "acd" if cache.latest(name)] == ["d"]


def test_a_value_that_grows_after_it_was_cached_weighs_what_it_has_grown_to():
    cache = VersionedCache(10)
    cache.get("a", 1, lambda _: Weight(1)).weight = 9
    cache.get("b", 1, lambda _: Weight(3))
    assert (cache.latest("a"), cache.latest("b")) == (None, (1, Weight(3)))


def test_many_who_ask_at_once_wait_for_one_who_makes_it():
    cache, made = VersionedCache(10), []
    started = threading.Barrier(8)

    def make():
        made.append(threading.get_ident())
        return 7

    def ask():
        started.wait(timeout=10)
        cache.get("key", 1, lambda _: make())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)
    assert len(made) == 1


@pytest.mark.parametrize(
    "path",
    [BOARD, f"{BOARD}.csv", "/benchmarks/digits", "/api/v1/benchmarks/digits/records"],
)
def test_an_unchanged_board_asks_the_database_for_its_version_alone(
    path, digits_submission, submit, client, database
):
    submit(digits_submission)
    first = client.get(path)
    with statements_of(database) as sent:
        again = client.get(path)

    assert again.content == first.content
    statements = [text for text in sent if not text.startswith("BEGIN")]
    assert len(statements) <= 1, "none where the version is fresh"
    assert all("FROM boards" in text for text in statements)


def test_another_process_sees_a_change_at_once(digits_submission, submit, client, settings):
    with TestClient(create_app(settings, dispatch=False)) as other:
        for path in (BOARD, "/benchmarks/digits"):
            assert other.get(path).text.count("/submissions/") == 0
        submit(digits_submission)
        assert other.get(BOARD).json()["total"] == 1
        assert 'href="/submissions/' in other.get("/benchmarks/digits").text


def words_of(page):
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", page)))


def test_a_replay_is_seen_from_the_queue_to_its_verdict(replay, make_report, client):
    link = f'href="/verifications/{replay.verification_id}"'
    queued = client.get("/").text
    assert link in queued
    assert "queued" in words_of(queued)
    assert "requested" in words_of(queued)

    grant = replay.claim().json()
    runs = len(replay.seeds())
    assert f"{runs} runs on walter-1" in words_of(client.get("/").text)
    event = {"sequence": 0, "run": 2, "kind": "evaluation", "epoch": 3.0, "quality": 85.5}
    assert replay.post(grant, [event]).status_code == 200
    running = client.get("/").text
    assert f"run 3 of {runs}, epoch 3, 85.5" in words_of(running)
    assert f'<progress max="{runs}" value="2"' in running

    replay.report(grant, make_report(replay.seeds()))
    ended = client.get("/").text
    assert ended.count(link) == 3  # The race, the last verdict among the counters, and its line.
    assert "No replays running." in words_of(ended)
    assert re.search(r"(\d) of \1 replays reached top1Accuracy 97.5", words_of(ended))


def test_records_are_derived_once_a_version_and_again_after_a_submission(
    digits_submission, publish, client, monkeypatch
):
    derived = []

    find = queries._find_histories

    def counting(session, benchmark):
        derived.append(benchmark.benchmark_id)
        return find(session, benchmark)

    monkeypatch.setattr(queries, "_find_histories", counting)
    submission_id = publish(digits_submission)
    for _ in range(3):
        assert client.get("/").status_code == 200
    # The list of records is made from what the page has found.
    listed = client.get("/api/v1/benchmarks/digits/records").json()["divisions"]
    assert submission_id in {record["submission_id"] for d in listed for record in d["records"]}
    assert derived == ["digits"]

    digits_submission.claim["model"] = "another one"
    publish(digits_submission)
    client.get("/")
    assert derived == ["digits", "digits"]
