"""Log lines for people or as JSON, and the access line of each request."""

import logging
from datetime import UTC, datetime
from typing import Any

import orjson
from prometheus_fastapi_instrumentator.metrics import Info

from server.base.request_context import CURRENT, ID_PARAMETERS, current
from server.base.settings import Settings

IDS = ("request_id", "user_id", *ID_PARAMETERS)
# A text line says method, route and status in its message.
FIGURES = ("seconds", "bytes")
ACCESS = ("method", "route", "status", *FIGURES)
OWN_LOGGERS = ("server", "finishline", "web")
TALKATIVE = ("alembic.runtime.migration", "botocore.credentials")


class TextFormatter(logging.Formatter):
    """`time level logger message [request_id=… seconds=…]`, one line but for a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as text; a line break in a message is escaped, so that none is forged."""
        fields = " ".join(f"{name}={value}" for name, value in _fields(record, IDS + FIGURES))
        line = (
            f"{_moment(record)} {record.levelname} {record.name} {_one_line(record.getMessage())}"
            + (f" [{fields}]" if fields else "")
        )
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and the fields that are known."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as JSON; a traceback is in `exception`."""
        line: dict[str, Any] = {
            "time": _moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **dict(_fields(record, IDS + ACCESS)),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


FORMATTERS = {"text": TextFormatter, "json": JsonFormatter}


def is_first_telling(record: logging.LogRecord) -> bool:
    """Whether a line of uvicorn's is no traceback that a line of ours has already."""
    return record.exc_info is None or not current().is_told


def configure_logging(settings: Settings) -> None:
    """Send every line of this process to stderr in the format and from the level of the settings.

    Other packages say nothing below "info": some write down what they send, credentials included.
    uvicorn's lines come in the same format; its access lines, which hold whole addresses, are
    replaced by ours, and so is its second traceback of an error that was told.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(FORMATTERS[settings.log_format]())
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(level, logging.INFO))
    for name in OWN_LOGGERS:
        logging.getLogger(name).setLevel(level)
    for name in TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in ("uvicorn", "uvicorn.error"):
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True
    logging.getLogger("uvicorn.error").addFilter(is_first_telling)
    access = logging.getLogger("uvicorn.access")
    access.handlers.clear()
    access.propagate = False


def _fields(record: logging.LogRecord, names: tuple[str, ...]) -> list[tuple[str, Any]]:
    """Fields of the request; those of the line itself come first."""
    context = CURRENT.get()
    known = {} if context is None else context.fields()
    own = vars(record)
    return [
        (name, own.get(name, known.get(name))) for name in names if name in own or name in known
    ]


def _moment(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _one_line(text: str) -> str:
    return text.replace("\r", "\\r").replace("\n", "\\n")


log = logging.getLogger("server.access")

# Asked every few seconds by machines: their lines would hide all others.
PROBES = frozenset({"/healthz", "/readyz", "/metrics"})


def write_access_line(answered: Info) -> None:
    """Write a line about a request: its route, and never its address, which may carry a secret."""
    method, route, status = answered.method, answered.modified_handler, answered.modified_status
    level = logging.DEBUG if route in PROBES and status < "4" else logging.INFO
    if log.isEnabledFor(level):
        fields = {
            "method": method,
            "route": route,
            "status": int(status),
            "seconds": round(answered.modified_duration, 6),
        }
        if answered.response is not None and "content-length" in answered.response.headers:
            fields["bytes"] = int(answered.response.headers["content-length"])
        log.log(level, "%s %s %s", method, route, status, extra=fields)
