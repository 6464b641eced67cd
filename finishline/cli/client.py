"""The server's API as the commands need it: one sentence and one exit code for each failure."""

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self

import httpx2

from finishline.cli.errors import CliError, ExitCode
from finishline.client.errors import (
    FinishlineError,
    NoAnswer,
    NotAllowed,
    NotFound,
    NotSignedIn,
    TooManyRequests,
    Unavailable,
)
from finishline.client.retries import Retries
from finishline.client.transport import TIMEOUT, FilePart, Transport, segment

__all__ = ["ServerClient", "View", "cli_errors", "segment"]

View = dict[str, Any]
EXIT_CODES: dict[type[FinishlineError], ExitCode] = {
    NotSignedIn: ExitCode.NOT_ALLOWED,
    NotAllowed: ExitCode.NOT_ALLOWED,
    NotFound: ExitCode.NOT_FOUND,
    TooManyRequests: ExitCode.SERVER,
    Unavailable: ExitCode.SERVER,
    NoAnswer: ExitCode.SERVER,
}
NEXT_STEPS = {
    401: "Set FINISHLINE_TOKEN to a valid token, or pass --token.",
}


def _wait(seconds: float) -> None:
    """Wait as long as the server asks, with a message at a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"The server is busy; retrying in {seconds:.0f} s.\n")
    time.sleep(seconds)


WHEN_TOLD = Retries(count=5, pause=_wait, only_told=True)


class ServerClient:
    """A connection to one server; use it as a context manager.

    Errors are raised at once. It waits only if the server asks for it, for a minute at the most.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: httpx2.Timeout = TIMEOUT,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        try:
            self._transport = Transport(
                url, token, timeout=timeout, transport=transport, retries=WHEN_TOLD
            )
        except ValueError as error:
            raise CliError(str(error), exit_code=ExitCode.USAGE) from error
        self.url = self._transport.url

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._transport.close()

    def get(self, path: str, **query: object) -> Any:
        """The JSON at an API path. Raises CliError."""
        with cli_errors():
            return self._transport.get(path, query)

    def post(self, path: str, body: Mapping[str, object]) -> Any:
        """The JSON that answers a posted JSON body. Raises CliError."""
        with cli_errors():
            return self._transport.post(path, body)

    def patch(self, path: str, body: Mapping[str, object]) -> Any:
        """Send a PATCH to an API path; return the JSON of the response. Raises CliError."""
        with cli_errors():
            return self._transport.patch(path, body)

    def put(self, path: str, body: Mapping[str, object]) -> Any:
        """The JSON that answers a put JSON body. Raises CliError."""
        with cli_errors():
            return self._transport.put(path, body)

    def post_once(
        self, path: str, *, files: Iterable[FilePart], fields: Mapping[str, str], key: str
    ) -> tuple[View, bool]:
        """The JSON that answers a multipart form under an idempotency key. Raises CliError.

        Also whether it had been answered before.
        """
        with cli_errors():
            return self._transport.post_form(path, files=files, fields=fields, key=key)

    def download(self, path: str, *, limit_bytes: int) -> bytes:
        """The bytes at an API path. Raises CliError, also if they are more than allowed."""
        with cli_errors():
            return self._transport.download(path, limit_bytes=limit_bytes)

    def delete(self, path: str) -> View:
        """Delete the thing at an API path; the answer, if there is one. Raises CliError."""
        with cli_errors():
            view: View = self._transport.delete(path)
        return view

    def health(self) -> View:
        """The server's own word on its health. Raises CliError."""
        with cli_errors():
            view: View = self._transport.get("/healthz", api="")
        return view

    @contextmanager
    def stream(self, path: str, *, last_event_id: str | None) -> Iterator[Iterator[bytes]]:
        """The bytes of an event stream, from after `last_event_id`. Raises FinishlineError."""
        with self._transport.stream(path, last_event_id=last_event_id) as pieces:
            yield pieces


@contextmanager
def cli_errors() -> Iterator[None]:
    """Turn the client's exceptions into CliErrors."""
    try:
        yield
    except FinishlineError as error:
        raise cli_error_of(error) from error


def cli_error_of(error: FinishlineError) -> CliError:
    """The error with its exit code, and the next step at a terminal."""
    return CliError(
        _sentence(error),
        exit_code=EXIT_CODES.get(type(error), ExitCode.REFUSED),
        problems=error.problems,
    )


def _sentence(error: FinishlineError) -> str:
    if error.status in NEXT_STEPS:
        return f"{error.detail} {NEXT_STEPS[error.status]}"
    whole = error.detail.removesuffix(".")
    if isinstance(error, NoAnswer):
        return (
            f"{whole}; start a server with `finishline up`, "
            "or point --url or FINISHLINE_URL at a running one."
        )
    if isinstance(error, Unavailable) and error.status == HTTPStatus.OK:
        return f"{whole}; check --url."
    return error.detail
