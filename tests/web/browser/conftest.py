"""A server of prepared answers and the browser that visits it."""

import shutil
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from os import environ
from pathlib import Path
from typing import Any

import pytest

from web.assets import static_asset

Answer = tuple[str, bytes] | Callable[[], tuple[str, bytes]]
CSP = (
    "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:"
)


class PageServer:
    """Serves prepared answers and the static files, with the headers of the real server."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer._answer(self)

            def log_message(self, *_: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        path = request.path.split("?")[0]
        asset = static_asset(path.removeprefix("/static/")) if path.startswith("/static/") else None
        if asset is not None:
            media_type, content = asset.media_type, asset.content
        elif path in self.answers:
            answer = self.answers[path]
            media_type, content = answer() if callable(answer) else answer
        else:
            media_type, content = "text/plain", b"not found"
        found = asset is not None or path in self.answers
        request.send_response(200 if found else 404)
        request.send_header("Content-Type", media_type)
        request.send_header("Content-Length", str(len(content)))
        request.send_header("Content-Security-Policy", CSP)
        request.end_headers()
        request.wfile.write(content)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)


@pytest.fixture
def page_server() -> Iterator[PageServer]:
    server = PageServer()
    yield server
    server.close()


def find_chromium() -> str | None:
    """The Chromium to drive, if this machine has one."""
    candidates = [environ.get("FINISHLINE_CHROMIUM"), "/usr/bin/chromium"]
    found = next((c for c in candidates if c and Path(c).is_file()), None)
    return found or shutil.which("chromium") or shutil.which("google-chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    executable = find_chromium()
    if executable is None:
        pytest.skip("no Chromium: install chromium or set FINISHLINE_CHROMIUM to its path")
    playwright = pytest.importorskip("playwright.sync_api")
    arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=executable, args=arguments)
        yield opened
        opened.close()
