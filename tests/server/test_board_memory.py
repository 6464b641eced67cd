"""What a process keeps of a board: never more than it may, never of another version."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server.app import create_app
from server.boards.encoding import Encoded
from server.boards.memory import MIB, BoardMemory, VersionedCache
from server.database import Database
from server.settings import Settings
from tests.support.statements import statements_of

pytestmark = pytest.mark.usefixtures("claims_are_numbered")

BOARD = "/api/v1/leaderboards/digits"


@dataclass(frozen=True)
class Weight:
    kilograms: int


def test_a_value_is_made_once_for_each_version() -> None:
    cache, made = VersionedCache(most=10), []
    for version in (1, 1, 2, 1):
        cache.get("key", version, lambda: made.append(1) or len(made))  # type: ignore[func-returns-value]
    assert len(made) == 3
    assert cache.get("key", 1, lambda: 99) == 3


def test_the_longest_unused_go_when_it_grows_too_heavy() -> None:
    cache = VersionedCache(most=10, weigh=lambda weight: weight.kilograms)
    for name in ("a", "b", "c"):
        cache.get(name, 1, lambda: Weight(4))
        cache.get("a", 1, lambda: Weight(100))
    assert [name for name in "abc" if cache._find(name, 1)] == ["a", "c"]
    assert cache.get("d", 1, lambda: Weight(50)) == Weight(50)
    assert len(cache) == 1
    cache.get("d", 2, lambda: Weight(5))
    cache.get("e", 1, lambda: Weight(5))
    assert len(cache) == 2


def test_long_keys_that_strangers_choose_count_beside_short_answers() -> None:
    kept, most = BoardMemory().answers, 64 * MIB
    empty = Encoded(b"", etag="", total=0, next_cursor=None)
    for number in range(100):
        kept.get((str(number), "x" * MIB), 1, lambda: empty)

    assert most // MIB - 2 < len(kept) <= most // MIB


def test_many_who_ask_at_once_wait_for_one_who_makes_it() -> None:
    cache, made = VersionedCache(most=10), []
    started = threading.Barrier(8)

    def make() -> int:
        made.append(threading.get_ident())
        return 7

    def ask() -> None:
        started.wait(timeout=10)
        cache.get("key", 1, make)

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
    path: str,
    digits_submission: Any,
    submit: Callable[..., Any],
    client: TestClient,
    database: Database,
) -> None:
    submit(digits_submission)
    first = client.get(path)
    with statements_of(database) as sent:
        again = client.get(path)

    assert again.content == first.content
    statements = [text for text in sent if not text.startswith("BEGIN")]
    assert len(statements) <= 1, "none where the version is fresh"
    assert all("FROM boards" in text for text in statements)


def test_another_process_sees_the_change_soon(
    digits_submission: Any, submit: Callable[..., Any], client: TestClient, settings: Settings
) -> None:
    with TestClient(create_app(settings, dispatch=False)) as other:
        for path in (BOARD, "/benchmarks/digits"):
            assert other.get(path).text.count("/submissions/") == 0
        submit(digits_submission)
        deadline = time.monotonic() + 10.0
        while other.get(BOARD).json()["total"] == 0:
            assert time.monotonic() < deadline, "not seen"
        assert other.get(BOARD).json()["total"] == 1
        assert 'href="/submissions/' in other.get("/benchmarks/digits").text
