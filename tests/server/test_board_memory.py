"""What a process keeps of a board: never more than it may, never of another version."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server.app import create_app
from server.base.board_versions import VersionedCache
from server.base.database import Database
from server.base.settings import Settings
from tests.support.statements import statements_of

pytestmark = pytest.mark.usefixtures("claims_are_numbered")

BOARD = "/api/v1/leaderboards/digits"


@dataclass
class Weight:
    weight: int


def test_a_value_is_made_once_for_each_version() -> None:
    cache, made = VersionedCache(10), []
    for version in (1, 1, 2, 1):
        cache.get("key", version, made.append)
    assert made == [None, (1, None), (2, None)]
    assert cache.get("key", 1, lambda _: 99) is None


def test_the_longest_unused_go_when_it_grows_too_heavy() -> None:
    cache = VersionedCache(10)
    for name in ("a", "b", "c"):
        cache.get(name, 1, lambda _: Weight(4))
        cache.get("a", 1, lambda _: Weight(100))
    assert [name for name in "abc" if cache.latest(name)] == ["a", "c"]
    assert cache.get("d", 1, lambda _: Weight(50)) == Weight(50)
    assert [name for name in "acd" if cache.latest(name)] == ["d"]


def test_a_value_that_grows_after_it_was_cached_weighs_what_it_has_grown_to() -> None:
    cache = VersionedCache(10)
    cache.get("a", 1, lambda _: Weight(1)).weight = 9
    cache.get("b", 1, lambda _: Weight(3))
    assert (cache.latest("a"), cache.latest("b")) == (None, (1, Weight(3)))


def test_many_who_ask_at_once_wait_for_one_who_makes_it() -> None:
    cache, made = VersionedCache(10), []
    started = threading.Barrier(8)

    def make() -> int:
        made.append(threading.get_ident())
        return 7

    def ask() -> None:
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


def test_another_process_sees_a_change_at_once(
    digits_submission: Any, submit: Callable[..., Any], client: TestClient, settings: Settings
) -> None:
    with TestClient(create_app(settings, dispatch=False)) as other:
        for path in (BOARD, "/benchmarks/digits"):
            assert other.get(path).text.count("/submissions/") == 0
        submit(digits_submission)
        assert other.get(BOARD).json()["total"] == 1
        assert 'href="/submissions/' in other.get("/benchmarks/digits").text
