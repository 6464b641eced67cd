"""A server in a thread of the test."""

import sys
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _QuietServer(ThreadingHTTPServer):
    """A server that writes nothing of a caller that was interrupted: its connection is reset."""

    def handle_error(self, request, client_address):
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def serving(respond, context=None, *, version="0.3.0"):
    """Answer each request by `respond(request, body)`; yields the address.

    It returns the status, the headers and the content of the answer. A `context` is for TLS. A
    server of another program has no `version`.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, headers, content = respond(self, body)
            self.send_response(status)
            named = {} if version is None else {"Finishline-Version": version}
            for name, value in {**named, **headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(OSError):  # Whoever asked may have read enough.
                self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815  (http.server's names)

        def log_message(self, *_):
            """Write nothing: a test's output is its own."""

    server = _QuietServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
