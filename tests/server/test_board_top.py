"""The top of a board, read without the rest, is the top of the board read whole."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from sqlalchemy import delete, insert

from rules.benchmark import Benchmark
from server.database import Database, utc_now
from server.leaderboard import top
from server.leaderboard.encoding import encode_json
from server.leaderboard.memory import memory_of
from server.leaderboard.queries import read_board
from server.leaderboard.schemas import BoardQuery
from server.models import RunRow, Submission

SUBMISSIONS = 60


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.processes)])
def database_url(request: pytest.FixtureRequest) -> str:
    """Both databases sort and cut."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def fill(
    digits_submission: Any, submit: Callable[..., Any], database: Database
) -> Callable[[Random, int], None]:
    """Adds submissions like one that was sent: few different figures, some not ranked, of so many
    runs at most.
    """
    sent = submit(digits_submission).json()["id"]
    with database.read() as session:
        like = {
            c.key: getattr(session.get(Submission, sent), c.key) for c in Submission.__table__.c
        }

    def add(random: Random, most_runs: int) -> None:
        rows, runs = [], []
        for number in range(SUBMISSIONS):
            seconds = random.choice((None, 40.0, 41.0, 42.0, 50.0, 51.0, 60.0, 70.0, 71.0))
            own = {
                "id": f"t{number}",
                "status": random.choice(("claimed", "verified", "rejected")),
                "eligible": random.random() < 0.8,
                "division": random.choice(("closed", "open")),
                "tta_seconds": seconds,
                "cost_usd": random.choice((None, 1.0, 2.0, 3.0)),
                "submitted_at": utc_now(),
                "idempotency_key": None,
            }
            rows.append(like | own)
            for index in range(random.randint(1, most_runs) if seconds else 0):
                tta_seconds = (seconds or 0.0) * random.lognormvariate(0.0, 0.01)
                runs.append(run_row(own["id"], index, tta_seconds))
        with database.write() as session:
            session.execute(delete(RunRow))
            session.execute(insert(Submission), rows)
            session.execute(insert(RunRow), runs)

    return add


def run_row(submission_id: Any, index: int, tta_seconds: float) -> dict[str, Any]:
    """A run that reached the target."""
    return {
        "submission_id": submission_id,
        "index": index,
        "file": f"{index}.log",
        "log_sha256": "0" * 64,
        "log_bytes": 1,
        "reached": True,
        "tta_seconds": tta_seconds,
        "curve": [],
    }


@pytest.fixture
def tops(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each read, whether its top was had without the rest; tops are looked for in few rows."""
    found = []
    read_top = top.read_top

    def noted(*arguments: Any, **named: Any) -> Any:
        answer = read_top(*arguments, **named)
        found.append(answer is not None)
        return answer

    monkeypatch.setattr(top, "SPARE", 3)
    monkeypatch.setattr("server.leaderboard.ranked.read_top", noted)
    return found


@pytest.mark.parametrize("most_runs", [3, 1])
def test_the_top_read_alone_is_that_of_the_whole_board(
    fill: Callable[..., None],
    database: Database,
    digits: Benchmark,
    monkeypatch: pytest.MonkeyPatch,
    tops: list[bool],
    most_runs: int,
) -> None:
    fill(Random(most_runs), most_runs)

    def read(query: BoardQuery, lowest: int) -> bytes:
        monkeypatch.setattr(top, "LOWEST", lowest)
        with database.read_snapshot() as session:
            memory_of(session).submissions._values.clear()
            return encode_json(read_board(session, digits, query))

    for metric in ("tta", "cost"):
        for division in (None, "closed"):
            for limit, page in ((1, 1), (4, 1), (3, 3), (10, 1), (10, 2), (40, 1)):
                query = BoardQuery.model_validate(
                    {"metric": metric, "division": division, "limit": limit, "page": page}
                )
                assert read(query, 300) == read(query, 0), query
    # Where no submission has two runs, only the whole board tells that none of it is tested.
    assert sum(tops) >= 5 if most_runs > 1 else not any(tops)
