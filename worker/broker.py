"""The worker's side of the broker: a message that is no replay job never reaches Celery.

Kombu and Celery raise on many malformed messages in the loop itself, which ends the worker, or keep
the one place for messages. So each raw message is read here first, dropped and logged if it is no
job, and otherwise handed on as one that is made anew from its job and its id.
"""

import base64
import json
import logging
import uuid
from datetime import datetime
from queue import Empty
from typing import Any, cast

from kombu.transport import TRANSPORT_ALIASES
from kombu.transport import redis as kombu_redis
from pydantic import TypeAdapter

from finishline.rules.verification.broker_account import unacked_keys
from finishline.rules.verification.messages import REPLAY_TASK, ReplayJob

log = logging.getLogger(__name__)

LONGEST_ID = 100
SHOWN_CHARACTERS = 300


def read_job(payload: object) -> ReplayJob:
    """The job of a broker message. Raises pydantic's ValidationError, a ValueError."""
    return TypeAdapter(ReplayJob).validate_python(payload)


def read_message(raw: Any) -> dict[str, Any]:
    """Build a well-formed Celery message from the job of a raw one.

    Raises ValueError if it carries none.
    """
    try:
        headers = raw["headers"]
        arguments, named, _ = json.loads(base64.b64decode(raw["body"], validate=True))
        (payload,) = arguments
        task_id, expires = headers["id"], headers.get("expires")
        fits = headers["task"] == REPLAY_TASK and named == {} and isinstance(task_id, str)
        if expires is not None:
            datetime.fromisoformat(expires)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ValueError(f"it is not a Celery message ({type(error).__name__}: {error})") from error
    if not (fits and len(task_id) <= LONGEST_ID):
        raise ValueError(f"its task is not {REPLAY_TASK}, called with one job")
    read_job(payload)
    return _message(payload, task_id, expires)


def _message(payload: Any, task_id: str, expires: str | None) -> dict[str, Any]:
    """The message made anew. Raises ValueError for a number that is not finite."""
    return {
        "body": base64.b64encode(
            json.dumps([[payload], {}, {}], allow_nan=False).encode()
        ).decode(),
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": {
            "lang": "py",
            "task": REPLAY_TASK,
            "id": task_id,
            "root_id": task_id,
            "expires": expires,
        },
        "properties": {
            "body_encoding": "base64",
            "correlation_id": task_id,
            "delivery_info": {"exchange": "", "routing_key": ""},
            "delivery_tag": str(uuid.uuid4()),
        },
    }


class Channel(kombu_redis.Channel):
    """Kombu's channel, made to survive messages that are no JSON."""

    def _brpop_read(self, **options: Any) -> Any:
        try:
            return super()._brpop_read(**options)  # type: ignore[no-untyped-call]
        except (ValueError, RecursionError) as error:
            _note_dropped(error)
            raise Empty from error


class Transport(kombu_redis.Transport):
    """Kombu's transport, which hands on replay jobs alone."""

    Channel = Channel

    def _deliver(self, message: Any, queue: str) -> None:
        try:
            made = read_message(message)
        except ValueError as error:
            _note_dropped(error)
            return
        super()._deliver(made, queue)  # type: ignore[no-untyped-call]


def _note_dropped(error: Exception) -> None:
    log.error("a message that is no replay job was dropped: %s", str(error)[:SHOWN_CHARACTERS])


def use_careful_transport() -> None:
    """Have every connection of this process to a Redis broker read messages as this module does."""
    aliases = cast("dict[str, Any]", TRANSPORT_ALIASES)
    aliases["redis"] = aliases["rediss"] = f"{__name__}:{Transport.__name__}"


def transport_options(worker: str) -> dict[str, Any]:
    """Kombu's names for the keys of a worker's own, which no other worker reads."""
    return dict(unacked_keys(worker))
