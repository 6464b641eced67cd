"""What an id, a log line and the counts cost each request, beside the same request without them.

Measured: GET of the workers as JSON, called as an ASGI application in this process, so without the
sockets that would hide the difference; blocks with and without take turns. Time is the processor's,
so that other programs on the machine matter little. Lines go to a file.
"""

import asyncio
import logging
import statistics
import tempfile
import time
from pathlib import Path

from fastapi import FastAPI
from starlette.types import ASGIApp, Message

from server.app import create_app
from server.database import Database
from server.observability.access import Observed
from server.observability.logs import FORMATTERS
from server.schema import migrate
from server.settings import Settings

ROUNDS = 30
REQUESTS_PER_ROUND = 200
PATH = "/api/v1/workers"


async def seconds_of(stack: ASGIApp, app: FastAPI) -> float:
    """Processor seconds that a block of requests takes, one after the other."""

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        assert message.get("status", 200) == 200

    began = time.process_time()
    for _ in range(REQUESTS_PER_ROUND):
        scope = {
            "type": "http",
            "app": app,
            "method": "GET",
            "path": PATH,
            "raw_path": PATH.encode(),
            "query_string": b"",
            "headers": [(b"host", b"localhost"), (b"accept", b"*/*")],
            "scheme": "http",
            "server": ("127.0.0.1", 8000),
            "client": ("127.0.0.1", 50000),
            "root_path": "",
            "http_version": "1.1",
        }
        await stack(scope, receive, send)
    return time.process_time() - began


async def compare(app: FastAPI, bare: ASGIApp, observed: ASGIApp) -> None:
    """Print microseconds a request with and without, and the ratio of requests per second."""
    with_seconds, without_seconds = [], []
    for stack in (bare, observed):
        await seconds_of(stack, app)
    for _ in range(ROUNDS):
        without_seconds.append(await seconds_of(bare, app))
        with_seconds.append(await seconds_of(observed, app))
    without, with_ = statistics.median(without_seconds), statistics.median(with_seconds)
    each = 1e6 / REQUESTS_PER_ROUND
    print(f"without {without * each:.0f} us a request, with {with_ * each:.0f} us")
    ratios = [a / b for a, b in zip(without_seconds, with_seconds, strict=True)]
    print(f"requests per second with / without: {statistics.median(ratios):.3f} (median of rounds)")
    quickest = min(with_seconds) - min(without_seconds)
    print(f"added by the quickest rounds: {quickest * each:.0f} us a request")


def main() -> None:
    """Measure with lines as text and as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'finishline.db'}"
        database = Database(url)
        migrate(database)
        database.close()
        settings = Settings(
            database_url=url, artifacts_dir=Path(folder) / "artifacts", rate_limits=False
        )
        app = create_app(settings, dispatch=False)
        observed = app.build_middleware_stack()
        assert isinstance(observed, Observed)
        logger = logging.getLogger("server")
        logger.setLevel(logging.INFO)
        logger.propagate = False
        for name, formatter in FORMATTERS.items():
            with (Path(folder) / "lines.log").open("w") as lines:
                handler = logging.StreamHandler(lines)
                handler.setFormatter(formatter())
                logger.handlers[:] = [handler]
                print(f"lines as {name}:")
                asyncio.run(compare(app, observed._app, observed))


if __name__ == "__main__":
    main()
