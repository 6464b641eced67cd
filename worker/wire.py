"""Messages to and from JSON, checked against their classes."""

from typing import Any, TypeVar

import orjson
from pydantic import TypeAdapter

from finishline.rules.verification.messages import BackendLatency, ReplayJob

_Message = TypeVar("_Message")


def encode(message: Any) -> bytes:
    """The JSON of a message class."""
    return orjson.dumps(message)


def decode(content: bytes, kind: type[_Message]) -> _Message:
    """A message from JSON. Raises pydantic's ValidationError, a ValueError, naming the field."""
    return TypeAdapter(kind).validate_json(content)


def read_job(payload: object) -> ReplayJob:
    """The job of a broker message. Raises pydantic's ValidationError, a ValueError."""
    return TypeAdapter(ReplayJob).validate_python(payload)


def read_latency(fields: object) -> BackendLatency:
    """Read the training process's latencies. Raises pydantic's ValidationError, a ValueError."""
    return TypeAdapter(BackendLatency).validate_python(fields)
