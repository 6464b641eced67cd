"""Around everything: each request gets an id, is counted, is timed, and leaves one log line."""

import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.request_context import REQUEST_ID, begin_request
from server.request_metrics import OTHER, RequestMetrics, known_method, route_template

log = logging.getLogger("server.access")

# Asked every few seconds by machines: their lines would hide all others.
PROBES = frozenset({"/healthz", "/readyz", "/metrics"})
EVENT_STREAM = b"text/event-stream"


class Observed:
    """Wraps an application, its last resort for errors included."""

    def __init__(self, app: ASGIApp, metrics: RequestMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        context = begin_request(scope)
        id_header = (REQUEST_ID, context.request_id.encode())
        status, sent_bytes, is_stream = 500, 0, False
        began = time.perf_counter()

        async def noted(message: Message) -> None:
            nonlocal status, sent_bytes, is_stream
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = message["headers"] = [*message.get("headers", ()), id_header]
                is_stream = any(
                    name == b"content-type" and value.startswith(EVENT_STREAM)
                    for name, value in headers
                )
            else:
                sent_bytes += len(message.get("body", b""))
            await send(message)

        metrics = self._metrics
        metrics.in_progress += 1
        try:
            await self._app(scope, receive, noted)
        finally:
            metrics.in_progress -= 1
            seconds = time.perf_counter() - began
            # A method that the route has not is nobody's to count apart.
            method = OTHER if status == 405 else known_method(scope)
            route = route_template(scope)
            # A refusal has no buckets: whoever asks every address would leave some for each.
            timed = None if is_stream or 400 <= status < 500 else seconds
            metrics.count(method, route, status=status, seconds=timed)
            _write_line(method, route, status=status, seconds=seconds, sent_bytes=sent_bytes)


def _write_line(method: str, route: str, *, status: int, seconds: float, sent_bytes: int) -> None:
    """The access line: never the address itself, which may carry anything after its '?'."""
    level = logging.DEBUG if route in PROBES and status < 400 else logging.INFO
    if log.isEnabledFor(level):
        fields = {
            "method": method,
            "route": route,
            "status": status,
            "seconds": round(seconds, 6),
            "bytes": sent_bytes,
        }
        log.log(level, "%s %s %d", method, route, status, extra=fields)
