import httpx2

from worker.hello import HelloThread
from worker.server_client import ServerClient
from worker.state import WorkerState


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
    caplog.set_level("INFO", logger="worker.hello")
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
