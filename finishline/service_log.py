"""Log lines of a service on standard error, as text for people or as JSON."""

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

Fields = Callable[[logging.LogRecord], Mapping[str, Any]]


class TextFormatter(logging.Formatter):
    """`time level logger message [name=value ...]` on one line, plus a traceback."""

    def __init__(self, fields: Fields) -> None:
        super().__init__()
        self.fields = fields

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as text. Escapes line breaks in a message, against forged lines."""
        fields = " ".join(f"{name}={value}" for name, value in self.fields(record).items())
        message = record.getMessage().replace("\r", "\\r").replace("\n", "\\n")
        line = f"{_moment(record)} {record.levelname} {record.name} {message}"
        line += f" [{fields}]" if fields else ""
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(TextFormatter):
    """One JSON object per line: time, level, logger, message, and the fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as JSON, with a traceback in `exception`."""
        line: dict[str, Any] = {
            "time": _moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self.fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


def log_to_stderr(
    formatter: logging.Formatter, level_name: str, *, own: Iterable[str], talkative: Iterable[str]
) -> None:
    """Log to stderr from a level on.

    Packages other than our `own` log from "info" on, because some write all they send, credentials
    included. The `talkative` ones log from "warning" on.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    level = logging.getLevelNamesMapping()[level_name.upper()]
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(level, logging.INFO))
    for name in own:
        logging.getLogger(name).setLevel(level)
    for name in talkative:
        logging.getLogger(name).setLevel(logging.WARNING)


def _moment(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
