import httpx2

from worker.intake import HelloThread, WorkerState
from worker.link import ServerClient


def test_worker_says_hello_at_once_repeatedly_and_when_it_stops(fake_server, server_client, system):
    state = WorkerState()
    with HelloThread(server_client, system, state, every_seconds=0.01):
        fake_server.wait_for(lambda: len(fake_server.bodies("hello")) >= 3)
        state.busy = True
        fake_server.wait_for(lambda: fake_server.bodies("hello")[-1]["state"] == "busy")
    hellos = fake_server.bodies("hello")
    assert hellos[0]["state"] == "idle"
    assert hellos[-1]["state"] == "stopping"
    assert hellos[0]["system"]["worker"] == "grace"
    assert fake_server.tokens("hello") == {"Bearer worker-token"}


def test_a_server_that_is_away_is_logged_once_and_again_when_it_is_back(system, caplog):
    caplog.set_level("INFO", logger="worker.intake")
    answers = [httpx2.ConnectError("refused"), httpx2.ConnectError("refused"), httpx2.Response(204)]

    def answer(request):
        chosen = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(chosen, Exception):
            raise chosen
        return chosen

    with ServerClient("http://server", token="t", transport=httpx2.MockTransport(answer)) as client:
        hello = HelloThread(client, system, WorkerState())
        for _ in range(4):
            hello._say()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_a_hello_brings_an_organisers_order_and_takes_it_back(system, caplog):
    caplog.set_level("INFO", logger="worker.intake")
    orders = [
        {"order": "pause", "why": "paused by olivia: new fans"},
        {"order": "drain", "why": None},
        {"order": "work", "why": None},
        None,
    ]

    def answer(request):
        order = orders.pop(0)
        return httpx2.Response(204) if order is None else httpx2.Response(200, json=order)

    state = WorkerState()
    with ServerClient("http://server", token="t", transport=httpx2.MockTransport(answer)) as client:
        hello = HelloThread(client, system, state)
        held = []
        while orders:
            hello._say()
            held.append((state.paused, state.drained, state.takes_nothing))
    nothing = (False, False, False)
    # A server of the version before answers nothing, which is no order.
    assert held == [(True, False, True), (False, True, True), nothing, nothing]
    assert "asked to pause: paused by olivia: new fans" in caplog.text
    assert "asked to work" in caplog.text


def test_a_worker_that_has_become_free_says_so_at_once(fake_server, server_client, system):
    with HelloThread(server_client, system, WorkerState(), every_seconds=600.0) as hello:
        fake_server.wait_for(lambda: len(fake_server.bodies("hello")) == 1)
        hello.say_soon()
        fake_server.wait_for(lambda: len(fake_server.bodies("hello")) == 2)


def test_a_refused_token_ends_the_worker_with_sentences(system, caplog):
    refusal = {"detail": "This token is not known here."}
    transport = httpx2.MockTransport(lambda _: httpx2.Response(401, json=refusal))
    with ServerClient("http://server", token="t", transport=transport) as client:
        HelloThread(client, system, WorkerState())._say()
    assert "401: This token is not known here. This worker ends; give it a token" in caplog.text
