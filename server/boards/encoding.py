"""A board as bytes: JSON or CSV, encoded and compressed once per version."""

import csv
import gzip
import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import orjson

from server.csv_cells import csv_cell

Board = dict[str, Any]
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
    "lens_clock",
    "lens_target",
    "measured_latency_ms",
    "energy_joules",
    "samples_per_second",
    "precision",
    "precision_measured",
    "verification_id",
    "price_usd_per_accelerator_hour",
    "prices_on",
    "cost_price",
    "withdrawn",
    "benchmark_sha256",
    "evidence",
    "check",
    "witnessed_by",
    "provisional_rank",
    "listed_rank",
    "claimed_seconds",
    "measured_seconds",
    "measured_low_seconds",
    "measured_high_seconds",
    "measured_runs",
    "owners",
    "by_organisers",
    "pool_id",
    "also_by",
    "not_separated_from",
    "visible_gap_percent",
    "trained_with",
    "tuning_trials",
    "tuning_seconds",
)
# Most of what a higher level saves costs more time than sending it does.
GZIP_LEVEL = 6


@dataclass(frozen=True)
class Encoded:
    """An answer ready to send, as it is or with `Content-Encoding: gzip`."""

    content: bytes
    etag: str
    total: int
    next_cursor: str | None

    @cached_property
    def gzip_content(self) -> bytes:
        """The same compressed, for the first who takes it so and all after."""
        return gzip.compress(self.content, compresslevel=GZIP_LEVEL, mtime=0)

    @property
    def weight(self) -> int:
        """Bytes in memory, at most: no encoding makes a board longer than twice what it is."""
        return 2 * len(self.content)


def encode_json(board: Board) -> bytes:
    """The board as JSON."""
    return orjson.dumps(board)


def encode_csv(board: Board) -> bytes:
    """The board as CSV; text that a spreadsheet would run as a formula gets an apostrophe."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(CSV_COLUMNS)
    lens, price = board["lens"] or {}, board["price"] or {}
    of_board = {
        "lens_clock": lens.get("clock"),
        "lens_target": lens.get("target"),
        "price_usd_per_accelerator_hour": price.get("usd_per_accelerator_hour"),
        "prices_on": price.get("prices_on"),
    }
    for entry in board["entries"]:
        system, rcp = entry["system"], entry["rcp"] or {}
        table = entry | of_board | {"system": system["name"], "rcp_verdict": rcp.get("verdict")}
        for name in ("hardware_class", "accelerator", "accelerator_count"):
            table[name] = system[name]
        tuning = entry["tuning"] or {}
        table |= {f"tuning_{name}": tuning.get(name) for name in ("trials", "seconds")}
        table["also_by"] = "; ".join(entry["also_by"])
        writer.writerow([csv_cell(table[name]) for name in CSV_COLUMNS])
    return text.getvalue().encode()


def encode(board: Board, write: Callable[[Board], bytes]) -> Encoded:
    """The board written one way, with what its headers say."""
    return encoded(write(board), total=board["total"], next_cursor=board["next_cursor"])


def encoded(content: bytes, *, total: int, next_cursor: str | None) -> Encoded:
    """Bytes made ready to send; one tag names them in either encoding, so it is a weak one."""
    return Encoded(
        content=content,
        etag=f'W/"{hashlib.sha256(content).hexdigest()[:32]}"',
        total=total,
        next_cursor=next_cursor,
    )
