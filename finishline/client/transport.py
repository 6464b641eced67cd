"""HTTP with one server: JSON in, JSON out, retries, and one sentence for each failure."""

import ipaddress
import random
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx2

from finishline.client.errors import (
    Conflict,
    FinishlineError,
    NoAnswer,
    NotAllowed,
    NotSignedIn,
    TooManyRequests,
    Unavailable,
    error_of,
)

# A worker imports only this module of the client.
__all__ = [
    "NEVER", "TIMEOUT", "Conflict", "FilePart", "FinishlineError", "NotAllowed", "NotSignedIn",
    "Retries", "Transport", "checked_url", "is_temporary",
    "segment",
]  # fmt: skip

API = "/api/v1"
# A silent event stream still sends comments. So this is long for a stream and short for a waiting
# person.
TIMEOUT = httpx2.Timeout(30.0, connect=5.0)

FilePart = tuple[str, tuple[str, Any, str]]
Answer = TypeVar("Answer")

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 60.0
TEMPORARY = (502, 503, 504)


@dataclass(frozen=True)
class Retries:
    """Number of retries of a repeatable request. The pauses double from half a second.

    With `only_told` it is sent again only where the server says when: it did nothing then.
    """

    count: int = 4
    pause: Callable[[float], None] = time.sleep
    only_told: bool = False

    def attempt(self, request: Callable[[], Answer]) -> Answer:
        """Call `request`, with retries after pauses of at most a minute. Raises the last error."""
        for number in range(self.count):
            try:
                return request()
            except FinishlineError as error:
                seconds = _pause_seconds(error, number, only_told=self.only_told)
                if seconds is None:
                    raise
            self.pause(seconds)
        return request()

    def when_told(self) -> "Retries":
        """Return retries for a request that may only repeat after a refusal."""
        return replace(self, only_told=True)


NEVER = Retries(count=0)


def _pause_seconds(error: FinishlineError, number: int, *, only_told: bool) -> float | None:
    if not is_temporary(error):
        return None
    if error.retry_after_seconds is not None:
        asked = error.retry_after_seconds
        return asked if asked <= LONGEST_PAUSE_SECONDS else None
    if only_told:
        return None
    longest = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * float(2**number))
    # Clients that were cut off together come back one after the other.
    return longest * random.uniform(0.5, 1.0)  # noqa: S311  nothing secret is drawn


def is_temporary(error: FinishlineError, statuses: Container[int] = TEMPORARY) -> bool:
    """Whether the same request may succeed later: by its status, or without an answer."""
    if isinstance(error, TooManyRequests):
        return True
    return isinstance(error, Unavailable) and (error.status is None or error.status in statuses)


class Transport:
    """Connections to one server. Raises FinishlineError, and ValueError for an invalid address.

    Retries reads, deletions, and forms under an idempotency key. It retries other requests only if
    the server refused them and says when to come again.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: httpx2.Timeout = TIMEOUT,
        retries: Retries = NEVER,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self.url = checked_url(url)
        self._retries = retries
        headers = {"Accept": "application/json"}
        if token:
            if not (token.isascii() and token.isprintable()):
                raise ValueError(
                    "Invalid token: unexpected characters. Pass the whole token, from fl_ on."
                )
            headers["Authorization"] = f"Bearer {token}"
        self._http = httpx2.Client(
            base_url=self.url,
            headers=headers,
            timeout=timeout,
            transport=transport,
            verify=self.url.startswith("https:"),  # To load certificates takes 30 ms.
            # A proxy in the environment can't reach this machine's loopback address.
            trust_env=not _is_loopback(httpx2.URL(self.url).host),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def get(self, path: str, /, **query: object) -> Any:
        asked = {name: str(value) for name, value in query.items() if value is not None}
        return self._json(self._retries, "GET", API + path, params=asked)

    def health(self) -> Any:
        return self._json(self._retries, "GET", "/healthz")

    def post(self, path: str, body: Mapping[str, object] | None = None) -> Any:
        return self.send("POST", path, body)

    def send(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Any:
        """Send a method with a JSON body. Returns the answer's JSON, if any."""
        retries = {"DELETE": self._retries, "PATCH": NEVER}.get(method, self._retries.when_told())
        return self._json(retries, method, API + path, json=body)

    def post_form(
        self,
        path: str,
        *,
        files: Iterable[FilePart],
        fields: Mapping[str, str],
        key: str | None,
    ) -> tuple[Any, bool]:
        """Send a form, and retry it under a `key`. Returns the JSON, and if it was a repeat."""
        headers = {} if key is None else {"Idempotency-Key": key}
        request: dict[str, Any] = {"files": list(files), "data": dict(fields), "headers": headers}

        def send() -> tuple[Any, bool]:
            answer = self._request("POST", API + path, **request)
            return self._document(answer), answer.headers.get("Idempotent-Replayed") == "true"

        retries = self._retries.when_told() if key is None else self._retries
        return retries.attempt(send)

    def download(self, path: str, *, limit_bytes: int) -> bytes:
        """Download the bytes at an API path. More than `limit_bytes` are an error."""

        def read() -> bytes:
            content = bytearray()
            with self._transport_errors(), self._http.stream("GET", API + path) as answer:
                self._require_success(answer)
                for chunk in answer.iter_bytes():
                    content += chunk
                    if len(content) > limit_bytes:
                        raise FinishlineError(
                            f"The response of {self.url} is larger than {limit_bytes} bytes."
                        )
            return bytes(content)

        return self._retries.attempt(read)

    @contextmanager
    def stream(self, path: str, last_event_id: str | None = None) -> Iterator[Iterator[bytes]]:
        """Open the bytes of an event stream, from after `last_event_id`."""
        headers = {b"Accept": b"text/event-stream"}
        if last_event_id is not None:
            headers[b"Last-Event-ID"] = last_event_id.encode()
        with (
            self._transport_errors(),
            self._http.stream("GET", API + path, headers=headers) as answer,
        ):
            self._require_success(answer)
            yield answer.iter_bytes()

    def _json(self, retries: Retries, method: str, path: str, **request: Any) -> Any:
        return retries.attempt(lambda: self._document(self._request(method, path, **request)))

    def _request(self, method: str, path: str, **request: Any) -> httpx2.Response:
        with self._transport_errors():
            answer = self._http.request(method, path, **request)
        self._require_success(answer)
        return answer

    def _require_success(self, answer: httpx2.Response) -> None:
        if answer.is_error or answer.is_redirect:
            answer.read()
            raise error_of(answer)

    def _document(self, answer: httpx2.Response) -> Any:
        """Return the JSON of an answer, None if it is empty."""
        if answer.status_code == 204 or not answer.content:
            return None
        try:
            return answer.json()
        except (ValueError, RecursionError) as error:
            raise Unavailable(
                f"{self.url} is not a Finishline server: its response is not JSON.",
                status=answer.status_code,
            ) from error

    @contextmanager
    def _transport_errors(self) -> Iterator[None]:
        try:
            yield
        except httpx2.RequestError as error:  # An undecodable body, too.
            reason = str(error) or type(error).__name__
            raise NoAnswer(f"No response from {self.url} ({reason}).") from error


def checked_url(url: str) -> str:
    """Return an http(s) address without its final slash. Raises ValueError."""
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL:
        parsed = httpx2.URL("")
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError(
            f"Invalid server address {url!r}. Expected one like http://127.0.0.1:8000."
        )
    return url.rstrip("/")


def segment(name: str) -> str:
    """Quote a name as one segment of a path, even if it holds a slash."""
    return "-" if name in ("", ".", "..") else quote(name, safe="")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
