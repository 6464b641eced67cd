"""Whose a worker is."""

from collections.abc import Callable
from dataclasses import asdict, replace

import pytest
from fastapi.testclient import TestClient

from server.base.database import Database, utc_now
from server.base.models import WorkerRow
from server.verifications.workers import is_organisers_worker, owner_of
from tests.server.conftest import WORKER_SYSTEM, Person


@pytest.fixture
def greet(client: TestClient) -> Callable[[Person, str], None]:
    """Says hello as a worker of somebody's."""

    def say(person: Person, name: str) -> None:
        hello = {"system": asdict(replace(WORKER_SYSTEM, worker=name)), "state": "idle"}
        answer = client.post("/api/v1/workers/hello", json=hello, headers=person.headers)
        assert answer.status_code == 200, answer.text

    return say


@pytest.mark.unconfirmed
def test_a_worker_of_an_organiser_is_the_organisers(
    greet: Callable[[Person, str], None],
    make_person: Callable[..., Person],
    database: Database,
    walter: Person,
) -> None:
    make_person("olivia", "organiser")
    greet(make_person("olivia", "worker"), "hers")
    greet(walter, "walter-1")

    with database.read() as session:
        assert is_organisers_worker(session, "hers")
        assert not is_organisers_worker(session, "walter-1")
        assert not is_organisers_worker(session, "never seen")
        assert owner_of(session, "hers") != owner_of(session, "walter-1") is not None
        assert owner_of(session, "never seen") is None


def test_a_worker_that_an_organiser_confirmed_stays_its_owners(
    greet: Callable[[Person, str], None], database: Database, walter: Person
) -> None:
    greet(walter, "walter-1")
    with database.write() as session:
        worker = session.get_one(WorkerRow, "walter-1")
        worker.confirmed_at, worker.confirmed_by = utc_now(), worker.user_id
        assert not is_organisers_worker(session, "walter-1")

        worker.confirmed_by = None
        assert is_organisers_worker(session, "walter-1")
