"""A board as bytes: JSON or CSV, encoded once per version and kept."""

import csv
import hashlib
import io
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from server.leaderboard.schemas import BoardView

CSV_COLUMNS = (
    "rank",
    "tied",
    "unranked_reason",
    "submission_id",
    "submitter",
    "model",
    "framework",
    "division",
    "status",
    "system",
    "hardware_class",
    "accelerator",
    "accelerator_count",
    "tta_seconds",
    "tta_low_seconds",
    "tta_high_seconds",
    "cv_percent",
    "runs_reached",
    "runs_started",
    "epochs_to_target",
    "cost_usd",
    "latency_ms",
    "evaluation_interval_seconds",
    "submitted_at",
    "submitted_on",
    "raw_tta_seconds",
    "rcp_verdict",
    "cost_usd_per_10000",
    "quality",
    "group",
    "group_rank",
    "p_same_as_leader",
    "single_run",
    "lens_clock",
    "lens_target",
    "measured_latency_ms",
)
Answer = TypeVar("Answer")
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class Encoded:
    """An answer ready to send."""

    content: bytes
    etag: str
    total: int
    next_cursor: str | None


def encode_json(board: BoardView) -> bytes:
    """The board as JSON."""
    return board.model_dump_json().encode()


def encode_csv(board: BoardView) -> bytes:
    """The board as CSV; text that a spreadsheet would run as a formula gets an apostrophe."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(CSV_COLUMNS)
    for entry in board.entries:
        table = entry.model_dump(mode="json")
        system = table.pop("system")
        table["system"] = system["name"]
        table["rcp_verdict"] = entry.rcp.verdict if entry.rcp else None
        table["lens_clock"] = board.lens.clock if board.lens else None
        table["lens_target"] = board.lens.target if board.lens else None
        for name in ("hardware_class", "accelerator", "accelerator_count"):
            table[name] = system[name]
        writer.writerow([_cell(table[name]) for name in CSV_COLUMNS])
    return text.getvalue().encode()


def _cell(value: object) -> object:
    if isinstance(value, str) and value.startswith(FORMULA_STARTS):
        return "'" + value
    return "" if value is None else value


def encode(board: BoardView, write: Callable[[BoardView], bytes]) -> Encoded:
    """The board written one way, with what its headers say."""
    content = write(board)
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    return Encoded(content, etag, total=board.total, next_cursor=board.next_cursor)


class BoardCache(Generic[Answer]):
    """The latest answers by query, each valid for one version of its board."""

    def __init__(self, *, size: int = 256) -> None:
        self._size = size
        self._answers: OrderedDict[str, tuple[int, Answer]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str, version: int, make: Callable[[], Answer]) -> Answer:
        """The kept answer if it is of this version, else a fresh one."""
        with self._lock:
            kept = self._answers.get(key)
            if kept is not None and kept[0] == version:
                self._answers.move_to_end(key)
                return kept[1]
        answer = make()
        with self._lock:
            self._answers[key] = (version, answer)
            self._answers.move_to_end(key)
            while len(self._answers) > self._size:
                self._answers.popitem(last=False)
        return answer
