"""Log lines of a worker: for people or as JSON, with the ids of the attempt under way."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from finishline.rules.verification.messages import ReplayJob
from worker.settings import Settings

# One attempt is made at a time, and every thread of the process writes about it.
_under_way: dict[str, str] = {}


@contextmanager
def attempt_in_logs(job: ReplayJob) -> Iterator[None]:
    """Name a job's ids in every line until the block ends."""
    ids = {"attempt_id": job.attempt_id, "verification_id": job.verification_id}
    _under_way.update(ids)
    if job.submission_id is not None:
        _under_way["submission_id"] = job.submission_id
    try:
        yield
    finally:
        _under_way.clear()


class TextFormatter(logging.Formatter):
    """`time level logger message [attempt_id=…]`."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage().replace("\r", "\\r").replace("\n", "\\n")
        ids = " ".join(f"{name}={value}" for name, value in _under_way.items())
        line = f"{_moment(record)} {record.levelname} {record.name} {message}"
        line += f" [{ids}]" if ids else ""
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line, with the same names as the server's lines."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_under_way,
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


FORMATTERS = {"text": TextFormatter, "json": JsonFormatter}


def configure_logging(settings: Settings) -> None:
    """Send every line to stderr in the format and from the level of the settings.

    Other packages say nothing below "info", the HTTP client nothing below "warning".
    """
    handler = logging.StreamHandler()
    handler.setFormatter(FORMATTERS[settings.log_format]())
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(level, logging.INFO))
    logging.getLogger("worker").setLevel(level)
    logging.getLogger("httpx2").setLevel(logging.WARNING)


def _moment(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
