"""Retries, their pauses, streams of events, and the error raised in the end."""

from contextlib import contextmanager

import httpx2
import pytest

import finishline
from finishline import Client, FinishlineError
from finishline.client.errors import NotFound, Unavailable
from finishline.client.sse import ServerEvent, follow_events, parse_events, split_lines
from finishline.client.transport import Transport


class Server:
    """Answers in order, the last one for ever; keeps what it was asked."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []
        self.bodies = []
        self.pauses = []

    def __call__(self, request):
        self.asked.append(request)
        self.bodies.append(request.read())
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def client(self, **settings):
        """A client of this server, that keeps its pauses instead of making them."""
        transport = httpx2.MockTransport(self)
        return Client(
            "http://server.test", pause=self.pauses.append, transport=transport, **settings
        )


def answer(status=200, *, retry_after=None, **content):
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    return httpx2.Response(status, headers=headers, **(content or {"json": {"benchmarks": []}}))


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_read_is_tried_again_until_the_server_is_back(status):
    server = Server(answer(status), httpx2.ConnectError("refused"), answer())
    with server.client() as client:
        assert client.benchmarks() == []
    assert len(server.asked) == 3
    first, second = server.pauses
    assert 0.25 <= first <= 0.5
    assert 0.5 <= second <= 1.0


def test_the_pause_is_the_one_the_server_asks_for():
    past = "Wed, 21 Oct 2015 07:28:00 GMT"
    nonsense, far = "soon", f"Wed, 21 Oct 2026 07:28:00 +{'9' * 20}"
    said = [answer(503, retry_after=each) for each in (past, nonsense, far)]
    server = Server(answer(429, retry_after="7"), *said, answer())
    with server.client() as client:
        client.benchmarks()
    assert server.pauses[:2] == [7.0, 0.0]
    assert min(server.pauses[2:]) > 0


@pytest.mark.parametrize(
    ("status", "kind", "asked"),
    [(401, finishline.NotSignedIn, 1), (403, finishline.NotAllowed, 1),
     (404, finishline.NotFound, 1), (409, finishline.Conflict, 1), (413, finishline.Refused, 1),
     (422, finishline.Refused, 1), (302, finishline.Unavailable, 1),
     (500, finishline.Unavailable, 1),
     (503, finishline.Unavailable, 3)],  # The last failure, once all tries are used.
)  # fmt: skip
def test_each_status_has_its_error(status, kind, asked):
    server = Server(answer(status, json={"detail": "no"}))
    with server.client(retries=2) as client, pytest.raises(FinishlineError) as caught:
        client.benchmarks()
    assert type(caught.value) is kind
    assert (caught.value.status, caught.value.detail) == (status, "no")
    assert len(server.asked) == asked


@pytest.mark.parametrize(
    ("answers", "kind", "asked", "pauses"),
    [
        ([(503, None)], finishline.Unavailable, 1, []),  # It must not happen twice.
        ([(429, "7"), (422, None)], finishline.Refused, 2, [7]),
        ([(503, "7"), (422, None)], finishline.Refused, 2, [7]),
        ([(429, "7200")], finishline.TooManyRequests, 1, []),
    ],
)
def test_a_change_is_sent_again_only_where_the_server_says_when(answers, kind, asked, pauses):
    server = Server(
        *(answer(status, retry_after=later, json={"detail": "no"}) for status, later in answers)
    )
    with server.client() as client, pytest.raises(kind) as caught:
        client.verify("abc")
    assert (len(server.asked), server.pauses) == (asked, pauses)
    assert kind is not finishline.TooManyRequests or caught.value.retry_after_seconds == 7200


def test_a_submission_is_sent_again_whole_and_under_the_same_key(folder):
    server = Server(httpx2.ReadTimeout("slow"), answer(503), answer(422, json={"detail": "no"}))
    with server.client() as client, pytest.raises(finishline.Refused):
        client.submit(folder)
    keys = {request.headers["Idempotency-Key"] for request in server.asked}
    assert (len(keys), len(server.bodies)) == (1, 3)
    for body in server.bodies:
        assert (folder / "run_2.log").read_bytes() in body


@pytest.mark.parametrize(
    ("detail", "problems", "told"),
    [
        ("no", [{"message": "odd", "file": 3, "line": "x", "field": {}, "expected": ["y"]}],
         "no\n  3, field {}: odd; expected ['y']"),
        ("body.role: odd", [{"field": "body.role", "message": "odd"},
                            {"field": "query.limit", "message": "large"}],
         "role: odd\n  field role: odd\n  field limit: large"),
    ],
)  # fmt: skip
def test_a_problem_is_told_in_a_line(detail, problems, told):
    server = Server(answer(422, json={"detail": detail, "problems": problems}))
    with server.client() as client, pytest.raises(finishline.Refused) as no:
        client.benchmarks()
    assert str(no.value) == told


def read_stream(transport):
    with transport.stream("/verifications/v1/events", None) as chunks:
        list(chunks)


@pytest.mark.parametrize("ask", [read_stream, lambda transport: transport.get("/benchmarks")])
def test_redirects_and_garbage_are_one_sentence(ask):
    garbage = {"content": iter([b"no"]), "headers": {"Content-Encoding": "gzip"}}
    server = Server(answer(302, json={"detail": "moved"}), httpx2.Response(200, **garbage))
    with Transport("http://server.test", transport=httpx2.MockTransport(server)) as transport:
        with pytest.raises(Unavailable, match=r"^moved$"):
            ask(transport)
        with pytest.raises(finishline.NoAnswer, match=r"^No response from http://server.test \("):
            ask(transport)


def test_names_of_any_characters_are_sent():
    ended = b"event: end\ndata: {}\n\n"
    server = Server(answer(content="id: \u00e9\ndata: 1\n\n".encode()), answer(content=ended))
    with server.client() as client:
        assert [event.name for event in client.watch("..")] == ["message", "end"]
        list(client.watch("a/b"))
    assert dict(server.asked[1].headers.raw)[b"Last-Event-ID"] == "\u00e9".encode()
    paths = [each.url.raw_path.split(b"/")[4] for each in server.asked]
    assert paths == [b"-", b"-", b"a%2Fb"]


def test_a_log_larger_than_any_server_takes_is_left(monkeypatch):
    monkeypatch.setattr("finishline.client.client.LOG_LIMIT_BYTES", 10)
    with (
        Server(answer(content=b"x" * 11)).client() as client,
        pytest.raises(FinishlineError, match="larger than 10 bytes"),
    ):
        client.log("abc", 0)


def test_address_and_token_are_those_of_the_environment(monkeypatch):
    monkeypatch.setenv("FINISHLINE_URL", "http://elsewhere.test/")
    monkeypatch.setenv("FINISHLINE_TOKEN", "fl_secret")
    server = Server(answer())
    with Client(transport=httpx2.MockTransport(server)) as client:
        client.benchmarks()
    assert str(server.asked[0].url) == "http://elsewhere.test/api/v1/benchmarks"
    assert server.asked[0].headers["Authorization"] == "Bearer fl_secret"
    with pytest.raises(ValueError, match="Invalid server address"):
        Client("elsewhere")
    for broken in ("fl_sécret", "fl_a\nX-Other: 1"):
        with pytest.raises(ValueError, match="Invalid token"):
            Client("http://elsewhere.test", token=broken)


def make_verification(**fields):
    absent = (
        "submission_id", "checks_id", "against_id", "calibration_id", "waiting_for", "nonce",
        "seeds", "hyperparameters", "outcome", "head_to_head", "report", "reason", "ended_at",
        "decision",
    )  # fmt: skip
    empty = ("control_points", "attempts", "reasons", "backends", "utilisation")
    target = {"metric": "m", "value": 1.0, "unit": "u", "direction": "higher"}
    return {
        **dict.fromkeys(absent),
        **{name: [] for name in empty},
        "id": "v1",
        "kind": "replay",
        "benchmark": "digits",
        "seal": "0" * 64,
        "runs_planned": 3,
        "target": target,
        "created_at": "2026-11-20T16:00:00Z",
        "published": False,
    } | fields


def test_waiting_ends_at_the_limit():
    running = make_verification(state="running", colour="of a newer server")
    server = Server(answer(json=running))
    with server.client() as client:
        assert client.verification("v1").colour == "of a newer server"
        with pytest.raises(TimeoutError, match="still running after 0 s"):
            client.wait("v1", timeout_seconds=0)
        server.answers = [answer(json=running), answer(json=make_verification(state="done"))]
        assert client.wait("v1", timeout_seconds=60).state == "done"
    assert server.pauses == [1]


def events_of(*chunks):
    return list(parse_events(split_lines(chunks)))


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        # HTML Living Standard, 9.2.6: the stream with a test comment, ids and a data line.
        (b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\n"
         b"data:  third event\n",
         [("message", "first event", "1"), ("message", "second event", "")]),
        (b"data: YHOO\ndata: +2\ndata: 10\n\n", [("message", "YHOO\n+2\n10", None)]),
        (b"event: state\n\ndata: x\n\n", [("message", "x", None)]),
        ('data: "a\u2028b"\n\n'.encode(), [("message", '"a\u2028b"', None)]),
    ],
)  # fmt: skip
def test_events_are_read_as_the_standard_says(stream, events):
    assert events_of(stream) == [ServerEvent(*each) for each in events]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_end_of_the_standard_is_read_wherever_chunks_break(end):
    stream = end.join([b"event: a", b"data: 1", b"", b"event: b", b"data: 2", b"", b""])
    whole = events_of(stream)
    assert [(event.name, event.text) for event in whole] == [("a", "1"), ("b", "2")]
    for at in range(len(stream)):
        assert events_of(stream[:at], stream[at:]) == whole


def test_an_event_that_is_not_json_is_refused_by_name():
    with pytest.raises(Unavailable, match="event 'state' that is not JSON"):
        ServerEvent("state", "{", None).json()
    with pytest.raises(Unavailable, match="not JSON"):
        ServerEvent("state", "[" * 100_000, None).json()


class Connections:
    """Streams to be opened one after the other; an exception stands for a refused connection."""

    def __init__(self, *streams):
        self.streams = list(streams)
        self.asked = []

    @contextmanager
    def open(self, last_event_id):
        self.asked.append(last_event_id)
        stream = self.streams.pop(0) if self.streams else b""
        if isinstance(stream, FinishlineError):
            raise stream
        yield [stream]


def follow(connections, pauses=None):
    paused = [] if pauses is None else pauses
    followed = follow_events(connections.open, max_failures=3, pause=paused.append)
    return [f"{event.name} {event.text}" for event in followed]


def test_a_broken_stream_goes_on_after_the_last_event_seen():
    connections = Connections(
        b"id: 1\nevent: state\ndata: a\n\nid: 2\ndata: half",
        Unavailable("server restarts"),
        b"id: 2\nevent: replay\ndata: b\n\nid: 3\nevent: end\ndata: c\n\n",
    )
    pauses = []
    assert follow(connections, pauses) == ["state a", "replay b", "end c"]
    assert connections.asked == [None, "1", "1"]
    assert pauses == [0.5, 1.0]


@pytest.mark.parametrize(
    ("streams", "kind", "said", "asked"),
    [
        ([b"id: 1\ndata: a\n\n"], Unavailable, "failed 3 times in a row", [None, "1", "1"]),
        ([b"id: 1\ndata: a\n\n"] * 10, Unavailable, "times in a row", None),
        ([NotFound("no such verification")], NotFound, "no such verification", [None]),
    ],
    ids=["nothing comes", "the same for ever", "a refusal"],
)
def test_following_ends(streams, kind, said, asked):
    connections = Connections(*streams)
    with pytest.raises(kind, match=said):
        follow(connections)
    assert asked is None or connections.asked == asked
