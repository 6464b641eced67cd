"""Reading leaderboards at speed, against a plain Starlette route that answers the same bytes.

`python perf/board_reads.py [--rounds N] [--connections N] [--seconds S] [--results N]` starts one
server process with a SQLite database of 5,000 submissions to a board (`--results 1000000` makes 200
such boards) and one with a plain Starlette application, and loads them in turns over loopback. What
counts is requests per CPU second of the server process, because neighbours on the machine take none
of it; printed are medians over the rounds and their ratio to the plain route. Then a submission is
changed many times and the first read after each write is timed, alone and while others read.

Exit code 1 where the fast path costs more than the plain route or a first read takes too long.
"""

import argparse
import asyncio
import gc
import json
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import uvicorn
from fastapi import FastAPI
from sqlalchemy import select, update
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from perf.board_load import Load, put_load, request_for
from perf.board_pages import BENCHMARK, fill
from server.app import create_app
from server.benchmarks.queries import find_benchmark
from server.database import Database
from server.dependencies import Parts
from server.leaderboard.service import raise_board_version
from server.models import Submission
from server.schema import migrate
from server.settings import Settings

BOARD = f"/api/v1/leaderboards/{BENCHMARK}"
PAGE = f"/benchmarks/{BENCHMARK}"
WRITE = "/perf/write"
PER_BOARD = 5000
WANTED_RATIO = 1.0
WANTED_FIRST_READ_SECONDS = 0.05


@dataclass(frozen=True)
class Case:
    """One kind of read."""

    words: str
    is_plain: bool
    request: bytes
    status: bytes = b"200"


def main() -> int:
    """Measure and print; returns the exit code."""
    asked = arguments()
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/boards.db"
        make_boards(url, Path(folder), results=asked.results)
        with server("finishline", url, asked.port) as process:
            content, headers = read_board(asked)
            (Path(folder) / "board.json").write_bytes(content)
            (Path(folder) / "headers.json").write_text(json.dumps(headers))
            with server("plain", f"{folder}/board.json", asked.port + 1) as plain:
                print(f"board reads: {len(content):,} bytes, {asked.connections} connections")
                ratio = measure_cases(asked, process, plain, headers["etag"])
        with server("finishline", url, asked.port) as process:
            seconds = [measure_first_reads(asked, process, others=others) for others in (0, 8)]
    return int(ratio < WANTED_RATIO or max(seconds) > WANTED_FIRST_READ_SECONDS)


def arguments() -> argparse.Namespace:
    """How long and how hard."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--writes", type=int, default=100)
    parser.add_argument("--results", type=int, default=PER_BOARD)
    parser.add_argument("--entries", type=int, default=100)
    parser.add_argument("--port", type=int, default=18112)
    return parser.parse_args()


def measure_cases(
    asked: argparse.Namespace, process: psutil.Process, plain: psutil.Process, etag: str
) -> float:
    """Each kind of read in turns; returns the ratio of the fast path's answers 200."""
    board = board_path(asked)
    cases = (
        Case("plain Starlette route", True, request_for("/")),
        Case("plain, the board's headers", True, request_for("/headers")),
        Case("board as JSON, 200", False, request_for(board)),
        Case("board as JSON, 304", False, request_for(board, If_None_Match=etag), b"304"),
        Case("board as JSON, gzip", False, request_for(board, Accept_Encoding="gzip")),
        Case("board as a page, gzip", False, request_for(PAGE, Accept_Encoding="gzip")),
        Case("board at a price, not kept", False, request_for(f"{BOARD}?price=3")),
    )
    rates: dict[str, list[float]] = {case.words: [] for case in cases}
    loads: dict[str, list[float]] = {case.words: [] for case in cases}
    for number in range(asked.rounds + 1):
        for case in cases:
            port = asked.port + case.is_plain
            server_process = plain if case.is_plain else process
            rate, load = rate_of(asked, case, port, server_process)
            if number > 0:  # The first round warms up.
                rates[case.words].append(rate)
                loads[case.words] += load.seconds
    base = statistics.median(rates["plain Starlette route"])
    for words, found in rates.items():
        rate = statistics.median(found)
        low, high = min(found) / base, max(found) / base
        p50, p99 = percentiles(loads[words])
        print(
            f"  {words:28} {rate:9,.0f} requests per CPU second, ratio {rate / base:5.2f} "
            f"({low:.2f} to {high:.2f}), p50 {p50 * 1e3:6.2f} ms, p99 {p99 * 1e3:6.2f} ms"
        )
    return statistics.median(rates["board as JSON, 200"]) / base


def rate_of(
    asked: argparse.Namespace, case: Case, port: int, process: psutil.Process
) -> tuple[float, Load]:
    """Requests per CPU second of the server process, and the load it was under."""
    before = cpu_seconds(process)
    load = Load(case.request, case.status)
    asyncio.run(put_load(port, load, connections=asked.connections, seconds=asked.seconds))
    if load.faults:
        raise SystemExit(f"{case.words}: {load.faults[0].decode()}")
    return load.answers / (cpu_seconds(process) - before), load


def cpu_seconds(process: psutil.Process) -> float:
    """What the process has used."""
    times = process.cpu_times()
    return float(times.user + times.system)


