"""Who is not sent an attempt while another owner's worker is there."""

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from server.base.models import Attempt, User, Verification, WorkerRow
from server.verifications.queue_order import take_due
from tests.server.conftest import WORKER_SYSTEM, Person


@pytest.fixture
def hello(client: TestClient, make_person: Callable[..., Person]) -> Callable[..., None]:
    """Says hello as a worker of somebody's, with their name."""
    people: dict[str, Person] = {}

    def say(name: str, state: str = "idle") -> None:
        if name not in people:
            people[name] = make_person(name, "worker")
        system = asdict(replace(WORKER_SYSTEM, worker=name))
        body = {"system": system, "state": state}
        answer = client.post("/api/v1/workers/hello", json=body, headers=people[name].headers)
        assert answer.status_code == 200, answer.text

    return say


def drawn(replay: Any) -> set[str]:
    """Every worker that is drawn for the latest attempt in twenty draws."""
    found = set()
    for _ in range(20):
        with replay.database.write() as session:
            found.update(one.queue for one in take_due(session, alive_seconds=20.0))
            session.get_one(Attempt, replay.attempt_id).sent_to = None
            session.get_one(Attempt, replay.attempt_id).sends = 0
    return {queue.removeprefix("replay.") for queue in found}


def test_nobody_replays_a_board_where_they_compete_while_another_can(
    replay: Any,
    hello: Callable[..., None],
    submit: Callable[..., Any],
    digits_submission: Any,
    bob: Person,
) -> None:
    hello("walter")
    assert submit(digits_submission, by=bob).status_code == 201
    hello("bob")  # A rival of the claim that waits.
    hello("alice")  # The claimant.
    assert drawn(replay) == {"walter"}
    hello("walter", "busy")
    assert drawn(replay) == set()  # It waits for the worker that is there.
    hello("walter", "stopping")
    assert drawn(replay) == {"bob", "alice"}


def test_a_member_of_a_rivals_organisation_is_a_rival(
    replay: Any, hello: Callable[..., None], client: TestClient, ada: Person
) -> None:
    hello("walter")
    hello("wilma")
    made = client.post("/api/v1/organisations", json={"name": "Lab"}, headers=ada.headers).json()
    with replay.database.write() as session:
        for user in session.scalars(select(User).where(User.name.in_(("alice", "wilma")))):
            user.organisation_id = made["id"]
    assert drawn(replay) == {"walter"}


def test_a_failed_attempt_does_not_go_back_to_that_owner_while_there_is_another(
    replay: Any, hello: Callable[..., None]
) -> None:
    hello("walter")
    hello("wilma")
    first = replay.attempt_id
    assert drawn(replay) == {"walter", "wilma"}
    with replay.database.write() as session:
        attempt = session.get_one(Attempt, first)
        attempt.state, attempt.worker = "failed", "walter"
        session.add(
            Attempt(
                id="second",
                verification_id=attempt.verification_id,
                number=2,
                state="queued",
                fence=0,
                sends=0,
                send_after=attempt.send_after,
                created_at=attempt.created_at,
                asked_at=attempt.asked_at,
                hardware_class=attempt.hardware_class,
                submitter_id=attempt.submitter_id,
                by_organiser=attempt.by_organiser,
            )
        )
    assert drawn(replay) == {"wilma"}
    hello("wilma", "stopping")
    assert drawn(replay) == {"walter"}


def test_a_duel_goes_to_the_organisers_worker_while_it_is_there(
    replay: Any, hello: Callable[..., None]
) -> None:
    hello("walter")
    hello("wilma")
    with replay.database.write() as session:
        session.get_one(Verification, replay.verification_id).kind = "duel"
        organiser = session.scalars(select(User).where(User.name == "olivia")).one()
        session.get_one(WorkerRow, "walter").confirmed_by = organiser.id  # Walter's own, then.
    assert drawn(replay) == {"wilma"}
    hello("wilma", "stopping")
    assert drawn(replay) == {"walter"}
