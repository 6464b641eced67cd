"""Workers without a broker: each holds a poll at the server until it is drawn for an attempt."""

import threading

from server.verifications.queue import take_due
from tests.support.processes import wait_for


def ask(client, person, name="walter-1", wait=0):
    path = f"/api/v1/workers/{name}/next"
    return client.post(path, params={"wait": wait}, headers=person.headers)


def drawn(database):
    with database.write() as session:
        return take_due(session)


def test_poll_names_the_attempt_until_it_is_leased(replay, hello, client, walter, database):
    hello(polls=True)
    assert ask(client, walter).status_code == 204
    assert [one.polls for one in drawn(database)] == [True]  # The broker brings it nothing.

    answers = [ask(client, walter, wait=5) for _ in range(2)]
    assert [answer.json() for answer in answers] == [{"attempt_id": replay.attempt_id}] * 2
    assert replay.claim().status_code == 200
    wait_for(
        lambda: ask(client, walter).status_code == 204, seconds=10, what="the lease to be seen"
    )


def test_poll_waits_until_there_is_work(replay, hello, client, walter, database):
    hello(polls=True)
    answers = []
    asking = threading.Thread(target=lambda: answers.append(ask(client, walter, wait=20)))
    asking.start()
    wait_for(lambda: drawn(database), seconds=20, what="the attempt's turn")
    asking.join(timeout=20)
    assert answers[0].json()["attempt_id"] == replay.attempt_id


def test_poll_is_for_the_worker_and_its_owner(replay, hello, client, walter, alice, database):
    hello()
    drawn(database)
    assert ask(client, alice).status_code == 403
    assert ask(client, walter, "walter-2").status_code == 404
    assert "sign-on first" in ask(client, walter, "walter-2").json()["detail"]
    assert ask(client, walter, wait=21).status_code == 422
