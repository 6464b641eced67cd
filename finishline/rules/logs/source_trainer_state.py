"""`trainer_state.json` of Hugging Face's Trainer: its `log_history`, which has no times.

Source: transformers 5.23, trainer_callback.py, TrainerState.
"""

from typing import Any

from finishline.rules.errors import LogFormatError
from finishline.rules.logs.source import SourceRow, read_moment
from finishline.rules.logs.text import MAX_FILE_BYTES, parse_json

LARGEST = 1e300  # Of whole numbers too: a float must hold it.


def read_trainer_state(content: bytes, *, file: str, time: str | None) -> list[SourceRow]:
    """The entries of the history; `time` is a field that a callback of the user's may have added.

    Raises LogFormatError for any other file.
    """
    if len(content) > MAX_FILE_BYTES:
        raise LogFormatError(
            f"{len(content):,} bytes", file=file, expected=f"at most {MAX_FILE_BYTES:,} bytes"
        )
    document = parse_json(content, file=file)
    history = document.get("log_history") if isinstance(document, dict) else None
    if not isinstance(history, list) or not all(isinstance(entry, dict) for entry in history):
        expected = "a trainer_state.json with a log_history"
        raise LogFormatError("no history of a Trainer", file=file, expected=expected)
    return [_row(entry, time) for entry in history]


def _row(entry: dict[str, Any], time: str | None) -> SourceRow:
    told = entry.get(time) if time is not None else None
    values = {
        name: float(value)
        for name, value in entry.items()
        if type(value) in (int, float) and abs(value) <= LARGEST and name != time
    }
    return SourceRow(values, None if told is None else read_moment(str(told)))
