"""The server's API as the commands need it: JSON in, JSON out, one sentence for each failure."""

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx2

from cli.errors import CliError, ExitCode, Problem

API = "/api/v1"
View = dict[str, Any]
# A silent event stream is an open connection with comments in it, so this is long for a stream
# and short for a person who waits.
TIMEOUT = httpx2.Timeout(30.0, connect=5.0)
EXIT_CODES = {
    401: ExitCode.NOT_ALLOWED,
    403: ExitCode.NOT_ALLOWED,
    404: ExitCode.NOT_FOUND,
    429: ExitCode.SERVER,
}
NEXT_STEPS = {
    401: "Set FINISHLINE_TOKEN to a valid token, or pass --token.",
    403: "Use a token with the role that this needs.",
}


class ServerClient:
    """A connection to one server; use it as a context manager."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: httpx2.Timeout = TIMEOUT,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self.url = checked_url(url)
        headers = {"Accept": "application/json"}
        if token:
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
        self._http.close()

    def get(self, path: str, **query: object) -> Any:
        """The JSON at an API path. Raises CliError."""
        asked = {name: str(value) for name, value in query.items() if value is not None}
        return self._answer("GET", path, params=asked)

    def post(self, path: str, body: Mapping[str, object]) -> Any:
        """The JSON that answers a posted JSON body. Raises CliError."""
        return self._answer("POST", path, json=body)

    def post_files(
        self,
        path: str,
        *,
        files: Iterable[tuple[str, tuple[str, Any, str]]],
        fields: Mapping[str, str],
        headers: Mapping[str, str],
    ) -> Any:
        """The JSON that answers a multipart form. Raises CliError."""
        return self._answer("POST", path, files=list(files), data=dict(fields), headers=headers)

    def post_once(
        self,
        path: str,
        *,
        files: Iterable[tuple[str, tuple[str, Any, str]]],
        fields: Mapping[str, str],
        key: str,
    ) -> tuple[View, bool]:
        """As `post_files`, under an idempotency key; and whether it had been answered before."""
        headers = {"Idempotency-Key": key}
        answer = self._request("POST", path, files=list(files), data=dict(fields), headers=headers)
        return self._document(answer), answer.headers.get("Idempotent-Replayed") == "true"

    def download(self, path: str, *, limit_bytes: int) -> bytes:
        """The bytes at an API path. Raises CliError, also if they are more than allowed."""
        content = bytearray()
        with transport_errors(self.url), self._http.stream("GET", API + path) as answer:
            if answer.is_error or answer.is_redirect:
                answer.read()
                raise error_of(answer)
            for chunk in answer.iter_bytes():
                content += chunk
                if len(content) > limit_bytes:
                    raise CliError(
                        f"The answer of {self.url} is larger than {limit_bytes} bytes.",
                        exit_code=ExitCode.REFUSED,
                    )
        return bytes(content)

    def delete(self, path: str) -> None:
        """Delete what is at an API path. Raises CliError."""
        self._answer("DELETE", path)

    def health(self) -> View:
        """The server's own word on its health. Raises CliError."""
        view: View = self._answer("GET", "/healthz", api="")
        return view

    @contextmanager
    def stream(self, path: str, *, last_event_id: str | None) -> Iterator[Iterator[bytes]]:
        """The bytes of an event stream, from after `last_event_id`. Raises CliError."""
        headers = {"Accept": "text/event-stream"}
        if last_event_id is not None:
            headers["Last-Event-ID"] = last_event_id
        with (
            transport_errors(self.url),
            self._http.stream("GET", API + path, headers=headers) as answer,
        ):
            if answer.is_error:
                answer.read()
                raise error_of(answer)
            yield answer.iter_bytes()

    def _answer(self, method: str, path: str, *, api: str = API, **request: Any) -> Any:
        return self._document(self._request(method, path, api=api, **request))

    def _request(
        self, method: str, path: str, *, api: str = API, **request: Any
    ) -> httpx2.Response:
        with transport_errors(self.url):
            answer = self._http.request(method, api + path, **request)
        if answer.is_error or answer.is_redirect:
            raise error_of(answer)
        return answer

    def _document(self, answer: httpx2.Response) -> Any:
        if answer.status_code == 204 or not answer.content:
            return None
        try:
            return answer.json()
        except ValueError as error:
            raise CliError(
                f"What answers at {self.url} is not a Finishline server (no JSON); check --url.",
                exit_code=ExitCode.SERVER,
            ) from error


@contextmanager
def transport_errors(url: str) -> Iterator[None]:
    """Turn a failed connection into one sentence."""
    try:
        yield
    except httpx2.TransportError as error:
        reason = str(error) or type(error).__name__
        raise CliError(
            f"No answer from {url} ({reason}); start a server with `finishline up`, "
            "or point --url or FINISHLINE_URL at a running one.",
            exit_code=ExitCode.SERVER,
        ) from error


def checked_url(url: str) -> str:
    """An http(s) address without its final slash. Raises CliError."""
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


def error_of(answer: httpx2.Response) -> CliError:
    """The error that an answer of the server stands for (problem+json where it is that)."""
    status = answer.status_code
    problem = _problem_document(answer)
    detail = str(problem.get("detail") or problem.get("title") or "").strip()
    sentence = detail or f"{answer.url} answered {status} {answer.reason_phrase}."
    if status in NEXT_STEPS:
        sentence = f"{sentence} {NEXT_STEPS[status]}"
    usual = ExitCode.SERVER if status >= 500 or status < 400 else ExitCode.REFUSED
    return CliError(
        sentence,
        exit_code=EXIT_CODES.get(status, usual),
        problems=[_problem(item) for item in _list_of_tables(problem.get("problems"))],
    )


def _problem_document(answer: httpx2.Response) -> View:
    try:
        document = answer.json()
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _list_of_tables(value: object) -> list[View]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _problem(item: View) -> Problem:
    return Problem(
        message=str(item.get("message") or "not accepted"),
        file=item.get("file"),
        line=item.get("line"),
        field=item.get("field"),
        expected=item.get("expected"),
    )


def _bad_url(url: str) -> CliError:
    return CliError(
        f"{url!r} is no server address; write it like http://127.0.0.1:8000.",
        exit_code=ExitCode.USAGE,
    )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
