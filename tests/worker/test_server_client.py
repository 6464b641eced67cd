import httpx2
import pytest

from finishline.rules.verification.messages import (
    BatchAnswer,
    ClaimRequest,
    EvaluationBatch,
    Lease,
    ReplayReport,
)
from worker.link import (
    FencedOffError,
    RefusedError,
    ServerClient,
    UnreachableError,
)

GRANT = Lease(attempt_id="attempt-1", fence=1, token="attempt-token", lease_seconds=0.5)
CLAIM = ClaimRequest(worker="grace", hardware_class="cpu-test")


@pytest.fixture
def talk():
    """A client whose server answers with the given responses, the last one for ever."""
    clients = []

    def talk(*answers, waits=None):
        remaining = list(answers)
        requests = []

        def answer(request):
            requests.append(request)
            chosen = remaining.pop(0) if len(remaining) > 1 else remaining[0]
            if isinstance(chosen, Exception):
                raise chosen
            return chosen

        client = ServerClient(
            "http://server",
            token="worker-token",
            transport=httpx2.MockTransport(answer),
            wait=(waits if waits is not None else []).append,
        )
        clients.append(client)
        return client, requests

    yield talk
    for client in clients:
        client.__exit__(None, None, None)


def granted():
    return httpx2.Response(
        200,
        json={"attempt_id": "attempt-1", "fence": 3, "token": "secret", "lease_seconds": 8},
    )


def test_claim_returns_the_grant_and_authorises_with_the_workers_token(talk):
    client, requests = talk(granted())
    grant = client.claim("attempt-1", CLAIM)
    assert grant == Lease("attempt-1", 3, "secret", 8.0)
    assert requests[0].url == "http://server/api/v1/attempts/attempt-1/claim"
    assert requests[0].headers["authorization"] == "Bearer worker-token"


def test_posts_of_an_attempt_authorise_with_the_token_of_the_claim(talk):
    client, requests = talk(httpx2.Response(200, json={"proceed": True, "reason": None}))
    assert client.post_events(GRANT, EvaluationBatch()) == BatchAnswer(proceed=True)
    assert requests[0].headers["authorization"] == "Bearer attempt-token"
    assert requests[0].content == b'{"events":[]}'


@pytest.mark.parametrize(
    "trouble",
    [httpx2.ConnectError("refused"), httpx2.ReadTimeout("slow"), httpx2.Response(503),
     httpx2.Response(429)],
    ids=["refused", "timeout", "503", "429"],
)  # fmt: skip
def test_a_server_in_trouble_is_asked_again_with_growing_waits(talk, trouble):
    waits = []
    client, requests = talk(trouble, trouble, trouble, granted(), waits=waits)
    client.claim("attempt-1", CLAIM)
    assert len(requests) == 4
    assert waits == sorted(waits)
    assert waits[-1] > waits[0] > 0


@pytest.mark.parametrize("status", [429, 503])
def test_a_server_that_asks_for_a_pause_gets_it_as_long_as_a_try_is_left(talk, status):
    waits = []
    busy = httpx2.Response(status, headers={"Retry-After": "3"})
    far = httpx2.Response(status, headers={"Retry-After": "3600"})
    client, requests = talk(busy, far, granted(), waits=waits)
    client.claim("attempt-1", CLAIM)
    assert len(requests) == 3
    assert waits[0] == 3
    assert 14 < waits[1] <= 15  # Half of the 30 s that a claim is tried for.


@pytest.mark.parametrize("status", [401, 404, 422])
def test_a_refusal_is_not_asked_again_and_carries_the_servers_sentence(talk, status):
    client, requests = talk(httpx2.Response(status, json={"detail": "no such attempt"}))
    with pytest.raises(RefusedError, match="no such attempt"):
        client.claim("attempt-1", CLAIM)
    assert len(requests) == 1


def test_a_conflict_means_fenced_off(talk):
    client, requests = talk(httpx2.Response(409, json={"detail": "taken"}))
    with pytest.raises(FencedOffError):
        client.post_events(GRANT, EvaluationBatch())
    assert len(requests) == 1


def test_events_are_given_up_when_the_lease_is_over(talk, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])

    class Waits(list):
        def append(self, seconds):
            now[0] += seconds
            super().append(seconds)

    waits = Waits()
    client, _ = talk(httpx2.ConnectError("refused"), waits=waits)
    with pytest.raises(UnreachableError):
        client.post_events(GRANT, EvaluationBatch())
    assert 0 < sum(waits) <= GRANT.lease_seconds
    with pytest.raises(UnreachableError):
        client.report(GRANT, ReplayReport(runs=[], system=None))
    assert sum(waits) > 5 * GRANT.lease_seconds  # a report is worth waiting longer for
