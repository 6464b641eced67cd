"""Post a webhook to a checked address, within time and size limits."""

import ssl
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache, partial

import httpcore2
import httpx2

from server.notices.webhooks import (
    ANSWER_CHARACTERS,
    Answer,
    NoAllowedAddressError,
    milliseconds_since,
    resolve,
)

LIMIT_SECONDS = 10.0


ANSWER_BYTES = 4096


class _LimitedStream(httpcore2.NetworkStream):
    """Connection with a deadline, however slowly bytes arrive."""

    def __init__(self, stream: httpcore2.NetworkStream, deadline: float) -> None:
        self._stream = stream
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _left(self._deadline))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _left(self._deadline))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore2.NetworkStream:
        secured = self._stream.start_tls(ssl_context, server_hostname, _left(self._deadline))
        return _LimitedStream(secured, self._deadline)

    def get_extra_info(self, info: str) -> object:
        return self._stream.get_extra_info(info)


class _CheckedBackend(httpcore2.NetworkBackend):
    """Connect to the checked address; the name stays in Host and in the TLS handshake."""

    def __init__(self, deadline: float, *, private_allowed: bool) -> None:
        self._deadline = deadline
        self._private_allowed = private_allowed
        self._backend = httpcore2.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.NetworkStream:
        address = resolve(host, port, private_allowed=self._private_allowed)
        stream = self._backend.connect_tcp(
            address, port, _left(self._deadline), local_address, socket_options
        )
        return _LimitedStream(stream, self._deadline)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise httpcore2.ReadTimeout(f"no response within {LIMIT_SECONDS:g} s")
    return left


def post(
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    private_allowed: bool,
    limit_seconds: float = LIMIT_SECONDS,
) -> Answer:
    """Post a body; returns the outcome, also of a failed connection. Follows no redirects."""
    began = time.monotonic()
    backend = _CheckedBackend(began + limit_seconds, private_allowed=private_allowed)
    took = partial(milliseconds_since, began)
    try:
        with (
            httpcore2.ConnectionPool(ssl_context=_trust(), network_backend=backend) as pool,
            pool.stream("POST", url, headers=_with_host(url, headers), content=body) as response,
        ):
            text = _start_of(response)
            return Answer(
                response.status, took(), text=text, retry_after_seconds=_retry_after(response)
            )
    except NoAllowedAddressError as error:
        return Answer(None, took(), error=str(error))
    except (httpcore2.TimeoutException, TimeoutError):
        return Answer(None, took(), error=f"No response within {limit_seconds:g} s.")
    except (httpcore2.NetworkError, httpcore2.ProtocolError, OSError) as error:
        return Answer(None, took(), error=f"The connection failed: {error}"[:ANSWER_CHARACTERS])


@cache
def _trust() -> ssl.SSLContext:
    return httpx2.create_ssl_context()


def _with_host(url: str, headers: Mapping[str, str]) -> list[tuple[str, str]]:
    origin = httpcore2.URL(url)
    host = origin.host.decode()
    host = f"[{host}]" if ":" in host else host
    named = host if origin.port is None else f"{host}:{origin.port}"
    return [("Host", named), *headers.items()]


def _start_of(response: httpcore2.Response) -> str:
    """Read the first characters of a response, and no more of it than they need.

    A response that breaks off keeps its status.
    """
    content = b""
    with suppress(httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException):
        for piece in response.iter_stream():
            content += piece
            if len(content) >= ANSWER_BYTES:
                break
    text = content[:ANSWER_BYTES].decode(errors="replace").replace("\0", "\ufffd")
    return text[:ANSWER_CHARACTERS]


def _retry_after(response: httpcore2.Response) -> float | None:
    for name, value in response.headers:
        if name.lower() == b"retry-after" and value.isdigit() and len(value) < 7:
            return float(value)
    return None
