"""When a token was last used: noted by requests, written apart from them."""

from datetime import timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server.base.database import Database, utc_now
from server.base.models import Token
from server.people import last_use
from server.people.last_use import LastUses
from tests.support.processes import wait_for
from tests.support.services import services_of
from tests.support.statements import statements_of

ME = "/api/v1/me"


@pytest.fixture
def last_uses(client: TestClient) -> LastUses:
    """Those of `client`, which has no thread to write them."""
    found: LastUses = services_of(client).of(LastUses)
    return found


def last_used(client: TestClient, person: Any) -> Any:
    return client.get(f"{ME}/tokens", headers=person.headers).json()["tokens"][0]["last_used_at"]


def test_a_use_is_written_once_a_minute_and_never_by_a_request(
    client: TestClient, alice: Any, last_uses: LastUses, database: Database
) -> None:
    with statements_of(database, lambda text: "UPDATE" in text) as written:
        for _ in range(3):
            assert client.get(ME, headers=alice.headers).status_code == 200
        assert (written, last_used(client, alice)) == ([], None)

        assert (last_uses.write(), last_uses.write()) == (1, 0)
        first = last_used(client, alice)
        assert first is not None
        assert client.get(ME, headers=alice.headers).status_code == 200
        assert last_uses.write() == 0
        assert len(written) == 1


def test_of_two_processes_the_later_use_within_a_minute_writes_nothing(
    client: TestClient, alice: Any, last_uses: LastUses, database: Database
) -> None:
    client.get(ME, headers=alice.headers)
    last_uses.write()
    first = last_used(client, alice)
    other = LastUses(database)
    with database.read() as session:
        token_id = session.query(Token.id).scalar()
    other.note(token_id)
    other.write()
    assert last_used(client, alice) == first

    with database.write() as session:
        session.get_one(Token, token_id).last_used_at = utc_now() - timedelta(minutes=2)
    another = LastUses(database)
    another.note(token_id)
    another.write()
    assert last_used(client, alice) >= first


def test_a_request_is_answered_when_its_use_cannot_be_written(
    client: TestClient, alice: Any, last_uses: LastUses, database: Database, caplog: Any
) -> None:
    client.get(ME, headers=alice.headers)
    with database.write() as session:
        session.connection().exec_driver_sql(
            "CREATE TRIGGER no BEFORE UPDATE ON tokens BEGIN SELECT RAISE(ABORT, 'no room'); END"
        )
    assert last_uses.write() == 0
    assert "no room" in caplog.text
    assert client.get(ME, headers=alice.headers).status_code == 200


def test_the_thread_writes_what_was_noted_also_at_its_end(
    client: TestClient, alice: Any, bob: Any, last_uses: LastUses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last_use, "GATHERED_SECONDS", 0.01)
    last_uses.thread.start()
    client.get(ME, headers=alice.headers)
    wait_for(lambda: last_used(client, alice) is not None, seconds=10.0, what="a last use")
    monkeypatch.setattr(last_use, "GATHERED_SECONDS", 60.0)
    client.get(ME, headers=bob.headers)
    last_uses.thread.stop()
    assert last_used(client, bob) is not None


def test_boards_note_no_use(client: TestClient, alice: Any, last_uses: LastUses) -> None:
    for address in ("/api/v1/leaderboards/digits", "/benchmarks/digits"):
        assert client.get(address, headers=alice.headers).status_code == 200
    assert last_uses.write() == 0
