"""What is on a board, from a few figures of each submission, is what its whole rows say."""

from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from random import Random
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import insert, select, update

from rules.benchmark import Benchmark
from server.database import Database, utc_now
from server.leaderboard import top
from server.leaderboard.facet_rows import read_facets
from server.leaderboard.facets import FIGURES, Facets
from server.leaderboard.memory import memory_of
from server.leaderboard.ranked import ranked_board
from server.leaderboard.schemas import BoardQuery
from server.leaderboard.service import board_version, raise_board_version
from server.models import PriceRow, RunRow, Submission, User

CLOUD = {"provider": "cloud", "instance": "gpu.8", "region": "north", "count": 2}
DAY = date(2026, 3, 1)
BOARDS = 6
SUBMISSIONS = 25


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.processes)])
def database_url(request: pytest.FixtureRequest) -> str:
    """Either database takes figures out of JSON in its own way."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def like(digits_submission: Any, submit: Callable[..., Any], database: Database) -> dict[str, Any]:
    """The columns of a submission that was sent; the price book knows what it may have rented."""
    sent = submit(digits_submission).json()["id"]
    with database.write() as session:
        price = {name: CLOUD[name] for name in ("provider", "instance", "region")} | {
            "pricing": "on_demand",
            "usd_per_hour": 2.0,
            "effective_on": DAY,
            "source_url": "https://cloud.example",
            "added_by": session.scalar(select(User.id)),
            "added_at": utc_now(),
        }
        session.execute(insert(PriceRow), [price])
        row = session.get_one(Submission, sent)
        return {c.key: getattr(row, c.key) for c in Submission.__table__.c}


def submissions_of(random: Random, benchmark_id: str, like: dict[str, Any]) -> list[dict[str, Any]]:
    """Submissions of a board on which some figures nobody has, and others some have."""
    chance = {name: random.choice((0.0, 0.1, 0.6)) for name in (*FIGURES, "cloud", "price")}

    def some(name: str, *values: Any) -> Any:
        return random.choice(values) if random.random() < chance[name] else None

    return [
        like
        | {
            "id": f"{benchmark_id}-{number}",
            "benchmark_id": benchmark_id,
            "idempotency_key": None,
            "kind": random.choice(("train", "train", "inference")),
            "division": random.choice(("closed", "open")),
            "status": random.choice(("claimed", "verified", "rejected")),
            "framework": random.choice(("torch", "jax", "Größe <b>")),
            "system": like["system"]
            | {
                "hardware_class": random.choice(("cpu-4", "h200-8", "x")),
                "price_usd_per_hour": some("price", 1.5),
                "cloud": some("cloud", CLOUD),
            },
            "result": like["result"]
            | {
                "best_quality": some("quality", random.uniform(0.0, 1.0)),
                "quality": some("quality", random.uniform(0.0, 1.0)),
                "cv_percent": some("cv_percent", 1.25),
                "epochs_to_target": some("epochs_to_target", 12, 12.5),
            },
            "submitted_at": utc_now() - timedelta(days=random.randint(0, 400)),
            "submitted_on": random.choice((None, DAY, DAY - timedelta(days=1))),
            "withdrawn_at": random.choice((None, None, None, utc_now())),
            "embargoed": random.random() < 0.1,
            "tta_seconds": some("tta_seconds", 10.0, 20.0),
            "latency_ms": some("latency_ms", 3.0),
            "measured_latency_ms": some("measured_latency_ms", 3.0),
            "cost_usd_per_10000": some("cost_usd_per_10000", 0.1),
            "energy_joules": some("energy_joules", 1e4),
            "precision": some("precision", "fp32", "bf16"),
            "precision_measured": some("precision_measured", "tf32"),
        }
        for number in range(SUBMISSIONS)
    ]


def runs_of(random: Random, submissions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Two runs of each; not all tell their samples, and not all reached the target."""
    telling = random.choice((0.0, 0.5))
    return [
        {
            "submission_id": submission["id"],
            "index": index,
            "file": f"{index}.log",
            "log_sha256": "0" * 64,
            "log_bytes": 1,
            "reached": True,
            "tta_seconds": random.choice((None, 10.0, 11.0)),
            "convergence": 5000.0 if random.random() < telling else None,
            "curve": [],
        }
        for submission in submissions
        for index in (0, 1)
    ]


def facets_both_ways(database: Database, benchmark: Benchmark, query: BoardQuery) -> list[Facets]:
    """From a few figures, and from the whole rows."""
    with database.read_snapshot() as session:
        version = board_version(session, benchmark.benchmark_id)
        found = read_facets(session, benchmark, query, version=version)
        return [found, ranked_board(session, benchmark, query, version=version).facets]


def test_a_few_figures_say_what_whole_rows_say(
    like: dict[str, Any], database: Database, digits: Benchmark
) -> None:
    queries = [
        BoardQuery.model_validate({"metric": metric, "division": division})
        for metric in ("tta", "latency")
        for division in (None, "closed")
    ]
    ever: set[str] = set()
    for number in range(BOARDS):
        random, name = Random(number), f"board{number}"
        unit: Any = ("samples_count", "epoch_num")[number % 2]
        benchmark = replace(digits, benchmark_id=name, convergence_unit=unit)
        submissions = submissions_of(random, name, like)
        with database.write() as session:
            session.execute(insert(Submission), submissions)
            session.execute(insert(RunRow), runs_of(random, submissions))
            raise_board_version(session, name)
        for query in queries:
            found, plain = facets_both_ways(database, benchmark, query)
            assert found == plain, (number, query)
            ever |= found.present
        changed = {"framework": "other", "latency_ms": 1.0, "withdrawn_at": None}
        with database.write() as session:
            which = Submission.id == f"{name}-0"
            session.execute(update(Submission).where(which).values(changed))
            raise_board_version(session, name, submission_id=f"{name}-0")
        for query in queries:
            found, plain = facets_both_ways(database, benchmark, query)
            assert found == plain, (number, query)
    assert ever == set(FIGURES)


def test_the_page_of_a_board_that_nobody_has_read_is_made_without_its_rows(
    like: dict[str, Any],
    database: Database,
    client: TestClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    submissions = [
        like
        | {
            "id": f"s{number}",
            "idempotency_key": None,
            "tta_seconds": 10.0 + number,
            "framework": f"framework {number % 7}",
            "eligible": True,
            "status": "claimed",
        }
        for number in range(60)
    ]
    with database.write() as session:
        session.execute(insert(Submission), submissions)
        session.execute(insert(RunRow), runs_of(Random(1), submissions))
        raise_board_version(session, "digits")
    monkeypatch.setattr(top, "SPARE", 3)
    page = client.get("/benchmarks/digits?limit=5").text
    with database.read() as session:
        memory = memory_of(session)
    assert memory.submissions.latest(("digits", "train")) is None
    assert "framework 6 (8)" in page

    monkeypatch.setattr(top, "LOWEST", 0)
    memory.answers._values.clear()
    # Another address of the same page: nobody has been answered it.
    assert client.get("/benchmarks/digits?limit=5&withdrawn=").text == page
    assert memory.submissions.latest(("digits", "train")) is not None
