"""Workers that ask the server itself for work, and are sent no message."""

import threading

from server.verifications.queue_order import take_due
from tests.server.test_workers import greeted  # noqa: F401
from tests.support.processes import wait_for


def ask(client, person, name="walter-1", wait=0):
    path = f"/api/v1/workers/{name}/next"
    return client.post(path, params={"wait": wait}, headers=person.headers)


def test_a_worker_that_asks_gets_its_attempt_until_it_has_claimed_it(
    replay, greeted, client, walter, database
):
    assert ask(client, walter).status_code == 204
    with database.write() as session:
        (sending,) = take_due(session, alive_seconds=60.0)
    assert sending.is_asked_for, "no message is sent"

    answers = [ask(client, walter, wait=5) for _ in range(2)]
    assert [answer.json()["attempt_id"] for answer in answers] == [replay.attempt_id] * 2
    assert answers[0].json()["trainings"]
    assert replay.claim().status_code == 200
    assert ask(client, walter).status_code == 204


def test_a_worker_waits_until_there_is_work(replay, greeted, client, walter, database):
    answers = []
    asking = threading.Thread(target=lambda: answers.append(ask(client, walter, wait=20)))
    asking.start()

    def sent():
        with database.write() as session:
            return bool(take_due(session, alive_seconds=60.0))

    wait_for(sent, seconds=20, what="the attempt's turn")
    asking.join(timeout=20)
    assert answers[0].json()["attempt_id"] == replay.attempt_id


def test_work_is_for_the_worker_that_was_drawn_and_its_owner(
    replay, greeted, client, walter, alice, database
):
    with database.write() as session:
        take_due(session, alive_seconds=60.0)
    assert ask(client, alice).status_code == 403
    assert ask(client, walter, "walter-2").status_code == 404
    assert "hello first" in ask(client, walter, "walter-2").json()["detail"]
    assert ask(client, walter, wait=21).status_code == 422
