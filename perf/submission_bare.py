"""The bare route of perf/submission_writes.py: it takes a submission's upload, writes each file to
the disk with fsync, inserts the very rows that the server stored of one, and does nothing else.
"""

import os
import pickle
import secrets
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, insert, select, update
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from server.base.database import Database
from server.base.models import Board, BoardChange, RunRow, Submission

ROWS = "FINISHLINE_PERF_ROWS"


@dataclass(frozen=True)
class Rows:
    """One stored submission: its row and those of its runs."""

    submission: dict[str, Any]
    runs: list[dict[str, Any]]


def keep_rows(url: str, path: Path) -> None:
    """Write the rows of a submission that the server stored to a file."""
    database = Database(url)
    with database.engine.connect() as connection:
        submission = connection.execute(select(Submission.__table__).limit(1)).mappings().one()
        of_it = RunRow.__table__.c.submission_id == submission["id"]
        runs = connection.execute(select(RunRow.__table__).where(of_it)).mappings().all()
    database.close()
    without_id = [{name: run[name] for name in run if name != "id"} for run in runs]
    path.write_bytes(pickle.dumps(Rows(dict(submission), without_id)))


def insert_rows(connection: Connection, rows: Rows) -> str:
    """The statements of one submission and nothing else; its id."""
    own = secrets.token_hex(6)
    connection.execute(
        insert(Submission.__table__),  # type: ignore[arg-type]
        rows.submission | {"id": own, "idempotency_key": own},
    )
    runs = [run | {"submission_id": own, "log_sha256": secrets.token_hex(32)} for run in rows.runs]
    connection.execute(insert(RunRow.__table__), runs)  # type: ignore[arg-type]
    benchmark_id = rows.submission["benchmark_id"]
    version = connection.execute(
        update(Board.__table__)  # type: ignore[arg-type]
        .where(Board.benchmark_id == benchmark_id)
        .values(version=Board.version + 1)
        .returning(Board.version)
    ).scalar_one()
    connection.execute(
        insert(BoardChange.__table__),  # type: ignore[arg-type]
        {"benchmark_id": benchmark_id, "version": version, "submission_id": own},
    )
    return own


def write_files(folder: Path, parts: Sequence[UploadFile]) -> None:
    """Write each part to the disk under a name of its own, and then the names."""
    for part in parts:
        with (folder / secrets.token_hex(16)).open("wb") as target:
            target.write(part.file.read())
            target.flush()
            os.fsync(target.fileno())
    opened = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def make_app() -> Starlette:
    """The application; its database, folder and rows are named as the server's are."""
    database = Database(os.environ["FINISHLINE_DATABASE_URL"])
    rows: Rows = pickle.loads(Path(os.environ[ROWS]).read_bytes())  # noqa: S301 - written above
    folder = Path(os.environ["FINISHLINE_ARTIFACTS_DIR"])
    folder.mkdir(parents=True, exist_ok=True)
    writers = threading.Lock() if database.is_sqlite else nullcontext()

    def store(parts: Sequence[UploadFile]) -> str:
        write_files(folder, parts)
        with writers, database.engine.connect() as connection:
            connection.execution_options(finishline_write=True)
            with connection.begin():
                return insert_rows(connection, rows)

    async def submit(request: Request) -> JSONResponse:
        async with request.form() as form:
            parts = [part for _, part in form.multi_items() if isinstance(part, UploadFile)]
            own = await run_in_threadpool(store, parts)
        return JSONResponse({"id": own}, status_code=201)

    async def healthz(_request: Request) -> JSONResponse:
        return JSONResponse({})

    routes = [
        Route("/api/v1/submissions", submit, methods=["POST"]),
        Route("/healthz", healthz),
    ]
    return Starlette(routes=routes)
