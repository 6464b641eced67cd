"""A stand-in for the server: canned answers on a real port, and what was asked of it."""

import json
import os
from dataclasses import dataclass, field
from typing import Any

import pytest

from finishline.cli.main import main
from tests.support.serving import serving
from worker.sandbox.bubblewrap import find_bubblewrap
from worker.sandbox.order import BoxUnavailableError


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

    def stream(self, verification_id, *events):
        """Answer with the numbered events of a verification, which a comment precedes."""
        lines = [
            f"id: {number}\nevent: {name}\ndata: {json.dumps(document)}\n\n"
            for number, (name, document) in enumerate(events, start=1)
        ]
        content = ": hello\n\n".join(["", *lines]).encode()
        self.answer(f"GET /api/v1/verifications/{verification_id}/events", content)

    def refuse(self, request, status, detail, problems=()):
        body = {"type": "about:blank", "title": "no", "status": status, "detail": detail}
        self.answer(request, body | {"problems": list(problems)}, status=status)

    def take(self, request):
        given = self.answers.get(request)
        if not given:
            return 404, {"status": 404, "detail": f"nothing at {request}", "problems": []}
        return given.pop(0) if len(given) > 1 else given[0]


@pytest.fixture
def standin():
    def respond(request, body):
        asked = Asked(request.command, request.path, dict(request.headers.items()), body)
        standin.asked.append(asked)
        status, document = standin.take(f"{asked.method} {asked.path.partition('?')[0]}")
        is_stream = isinstance(document, bytes)
        headers = {"Content-Type": "text/event-stream" if is_stream else "application/json"}
        if standin.later is not None:
            headers["Retry-After"] = standin.later
        return status, headers, document if is_stream else json.dumps(document).encode()

    with serving(respond) as url:
        standin = StandIn(url)
        yield standin


@dataclass(frozen=True)
class Ran:
    """What a command left: its exit code and both its outputs."""

    code: int
    out: str
    err: str

    def json(self):
        return json.loads(self.out)

    def error(self):
        return json.loads(self.err)["error"]


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
