from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from finishline.client.errors import FinishlineError, NotFound, Unavailable
from finishline.client.sse import ServerEvent, follow_events, parse_events, split_lines


def events_of(*chunks: bytes) -> list[ServerEvent]:
    return list(parse_events(split_lines(chunks)))


def test_the_standards_second_example_gives_two_events() -> None:
    """HTML Living Standard, 9.2.6: the stream with a test comment, ids and a data line."""
    stream = (
        b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\n"
        b"data:  third event\n"
    )
    assert events_of(stream) == [
        ServerEvent("message", "first event", "1"),
        ServerEvent("message", "second event", ""),
    ]


def test_data_lines_of_one_event_are_joined_by_newlines() -> None:
    assert events_of(b"data: YHOO\ndata: +2\ndata: 10\n\n")[0].text == "YHOO\n+2\n10"


def test_event_without_data_is_none() -> None:
    assert events_of(b"event: state\n\ndata: x\n\n") == [ServerEvent("message", "x", None)]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_end_of_the_standard_is_read_wherever_chunks_break(end: bytes) -> None:
    stream = end.join([b"event: a", b"data: 1", b"", b"event: b", b"data: 2", b"", b""])
    whole = events_of(stream)
    assert [(event.name, event.text) for event in whole] == [("a", "1"), ("b", "2")]
    for at in range(len(stream)):
        assert events_of(stream[:at], stream[at:]) == whole


def test_a_line_separator_inside_json_does_not_end_the_line() -> None:
    assert events_of('data: "a\u2028b"\n\n'.encode())[0].json() == "a\u2028b"


def test_an_event_that_is_not_json_is_refused_by_name() -> None:
    with pytest.raises(Unavailable, match="event 'state' that is not JSON"):
        ServerEvent("state", "{", None).json()


class Connections:
    """Streams to be opened one after the other; an exception stands for a refused connection."""

    def __init__(self, *streams: bytes | FinishlineError) -> None:
        self.streams = list(streams)
        self.asked: list[str | None] = []

    @contextmanager
    def open(self, last_event_id: str | None) -> Iterator[list[bytes]]:
        self.asked.append(last_event_id)
        stream = self.streams.pop(0) if self.streams else b""
        if isinstance(stream, FinishlineError):
            raise stream
        yield [stream]


def follow(connections: Connections, pauses: list[float] | None = None) -> list[str]:
    paused = [] if pauses is None else pauses
    followed = follow_events(connections.open, end="end", max_failures=3, pause=paused.append)
    return [f"{event.name} {event.text}" for event in followed]


def test_a_broken_stream_goes_on_after_the_last_event_seen() -> None:
    connections = Connections(
        b"id: 1\nevent: state\ndata: a\n\nid: 2\ndata: half",
        Unavailable("server restarts"),
        b"id: 2\nevent: replay\ndata: b\n\nid: 3\nevent: end\ndata: c\n\n",
    )
    pauses: list[float] = []
    assert follow(connections, pauses) == ["state a", "replay b", "end c"]
    assert connections.asked == [None, "1", "1"]
    assert pauses == [0.5, 1.0]


def test_following_ends_when_connections_bring_nothing() -> None:
    connections = Connections(b"id: 1\ndata: a\n\n")
    with pytest.raises(Unavailable, match="failed 3 times in a row"):
        follow(connections)
    assert connections.asked == [None, "1", "1"]


def test_a_server_that_sends_the_same_event_for_ever_is_left() -> None:
    connections = Connections(*[b"id: 1\ndata: a\n\n"] * 10)
    with pytest.raises(Unavailable, match="times in a row"):
        follow(connections)


def test_a_refusal_is_not_tried_again() -> None:
    connections = Connections(NotFound("no such verification"))
    with pytest.raises(NotFound, match="no such verification"):
        follow(connections)
    assert connections.asked == [None]
