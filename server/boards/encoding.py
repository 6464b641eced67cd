"""A board as a response: JSON, CSV or a page, as bytes that the cache may keep."""

import csv
import gzip
import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson
from fastapi import Request, Response
from sqlalchemy.orm import Session

from finishline.api.boards import COLUMN_FIELDS, nested
from server.base.board_versions import board_version
from server.base.middleware import reader_has, reader_takes_gzip
from server.base.paging import csv_cell
from server.base.services import Services
from server.boards.cache import hint_of

Board = dict[str, Any]
# Fields of an entry that are tables; parts of them have columns of their own.
NOT_IN_CSV = frozenset({"tta_display", "rcp", "tuning", "source"})
CSV_COLUMNS = (
    *(name for name in COLUMN_FIELDS if name not in NOT_IN_CSV),
    *("hardware_class", "accelerator", "accelerator_count", "rcp_verdict"),
    *("tuning_trials", "tuning_seconds", "what_if_clock", "what_if_target"),
    *("price_usd_per_accelerator_hour", "prices_on"),
)
# A higher level costs more time than sending the bytes it saves.
GZIP_LEVEL = 6


@dataclass(frozen=True)
class Encoded:
    """A board as bytes, its number of entries on all pages, and the cursor of the next page."""

    content: bytes
    total: int
    next_cursor: str | None = None

    @property
    def etag(self) -> str:
        """A tag of the content in any encoding, so a weak one."""
        return f'W/"{hashlib.sha256(self.content).hexdigest()[:32]}"'


def encode(board: Board, write: Callable[[Board], bytes]) -> Encoded:
    """The board written one way."""
    return Encoded(write(board), total=board["total"], next_cursor=board["next_cursor"])


def encode_json(board: Board) -> bytes:
    """The board as JSON."""
    return orjson.dumps(nested_board(board))


def nested_board(board: Board) -> Board:
    """The board with the fields of BoardView: its entries are rows, and no columns."""
    return board | {"entries": [nested(entry) for entry in board["entries"]]}


def encode_csv(board: Board) -> bytes:
    """The board as CSV; text that a spreadsheet would run as a formula gets an apostrophe."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(CSV_COLUMNS)
    what_if, price = board["what_if"] or {}, board["price"] or {}
    of_board = {
        "what_if_clock": what_if.get("clock"),
        "what_if_target": what_if.get("target"),
        "price_usd_per_accelerator_hour": price.get("usd_per_accelerator_hour"),
        "prices_on": price.get("prices_on"),
    }
    for entry in board["entries"]:
        system, rcp, tuning = entry["system"], entry["rcp"] or {}, entry["tuning"] or {}
        waivers = (f"{waiver['rule']}: {waiver['reason']}" for waiver in entry["waivers"])
        cells = entry | of_board
        cells |= {
            "system": system["name"],
            "hardware_class": system["hardware_class"],
            "accelerator": system["accelerator"],
            "accelerator_count": system["accelerator_count"],
            "rcp_verdict": rcp.get("verdict"),
            "tuning_trials": tuning.get("trials"),
            "tuning_seconds": tuning.get("seconds"),
            "waivers": "; ".join(waivers),
        }
        writer.writerow([csv_cell(cells[name]) for name in CSV_COLUMNS])
    return text.getvalue().encode()


def answer_board(
    services: Services,
    request: Request,
    benchmark_id: str,
    media_type: str,
    make: Callable[[Session], Encoded],
) -> Response:
    """Respond with the board that `make` reads, marked as cacheable: it is the same for all."""
    with services.database.read_snapshot() as session:
        version = board_version(session, benchmark_id)
        encoded = make(session)
    content, etag = encoded.content, encoded.etag
    hint = hint_of(request.scope)
    hint.benchmark_id, hint.version, hint.etag = benchmark_id, version, etag
    headers = {
        "ETag": etag,
        "Cache-Control": "no-cache",
        "Vary": "Accept, Accept-Encoding",
        **place_headers(request, encoded),
    }
    if reader_has(request, etag):
        return Response(status_code=304, headers=headers)
    if reader_takes_gzip(request):
        content = gzip.compress(content, compresslevel=GZIP_LEVEL, mtime=0)
        headers["Content-Encoding"] = "gzip"
    return Response(content, media_type=media_type, headers=headers)


def place_headers(request: Request, encoded: Encoded) -> dict[str, str]:
    """Headers with the number of all entries, and the link to the next page."""
    headers = {"X-Total-Count": str(encoded.total)}
    if encoded.next_cursor is not None:
        following = request.url.remove_query_params("page").include_query_params(
            cursor=encoded.next_cursor
        )
        headers["Link"] = f'<{following.path}?{following.query}>; rel="next"'
    return headers