def measure_first_reads(
    asked: argparse.Namespace, process: psutil.Process, *, others: int
) -> float:
    """The first read after each of many writes, beside so many other readers; returns its p99."""
    read_board(asked)
    before = cpu_seconds(process)
    seconds = asyncio.run(_first_reads(asked, others))
    cpu = (cpu_seconds(process) - before) / len(seconds)
    p50, p99 = percentiles(seconds)
    print(
        f"  first read after a write, {others} others reading: "
        f"p50 {p50 * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms, {len(seconds)} writes, "
        f"{cpu * 1e3:.1f} ms CPU of the server for each write and all reads beside it"
    )
    return p99


async def _first_reads(asked: argparse.Namespace, others: int) -> list[float]:
    beside = Load(request_for(BOARD), b"200")
    task = None
    if others:
        reading = put_load(asked.port, beside, connections=others, seconds=1e6)
        task = asyncio.create_task(reading)
    seconds = []
    for _ in range(asked.writes):
        for path, status in ((WRITE, b"204"), (BOARD, b"200")):
            load = Load(request_for(path), status)
            await put_load(asked.port, load, connections=1, seconds=0.0)
            assert not load.faults, load.faults
        seconds += load.seconds
    if task is not None:
        beside.until = 0.0
        await task
    return seconds


def percentiles(seconds: list[float]) -> tuple[float, float]:
    """The median and the 99th percentile."""
    cuts = statistics.quantiles(seconds, n=100)
    return cuts[49], cuts[98]


def board_path(asked: argparse.Namespace) -> str:
    """The board of so many entries."""
    return BOARD if asked.entries == 100 else f"{BOARD}?limit={asked.entries}"


def read_board(asked: argparse.Namespace) -> tuple[bytes, dict[str, str]]:
    """The board's bytes and the headers that the application sends with them."""
    with urllib.request.urlopen(f"http://127.0.0.1:{asked.port}{board_path(asked)}") as answer:
        headers = {name.lower(): value for name, value in answer.headers.items()}
        of_connection = ("date", "server", "connection")
        return answer.read(), {k: v for k, v in headers.items() if k not in of_connection}


def make_boards(url: str, folder: Path, *, results: int) -> None:
    """Fill an empty database: one board of 5,000, or as many as hold so many results."""
    database = Database(url)
    migrate(database)
    parts = Parts(
        settings=Settings(database_url=url, artifacts_dir=folder / "artifacts", rate_limits=False),
        database=database,
        artifacts=None,  # type: ignore[arg-type]
        benchmarks={},
    )
    from rules.benchmark import load_benchmarks

    parts = replace(parts, benchmarks=load_benchmarks(parts.settings.benchmarks_dir))
    fill(parts, min(results, PER_BOARD))
    for number in range(1, results // PER_BOARD):
        copy_board(database, number)
    database.close()


def copy_board(database: Database, number: int) -> None:
    """The submissions of the first board again, under another benchmark, without their runs."""
    with database.write() as session:
        columns = [c for c in Submission.__table__.c if c.name not in ("id", "benchmark_id")]
        names = ", ".join(c.name for c in columns)
        session.connection().exec_driver_sql(
            f"INSERT INTO submissions (id, benchmark_id, {names}) "  # noqa: S608  Own names.
            f"SELECT id || '-{number}', 'copy-{number}', {names} FROM submissions "
            f"WHERE benchmark_id = '{BENCHMARK}'"
        )
        raise_board_version(session, f"copy-{number}")


@contextmanager
def server(kind: str, what: str, port: int) -> Iterator[psutil.Process]:
    """A server process, once it answers."""
    command = [sys.executable, "-m", "perf.board_reads", "--serve", kind, what, str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        path = "/" if kind == "plain" else "/healthz"
        wait_for(f"http://127.0.0.1:{port}{path}", process)
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(timeout=20)


def wait_for(address: str, process: "subprocess.Popen[bytes]") -> None:
    """Until it answers, for at most 30 seconds."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(address, timeout=5).close()  # noqa: S310
            return
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"{address} does not answer")


def serve(kind: str, what: str, port: int) -> None:
    """Be one of the servers."""
    app: Any = plain_app(Path(what)) if kind == "plain" else board_app(what)
    gc.collect()
    gc.freeze()
    uvicorn.run(app, host="127.0.0.1", port=port, access_log=False, log_level="error")


def plain_app(path: Path) -> Starlette:
    """One route that answers the same bytes for ever, and one that adds the board's headers."""
    content = path.read_bytes()
    headers = json.loads(path.with_name("headers.json").read_text())

    async def answer(_request: Request) -> Response:
        return Response(content, media_type="application/json")

    async def answer_with_headers(_request: Request) -> Response:
        return Response(content, headers=headers)

    return Starlette(routes=[Route("/", answer), Route("/headers", answer_with_headers)])


def board_app(url: str) -> FastAPI:
    """The server without its dispatch loop, and an address that changes one submission."""
    app = create_app(
        Settings(
            database_url=url,
            artifacts_dir=Path(url.removeprefix("sqlite:///")).parent / "artifacts",
            rate_limits=False,
        ),
        dispatch=False,
    )
    parts: Parts = app.state.parts
    find_benchmark(parts.benchmarks, BENCHMARK)
    app.state.version_watch.start()
    written = 0

    @app.get(WRITE, status_code=204)
    def write() -> None:
        nonlocal written
        written += 1
        with parts.database.write() as session:
            which = session.scalars(select(Submission.id).limit(1).offset(written)).one()
            tta_seconds = 5.0 + written / 100
            session.execute(
                update(Submission).where(Submission.id == which).values(tta_seconds=tta_seconds)
            )
            raise_board_version(session, BENCHMARK, submission_id=which)

    return app


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        sys.exit(main())
