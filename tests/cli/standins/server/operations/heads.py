"""What `finishline up` names as the way to read requests."""

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as BoundedHttpProtocol

__all__ = ["BoundedHttpProtocol"]
