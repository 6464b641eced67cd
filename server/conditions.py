"""What a reader says it takes and has: Accept-Encoding and If-None-Match."""

from collections.abc import Sequence
from functools import lru_cache

from fastapi import Request

Headers = Sequence[tuple[bytes, bytes]]

# Readers send a handful of different ones; whoever makes them up drives only each other out.
KEPT_VALUES = 512


def by_name(headers: Headers) -> dict[bytes, bytes]:
    """A request's headers; the lines of one that came in several are joined to a list."""
    found = dict(headers)
    if len(found) == len(headers):
        return found
    lines: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        lines.setdefault(name, []).append(value)
    return {name: b", ".join(values) for name, values in lines.items()}


@lru_cache(maxsize=KEPT_VALUES)
def takes_gzip(encodings: bytes) -> bool:
    """Whether an Accept-Encoding takes gzip: named or by `*`, unless with weight 0.

    Source: RFC 9110, section 12.5.3; "x-gzip" is another name of it (8.4.1.3).
    """
    weights = dict(map(_weighted, encodings.decode("latin-1").lower().split(",")))
    return weights.get("gzip", weights.get("x-gzip", weights.get("*", 0.0))) > 0.0


def _weighted(item: str) -> tuple[str, float]:
    """A coding and its weight; a weight that is no number counts as 0."""
    coding, *parameters = (part.strip() for part in item.split(";"))
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return coding, float(value)
            except ValueError:
                return coding, 0.0
    return coding, 1.0


def is_known(tags: bytes, etag: str) -> bool:
    """Whether an If-None-Match names what would be sent: by its tag, or by `*` whatever that is.

    Tags are compared weakly. Source: RFC 9110, section 13.1.2.
    """
    found = {tag.strip().removeprefix("W/") for tag in tags.decode("latin-1").split(",")}
    return etag.removeprefix("W/") in found or "*" in found


def reader_takes_gzip(request: Request) -> bool:
    """Whether the answer to a request may be compressed with gzip."""
    return takes_gzip(by_name(request.scope["headers"]).get(b"accept-encoding", b""))


def reader_has(request: Request, etag: str) -> bool:
    """Whether a request says that its sender has what this tag names."""
    tags = by_name(request.scope["headers"]).get(b"if-none-match")
    return tags is not None and is_known(tags, etag)
