"""A stand-in for the server: canned answers on a real port, and what was asked of it."""

import json
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from finishline.cli.main import main
from worker.box.bubblewrap import find_bubblewrap
from worker.box.order import BoxUnavailableError


@dataclass(frozen=True)
class Asked:
    """One request as it came in."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class StandIn:
    """Canned answers by "METHOD path"; each is (status, document) or raw bytes to stream."""

    url: str
    answers: dict[str, list[tuple[int, Any]]] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    later: str | None = None

    def answer(self, request, document, *, status=200):
        """Answer this request; given several times, each answer is used once and the last kept."""
        self.answers.setdefault(request, []).append((status, document))

    def refuse(self, request, status, detail, problems=()):
        """Answer this request with problem+json."""
        body = {"type": "about:blank", "title": "no", "status": status, "detail": detail}
        self.answer(request, body | {"problems": list(problems)}, status=status)

    def take(self, request):
        """The next answer for a request."""
        given = self.answers.get(request)
        if not given:
            return 404, {"status": 404, "detail": f"nothing at {request}", "problems": []}
        return given.pop(0) if len(given) > 1 else given[0]


def _handler(standin):
    class Handler(BaseHTTPRequestHandler):
        def _answer(self):
            length = int(self.headers.get("Content-Length") or 0)
            asked = Asked(
                self.command, self.path, dict(self.headers.items()), self.rfile.read(length)
            )
            standin.asked.append(asked)
            status, document = standin.take(f"{self.command} {self.path.partition('?')[0]}")
            body = document if isinstance(document, bytes) else json.dumps(document).encode()
            self.send_response(status)
            kind = "text/event-stream" if isinstance(document, bytes) else "application/json"
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            if standin.later is not None:
                self.send_header("Retry-After", standin.later)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815  (http.server's names)

        def log_message(self, format, *args):  # noqa: A002
            """Write nothing: a test's output is its own."""

    return Handler


@pytest.fixture
def standin():
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    standin = StandIn(url=f"http://127.0.0.1:{server.server_port}")
    server.RequestHandlerClass = _handler(standin)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield standin
    server.shutdown()
    thread.join()
    server.server_close()


@dataclass(frozen=True)
class Ran:
    """What a command left: its exit code and both its outputs."""

    code: int
    out: str
    err: str

    def json(self):
        """The one document on stdout."""
        return json.loads(self.out)

    def error(self):
        """The error on stderr as JSON."""
        return json.loads(self.err)["error"]


Finishline = Callable[..., Ran]


@pytest.fixture
def finishline(standin, capsys, monkeypatch):
    """Run a command in this process, against the stand-in unless --url says otherwise."""
    monkeypatch.setenv("FINISHLINE_URL", standin.url)
    monkeypatch.delenv("FINISHLINE_TOKEN", raising=False)

    def run(*arguments):
        code = main(list(arguments))
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


@pytest.fixture
def boxed():
    """Skip where there is no bubblewrap; fail if it must be there."""
    try:
        find_bubblewrap()
    except BoxUnavailableError as error:
        if os.environ.get("FINISHLINE_REQUIRE_BOX"):
            raise
        pytest.skip(f"{error}; no package is trained")
