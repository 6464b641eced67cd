"""Answer leaderboards as JSON or CSV, records, lineages, comparisons and live views."""

import csv
import gzip
import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import orjson
from fastapi import Query, Request, Response
from sqlalchemy.orm import Session

from finishline.api.boards import COLUMN_FIELDS, BoardView, nested
from finishline.api.comparisons import SubmissionComparison
from finishline.rules.benchmarks.benchmark import Benchmark
from server.base.board_versions import board_version, hint_of
from server.base.database import Services, ServicesDep, benchmarks_of
from server.base.http import is_known, takes_gzip
from server.base.paging import csv_cell
from server.base.standing import find_verification
from server.benchmarks.definitions import find_benchmark
from server.boards.board import Board, PreviewView, preview_board, read_board
from server.boards.compare import compare_submissions
from server.boards.lineage import IdeaList, list_ideas
from server.boards.live import RaceView, read_race
from server.boards.query import BoardQuery
from server.boards.records import RecordList, list_records
from server.people.callers import OrganiserDep, viewer_for
from server.people.declared import Routes

# Fields of an entry that are tables. Parts of them have columns of their own.
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
        """Weak tag, because each encoding of the content shares it."""
        return f'W/"{hashlib.sha256(self.content).hexdigest()[:32]}"'


def encode(board: Board, write: Callable[[Board], bytes]) -> Encoded:
    """Write a board in one format."""
    return Encoded(write(board), total=board["total"], next_cursor=board["next_cursor"])


def encode_json(board: Board) -> bytes:
    """Write a board as JSON."""
    return orjson.dumps(board | {"entries": [nested(entry) for entry in board["entries"]]})


def encode_csv(board: Board) -> bytes:
    """Write a board as CSV. Text that a spreadsheet would run as a formula gets an apostrophe."""
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
    query: BoardQuery,
    media_type: str,
    make: Callable[[Session, Benchmark, BoardQuery], Encoded],
) -> Response:
    """Answer with the board that `make` reads, cacheable because it is the same for all."""
    benchmark = find_benchmark(services.benchmarks, benchmark_id)
    with services.database.read_snapshot() as session:
        version = board_version(session, benchmark_id)
        encoded = make(session, benchmark, query)
    content, etag = encoded.content, encoded.etag
    hint = hint_of(request.scope)
    hint.benchmark_id, hint.version, hint.etag = benchmark_id, version, etag
    headers = {
        "ETag": etag,
        "Cache-Control": "no-cache",
        "Vary": "Accept, Accept-Encoding",
        **place_headers(request, encoded),
    }
    if is_known(request.scope, etag):
        return Response(status_code=304, headers=headers)
    if takes_gzip(request.scope):
        content = gzip.compress(content, compresslevel=GZIP_LEVEL, mtime=0)
        headers["Content-Encoding"] = "gzip"
    return Response(content, media_type=media_type, headers=headers)


def place_headers(request: Request, encoded: Encoded) -> dict[str, str]:
    """Make the headers with the number of all entries, and the link to the next page."""
    headers = {"X-Total-Count": str(encoded.total)}
    if encoded.next_cursor is not None:
        following = request.url.remove_query_params("page").include_query_params(
            cursor=encoded.next_cursor
        )
        headers["Link"] = f'<{following.path}?{following.query}>; rel="next"'
    return headers


router = Routes(tags=["leaderboards"])
races = Routes(tags=["verifications"])
BoardQueryDep = Annotated[BoardQuery, Query()]
SubmissionsDep = Annotated[
    str,
    Query(
        max_length=200,
        description="Two to six submission ids, separated by commas.",
        json_schema_extra={"pattern": "^[a-z0-9]+(,[a-z0-9]+){1,5}$"},
    ),
]
CSV_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/csv": {}}, "description": "The same board as CSV."}
}


@router.get("/leaderboards/{benchmark_id}.csv", response_class=Response, responses=CSV_ANSWER)
def get_board_csv(
    benchmark_id: str, query: BoardQueryDep, services: ServicesDep, request: Request
) -> Response:
    """Read the same board as CSV."""
    make = partial(_encoded, encode_csv)
    return answer_board(services, request, benchmark_id, query, "text/csv; charset=utf-8", make)


@router.get("/leaderboards/{benchmark_id}", response_model=BoardView)
def get_board(
    benchmark_id: str, query: BoardQueryDep, services: ServicesDep, request: Request
) -> Response:
    """Read a benchmark's leaderboard: ranked entries, then unranked ones with the reason."""
    make = partial(_encoded, encode_json)
    return answer_board(services, request, benchmark_id, query, "application/json", make)


@router.get("/leaderboards/{benchmark_id}/preview", response_model=PreviewView)
def get_preview(
    benchmark_id: str,
    query: BoardQueryDep,
    services: ServicesDep,
    caller: OrganiserDep,
    request: Request,
) -> Response:
    """Read the board as if its embargo were over now. For organisers, and never cached."""
    benchmark = find_benchmark(services.benchmarks, benchmark_id)
    with services.database.read_snapshot(viewer_for(caller)) as session:
        board, _ = preview_board(session, benchmark, query)
    answer = encode(board, encode_json)
    headers = {"Cache-Control": "private, no-store", **place_headers(request, answer)}
    return Response(answer.content, media_type="application/json", headers=headers)


@router.read("/benchmarks/{benchmark_id}/records", to_all=True)
def get_records(session: Session, benchmark_id: str) -> RecordList:
    """Read the holders of each board with their dates, and the lower times that missed the record.

    A measured time takes the record by a head-to-head with the holder. A published time must beat
    its holder by more than chance, by Welch's one-sided test.
    """
    return list_records(session, find_benchmark(benchmarks_of(session), benchmark_id))


@router.read("/benchmarks/{benchmark_id}/ideas", to_all=True)
def get_ideas(session: Session, benchmark_id: str) -> IdeaList:
    """Read code submissions with a public source by hardware class, and the seconds each gained.

    At most the latest 500.
    """
    return list_ideas(session, find_benchmark(benchmarks_of(session), benchmark_id))


@router.read("/compare")
def get_comparison(session: Session, submissions: SubmissionsDep) -> SubmissionComparison:
    """Compare every pair of two to six submissions of one benchmark: who is faster, how surely."""
    return compare_submissions(session, submissions)


@races.read("/verifications/{verification_id}/race")
def get_race(session: Session, verification_id: str) -> RaceView:
    """Read a replay's runs so far, with curves of the record and of the submission's own runs."""
    return read_race(session, find_verification(session, verification_id))


def _encoded(
    write: Callable[[Board], bytes], session: Session, benchmark: Benchmark, query: BoardQuery
) -> Encoded:
    return encode(read_board(session, benchmark, query), write)


router.include_router(races)
