"""What kind of request this is, by its address and method alone: before anything is read or run."""

from enum import StrEnum

from starlette.types import Scope


class Kind(StrEnum):
    """Which limits hold for a request."""

    FREE = "free"
    READ = "read"
    EXPENSIVE = "expensive_read"
    WRITE = "write"
    UPLOAD = "upload"
    STREAM = "stream"
    WORKER = "worker_post"


SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
# Asked by whoever watches the server, or answered from memory under an address of its own.
FREE = frozenset({"/healthz", "/readyz", "/metrics", "/favicon.ico", "/robots.txt"})
FREE_UNDER = ("/static/", "/docs-assets/")
# What a worker posts while it trains. Without these a verification stands still.
WORKER_POSTS = frozenset({"/api/v1/workers/hello", "/api/v1/workers/probes"})
WORKER_UNDER = "/api/v1/attempts/"
UPLOADS = frozenset({"/api/v1/submissions"})
STREAMS = "/events"
# What reads many rows, draws, compresses or signs.
EXPENSIVE_ENDS = (
    "/proof",
    "/runs.json",
    ".csv",
    "/convergence",
    "/compare",
    "/preview",
    "/log.json",
)
EXPENSIVE_WITHIN = "/charts/"


def kind_of(scope: Scope) -> Kind:
    """The kind of an HTTP request."""
    path: str = scope["path"]
    if scope["method"] not in SAFE:
        return _kind_of_write(path)
    if path in FREE or path.startswith(FREE_UNDER):
        return Kind.FREE
    if path.endswith(STREAMS):
        return Kind.STREAM
    if path.endswith(EXPENSIVE_ENDS) or EXPENSIVE_WITHIN in path:
        return Kind.EXPENSIVE
    return Kind.READ


def _kind_of_write(path: str) -> Kind:
    if path in WORKER_POSTS or path.startswith(WORKER_UNDER):
        return Kind.WORKER
    return Kind.UPLOAD if path in UPLOADS else Kind.WRITE
