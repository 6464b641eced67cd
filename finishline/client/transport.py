"""HTTP with one server: JSON in, JSON out, one sentence for each failure."""

import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx2

from finishline.client.answers import document_of, error_of
from finishline.client.errors import (
    Conflict,
    FinishlineError,
    NoAnswer,
    NotAllowed,
    NotSignedIn,
)
from finishline.client.retries import NEVER, Retries, TimedRetries

# A worker imports this module alone of the client.
__all__ = [
    "NEVER",
    "TIMEOUT",
    "Conflict",
    "FilePart",
    "FinishlineError",
    "NotAllowed",
    "NotSignedIn",
    "Progress",
    "Retries",
    "TimedRetries",
    "Transport",
    "checked_url",
    "segment",
]

API = "/api/v1"
# A silent event stream is an open connection with comments in it, so this is long for a stream
# and short for a person who waits.
TIMEOUT = httpx2.Timeout(30.0, connect=5.0)

Progress = Callable[[int, int], None]  # Bytes sent, and bytes in all.
FilePart = tuple[str, tuple[str, Any, str]]
Answer = TypeVar("Answer")


class Transport:
    """Connections to one server. Raises FinishlineError; ValueError if the address is invalid.

    Retries requests that are safe to repeat: a read, a deletion, and a form under an idempotency
    key. Others are retried only if the server refused them and says when to come again.
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
            # A proxy in the environment cannot reach this machine's own loopback address.
            trust_env=not _is_loopback(httpx2.URL(self.url).host),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        self._http.close()

    def get(self, path: str, /, **query: object) -> Any:
        """The JSON at an API path."""
        asked = {name: str(value) for name, value in query.items() if value is not None}
        return self._attempt(
            self._retries, lambda: self._document(self._request("GET", API + path, params=asked))
        )

    def health(self) -> Any:
        """The server's own word on its health."""
        return self._attempt(
            self._retries, lambda: self._document(self._request("GET", "/healthz"))
        )

    def post(self, path: str, body: Mapping[str, object] | None = None) -> Any:
        """The JSON that answers a posted JSON body."""
        return self._change("POST", path, body)

    def put(self, path: str, body: Mapping[str, object] | None = None) -> Any:
        """The JSON that answers a put JSON body."""
        return self._change("PUT", path, body)

    def _change(self, method: str, path: str, body: Mapping[str, object] | None) -> Any:
        """Tried again only where the server says that it did nothing and when to come again."""
        return self._attempt(
            self._retries.when_told(),
            lambda: self._document(self._request(method, API + path, json=body)),
        )

    def patch(self, path: str, body: Mapping[str, object]) -> Any:
        """Send a PATCH to an API path; return the JSON of the response."""
        return self._attempt(
            NEVER, lambda: self._document(self._request("PATCH", API + path, json=body))
        )

    def delete(self, path: str) -> Any:
        """Delete the thing at an API path; the answer, None if there is none."""
        return self._attempt(
            self._retries, lambda: self._document(self._request("DELETE", API + path))
        )

    def post_bytes(
        self,
        path: str,
        content: bytes,
        *,
        headers: Mapping[str, str],
        retries: Retries | TimedRetries,
        timeout: httpx2.Timeout = TIMEOUT,
    ) -> bytes:
        """The content that answers posted JSON text, with headers, retries and timeout as given."""
        request: dict[str, Any] = {
            "content": content,
            "headers": {"Content-Type": "application/json"} | dict(headers),
            "timeout": timeout,
        }
        return self._attempt(retries, lambda: self._request("POST", API + path, **request).content)

    def get_bytes(
        self, path: str, *, headers: Mapping[str, str], retries: Retries | TimedRetries
    ) -> bytes:
        """The content at an API path, with headers and retries of its own."""
        return self._attempt(
            retries, lambda: self._request("GET", API + path, headers=dict(headers)).content
        )

    def post_form(
        self,
        path: str,
        *,
        files: Iterable[FilePart],
        fields: Mapping[str, str],
        key: str | None,
        progress: Progress | None = None,
    ) -> tuple[Any, bool]:
        """The JSON that answers a multipart form, and whether it had been answered before.

        Under an idempotency key it is tried again; each try tells `progress` from the start.
        """
        headers = {} if key is None else {"Idempotency-Key": key}
        parts = list(files)

        def send() -> tuple[Any, bool]:
            answer = self._request(
                "POST",
                API + path,
                progress,
                files=parts,
                data=dict(fields),
                headers=headers,
            )
            return self._document(answer), answer.headers.get("Idempotent-Replayed") == "true"

        return self._attempt(self._retries.when_told() if key is None else self._retries, send)

    def download(self, path: str, *, limit_bytes: int) -> bytes:
        """The bytes at an API path; more of them than allowed are an error."""
        return self._attempt(self._retries, lambda: self._download(path, limit_bytes))

    @contextmanager
    def stream(self, path: str, last_event_id: str | None = None) -> Iterator[Iterator[bytes]]:
        """The bytes of an event stream, from after `last_event_id`."""
        headers = {"Accept": "text/event-stream"}
        if last_event_id is not None:
            headers["Last-Event-ID"] = last_event_id
        with (
            self._transport_errors(),
            self._http.stream("GET", API + path, headers=headers) as answer,
        ):
            if answer.is_error:
                answer.read()
                raise error_of(answer)
            yield answer.iter_bytes()

    def _attempt(self, retries: Retries | TimedRetries, request: Callable[[], Answer]) -> Answer:
        return retries.attempt(request)

    def _download(self, path: str, limit_bytes: int) -> bytes:
        content = bytearray()
        with self._transport_errors(), self._http.stream("GET", API + path) as answer:
            if answer.is_error or answer.is_redirect:
                answer.read()
                raise error_of(answer)
            for chunk in answer.iter_bytes():
                content += chunk
                if len(content) > limit_bytes:
                    raise FinishlineError(
                        f"The response of {self.url} is larger than {limit_bytes} bytes."
                    )
        return bytes(content)

    def _request(
        self, method: str, path: str, progress: Progress | None = None, **request: Any
    ) -> httpx2.Response:
        with self._transport_errors():
            asked = self._http.build_request(method, path, **request)
            if progress is not None and isinstance(asked.stream, httpx2.SyncByteStream):
                total_bytes = int(asked.headers.get("Content-Length", 0))
                asked.stream = _CountedStream(asked.stream, total_bytes, progress)
            answer = self._http.send(asked)
        if answer.is_error or answer.is_redirect:
            raise error_of(answer)
        return answer

    def _document(self, answer: httpx2.Response) -> Any:
        return document_of(answer, url=self.url)

    @contextmanager
    def _transport_errors(self) -> Iterator[None]:
        try:
            yield
        except httpx2.TransportError as error:
            reason = str(error) or type(error).__name__
            raise NoAnswer(f"No response from {self.url} ({reason}).") from error


class _CountedStream(httpx2.SyncByteStream):
    """A body that says how much of it has been taken."""

    def __init__(
        self, content: httpx2.SyncByteStream, total_bytes: int, progress: Progress
    ) -> None:
        self._content = content
        self._total_bytes = total_bytes
        self._progress = progress

    def __iter__(self) -> Iterator[bytes]:
        sent_bytes = 0
        for piece in self._content:
            yield piece
            sent_bytes += len(piece)
            self._progress(sent_bytes, self._total_bytes)


def checked_url(url: str) -> str:
    """An http(s) address without its final slash. Raises ValueError."""
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise _bad_url(url) from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise _bad_url(url)
    return url.rstrip("/")


def segment(name: str) -> str:
    """A name as one segment of a path: an id that holds a slash stays one segment."""
    return quote(name, safe="") or "-"


def _bad_url(url: str) -> ValueError:
    return ValueError(f"Invalid server address {url!r}. Expected one like http://127.0.0.1:8000.")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
