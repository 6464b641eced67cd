"""A board is the same as a page, as JSON and as CSV, and ranked by the one rank function."""

import csv
import io
import re
from dataclasses import dataclass, replace
from html import unescape
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.ranking.ranking import Standing, rank
from server.base.board_versions import raise_board_version
from server.base.database import Database, utc_now
from server.base.models import BenchmarkDefinition, RunRow, Submission, User

pytestmark = pytest.mark.usefixtures("claims_are_numbered")

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


def store(database: Database, benchmark: Benchmark, entries: list[Entry]) -> None:
    with database.write() as session:
        for table in (RunRow, Submission):
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


def submission(number: int, entry: Entry) -> Submission:
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


def official_cost(entry: Entry) -> float | None:
    if entry.tta is None or entry.price is None:
        return None
    return entry.tta / 3600.0 * entry.price


def cost(entry: Entry, price: str | None) -> float | None:
    if price is None:
        return official_cost(entry)
    per_hour = float(price) * max(1, entry.accelerators)
    return official_cost(replace(entry, price=per_hour))


def html_rows(page: str) -> list[tuple[str, str, str, str | None]]:
    """Id, rank, time and cost of each row, as the page says them."""
    rows = re.findall(r'<tr[^>]*>\s*<td class="r num rank.*?</tr>', page, flags=re.DOTALL)
    found = []
    for row in rows:
        label = re.search(r'<td class="r num rank[^>]*>(\S+)', row)
        link = re.search(r'href="/submissions/(\w+)"', row)
        time = re.search(r'<b title="([^"]*)"', row)
        cost_cell = re.search(r'title="(\S+) USD"', row)
        assert label is not None
        assert link is not None
        assert time is not None
        words = label[1].removesuffix("</td>"), unescape(time[1]), cost_cell and cost_cell[1]
        found.append((link[1], *words))
    return found


@settings(
    max_examples=20,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(entries=st.lists(ENTRIES, min_size=1, max_size=8), query=QUERIES)
def test_page_json_and_csv_agree_and_rank_as_the_rule_does(
    client: TestClient,
    database: Database,
    digits: Benchmark,
    entries: list[Entry],
    query: dict[str, Any],
) -> None:
    store(database, digits, entries)
    board = client.get("/api/v1/leaderboards/digits", params=query).json()
    text = client.get("/api/v1/leaderboards/digits.csv", params=query).content.decode()
    page = client.get("/benchmarks/digits", params=query, headers=BROWSER).text

    begins = "closed" if any(e.division == "closed" for e in entries) else "open"
    by_id = {f"s{number}": entry for number, entry in enumerate(entries)}
    costs = {name: cost(entry, query.get("price")) for name, entry in by_id.items()}
    places = rank(
        [
            Standing(name, e.status, name, e.tta, costs[name], None, e.eligible)  # type: ignore[arg-type]
            for name, e in by_id.items()
            if (query.get("division") or begins) == e.division
        ],
        metric=query["metric"],
    )
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
    for entry, row in zip(shown, csv.DictReader(io.StringIO(text, newline="")), strict=True):
        name = entry["submission_id"]
        assert (entry["tta_seconds"], entry["cost_usd"]) == (by_id[name].tta, costs[name])
        for column in (
            "submission_id",
            "rank",
            "tied",
            "tta_seconds",
            "cost_usd",
            "not_separated_from",
        ):
            assert row[column] == ("" if entry[column] is None else str(entry[column])), column
