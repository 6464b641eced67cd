"""A server of prepared answers for a browser to visit."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from server.base.middleware import CONTENT_SECURITY_POLICY
from web.assets import static_asset

Answer = tuple[str, bytes] | Callable[[], tuple[str, bytes]]


class PageServer:
    """Serves prepared answers and the static files, with the headers of the real server."""

    def __init__(self):
        self.answers = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer._answer(self)

            def log_message(self, *_):
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def _answer(self, request):
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
        request.send_header("Content-Security-Policy", CONTENT_SECURITY_POLICY)
        request.end_headers()
        request.wfile.write(content)

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)


@pytest.fixture
def page_server():
    server = PageServer()
    yield server
    server.close()
