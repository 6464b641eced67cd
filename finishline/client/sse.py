"""Parse server-sent events, and follow them across broken connections.

Source: HTML Living Standard, "Server-sent events", the event stream format.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from finishline.client.errors import FinishlineError, TooManyRequests, Unavailable

LONGEST_PAUSE_SECONDS = 5.0
MAX_FAILURES = 8

OpenStream = Callable[[str | None], AbstractContextManager[Iterable[bytes]]]


@dataclass(frozen=True)
class ServerEvent:
    """One event. `event_id` is the last id of the stream so far."""

    name: str
    text: str
    event_id: str | None

    def json(self) -> Any:
        """Read the event's JSON. Raises Unavailable for other text."""
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError) as error:
            raise Unavailable(
                f"The server sent an event {self.name!r} that is not JSON; "
                "update the client or the server to the same version."
            ) from error


def split_lines(chunks: Iterable[bytes]) -> Iterator[str]:
    """Yield whole lines that end in CR LF, LF or CR.

    str.splitlines would also split at U+2028, which JSON may hold unescaped.
    """
    rest = b""
    for chunk in chunks:
        rest += chunk
        # A CR at the end of a chunk may be the first half of a CR LF.
        whole = rest[:-1] if rest.endswith(b"\r") else rest
        lines = whole.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        rest = lines.pop() + rest[len(whole) :]
        yield from (line.decode("utf-8", errors="replace") for line in lines)
    if rest.endswith(b"\r"):
        yield rest[:-1].decode("utf-8", errors="replace")


def parse_events(
    lines: Iterable[str], *, last_event_id: str | None = None
) -> Iterator[ServerEvent]:
    """Yield the events of a stream. Comments and unknown fields are skipped."""
    name, texts = "", list[str]()
    for line in lines:
        if not line:
            if texts:
                yield ServerEvent(name or "message", "\n".join(texts), last_event_id)
            name, texts = "", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            name = value
        elif field == "data":
            texts.append(value)
        elif field == "id" and "\0" not in value:
            last_event_id = value


def follow_events(
    open_stream: OpenStream,
    *,
    max_failures: int = MAX_FAILURES,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[ServerEvent]:
    """Yield every event up to the one named "end", reconnecting after the last one seen.

    Raises Unavailable at a refusal, or after `max_failures` empty connections in a row.
    """
    last_event_id: str | None = None
    failures = 0
    while True:
        try:
            with open_stream(last_event_id) as chunks:
                for event in parse_events(split_lines(chunks), last_event_id=last_event_id):
                    if event.event_id is not None and event.event_id != last_event_id:
                        last_event_id, failures = event.event_id, 0
                    yield event
                    if event.name == "end":
                        return
        except FinishlineError as error:
            if not isinstance(error, Unavailable | TooManyRequests):
                raise
        failures += 1
        if failures >= max_failures:
            raise Unavailable(
                f"The event stream failed {failures} times in a row without an event. "
                "Check that the server runs, then watch again."
            )
        pause(min(LONGEST_PAUSE_SECONDS, 0.25 * 2**failures))
