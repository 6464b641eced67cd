"""What a server process calls with each request: kept boards at once, all else observed."""

import logging
import time

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from server.boards.fast_path import FastPath
from server.boards.kept import Reply
from server.operations.logs import Observed
from server.operations.logs import log as access_log


class FinishlineApp(FastAPI):
    """FastAPI with all its middlewares, its last resort for errors included, behind two things.

    A board that is kept as bytes is sent from here: half of what such an answer costs would be the
    way to it. All else gets an id, a count and a line, and teaches the fast path.

    `state.known_versions`, `state.version_watch` and `state.request_metrics` are set before the
    first request.
    """

    fast_path: FastPath | None = None

    def build_middleware_stack(self) -> ASGIApp:
        """The whole application behind the fast path, observed."""
        state = self.state
        self.fast_path = FastPath(
            super().build_middleware_stack(),
            known=state.known_versions,
            watch=state.version_watch,
            metrics=state.request_metrics,
        )
        return Observed(self.fast_path, state.request_metrics)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one connection of a server.

        Kept boards have lines at level "debug" alone; where those are wanted they go the long way.
        """
        if scope["type"] == "http":
            began = time.monotonic()
            reply = self.kept_reply(scope, began)
            if reply is not None:
                await reply.send(send)
                reply.tally.count(time.monotonic() - began)
                return
        await super().__call__(scope, receive, send)

    def kept_reply(self, scope: Scope, now: float) -> Reply | None:
        """The kept board that answers an HTTP request at this time.monotonic(); None without.

        Whoever sends it counts it, with the seconds that took.
        """
        if self.fast_path is None or access_log.isEnabledFor(logging.DEBUG):
            return None
        return self.fast_path.find(scope, now)
