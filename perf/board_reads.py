"""Reading leaderboards at speed, against a plain Starlette route that answers the same bytes.

`python perf/board_reads.py [--database sqlite|postgresql] [--results N] [--rounds N] [--seconds S]
[--connections N] [--folder F [--keep]]` fills a database with a board of 5,000 submissions
(`--results 1000000`: 200 such boards, which takes minutes and several GB; `--keep` leaves it in the
folder for the next measurement of as many results), starts a server process on it and one with a
plain Starlette application, and loads them in turns over loopback. What counts is requests per CPU
second of the server process, because neighbours on the machine take none of it; printed are medians
over the rounds and their ratio to the plain route. Then submissions of random boards are changed
and the first read after each write is timed, alone and while others read. With several boards, a
fresh process is timed on every kind of page, and its memory read after all boards were.

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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import psutil
import uvicorn
from fastapi import FastAPI
from sqlalchemy import select, update
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from perf.board_fill import PER_BOARD, Filled, filled, settings_of
from perf.board_load import Load, put_load, request_for
from perf.board_pages import BENCHMARK
from server.app import create_app
from server.board_versions import raise_board_version
from server.dependencies import Parts
from server.models import Submission

API = "/api/v1/leaderboards/"
BOARD = API + BENCHMARK
PAGE = f"/benchmarks/{BENCHMARK}"
WRITE = "/perf/write"
PAGES = (
    *("/healthz", "/readyz", "/metrics", BOARD, f"{BOARD}?metric=cost", f"{BOARD}?sort=model"),
    *(f"{BOARD}?page=20", f"{BOARD}.csv", PAGE, f"{PAGE}?q=resnet", "/", "/feed.atom"),
    *("/api/v1/benchmarks", f"/api/v1/benchmarks/{BENCHMARK}", "/api/v1/submissions"),
    *(f"/api/v1/submissions?benchmark={BENCHMARK}", f"/api/v1/benchmarks/{BENCHMARK}/records"),
    *(f"{PAGE}/feed.atom", f"{PAGE}/charts/pareto", "/submissions/perf-0000007"),
    *("/api/v1/submissions/perf-0000007", "/api/v1/verifications"),
    *("/api/v1/workers", "/workers", "/prices", "/api/v1/prices", "/openapi.json"),
)
PAGED = 40
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
    began = time.monotonic()
    with (
        folder_of(asked) as folder,
        filled(asked.database, folder, results=asked.results, keep=asked.keep) as boards,
    ):
        print(
            f"board reads on {asked.database}: {asked.results:,} results on {len(boards.boards)} "
            f"boards, filled in {time.monotonic() - began:.0f} s"
        )
        return measure(asked, boards)


@contextmanager
def folder_of(asked: argparse.Namespace) -> Iterator[Path]:
    """Where the database is filled: a folder for this run, or one that stays."""
    if asked.keep:
        folder = asked.folder / f"{asked.database}-{asked.results}"
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        yield Path(name)


def measure(asked: argparse.Namespace, boards: Filled) -> int:
    """All figures of a filled database; returns the exit code."""
    folder = boards.folder
    with server("finishline", boards.url, folder, asked.port) as process:
        if len(boards.boards) > 1:
            measure_pages(asked.port, process, boards.boards)
        content, headers = read_board(asked)
        (folder / "board.json").write_bytes(content)
        (folder / "headers.json").write_text(json.dumps(headers))
        with server("plain", "board.json", folder, asked.port + 1) as plain:
            print(f"  {len(content):,} bytes, {asked.connections} connections")
            ratio = measure_cases(asked, process, plain, headers["etag"])
    with server("finishline", boards.url, folder, asked.port) as process:
        seconds = [measure_first_reads(asked, process, boards, others=n) for n in (0, 8)]
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
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--keep", action="store_true", help="the filled database, in --folder")
    parser.add_argument("--port", type=int, default=18112)
    asked = parser.parse_args()
    if asked.keep and asked.folder is None:
        parser.error("--keep needs --folder: where the database stays")
    return asked


def measure_cases(
    asked: argparse.Namespace, process: psutil.Process, plain: psutil.Process, etag: str
) -> float:
    """Each kind of read in turns; returns the ratio of the fast path's answers 200."""
    board = board_path(asked)
    for path in (board, PAGE):  # Many at once at a cold page would be turned away.
        timed_read(asked.port, path, process)
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
    asked: argparse.Namespace, process: psutil.Process, boards: Filled, *, others: int
) -> float:
    """The first read after each of many writes, beside so many other readers; returns its p99."""
    read_board(asked)
    before = cpu_seconds(process)
    seconds = asyncio.run(_first_reads(asked, boards, others))
    cpu = (cpu_seconds(process) - before) / len(seconds)
    p50, p99 = percentiles(seconds)
    print(
        f"  first read after a write, {others} others reading: "
        f"p50 {p50 * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms, {len(seconds)} writes, "
        f"{cpu * 1e3:.1f} ms CPU of the server for each write and all reads beside it"
    )
    return p99


async def _first_reads(asked: argparse.Namespace, boards: Filled, others: int) -> list[float]:
    random = Random(7)
    beside = Load(request_for(BOARD), b"200")
    task = None
    if others:
        reading = put_load(asked.port, beside, connections=others, seconds=1e6)
        task = asyncio.create_task(reading)
    seconds = []
    for _ in range(asked.writes):
        board = random.choice(boards.boards)
        for path, status in ((f"{WRITE}?board={board}", b"204"), (API + board, b"200")):
            load = Load(request_for(path), status)
            await put_load(asked.port, load, connections=1, seconds=0.0)
            assert not load.faults, load.faults
        seconds += load.seconds
    if task is not None:
        beside.until = 0.0
        await task
    return seconds


def measure_pages(port: int, process: psutil.Process, boards: Sequence[str]) -> None:
    """Every kind of page of a fresh process, and its memory once it has shown all boards."""
    print(f"  memory of a fresh process {mib_of(process):.0f} MiB")
    for path in PAGES:
        (first, first_cpu), (again, cpu) = (timed_read(port, path, process) for _ in range(2))
        print(
            f"  {path:45} first {first * 1e3:8.1f} ms ({first_cpu * 1e3:6.0f} CPU), "
            f"again {again * 1e3:7.1f} ms ({cpu * 1e3:4.0f} CPU)"
        )
    for words, before, which in (("JSON", API, boards), ("page", "/benchmarks/", boards[:PAGED])):
        reads = [timed_read(port, before + board, process) for board in which]
        p50, p99 = percentiles([seconds for seconds, _ in reads])
        cpu = statistics.median(cpu for _, cpu in reads)
        print(
            f"  first {words} of {len(which)} boards p50 {p50 * 1e3:.1f} ms ({cpu * 1e3:.0f} CPU), "
            f"p99 {p99 * 1e3:.1f} ms; memory then {mib_of(process):.0f} MiB"
        )


def timed_read(port: int, path: str, process: psutil.Process) -> tuple[float, float]:
    """Seconds until an answer is here, and those that the server's processor had to do with it."""
    began, before = time.perf_counter(), cpu_seconds(process)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=300) as answer:
        answer.read()
    return time.perf_counter() - began, cpu_seconds(process) - before


def mib_of(process: psutil.Process) -> float:
    """Resident memory."""
    return float(process.memory_info().rss) / 1024**2


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


@contextmanager
def server(kind: str, what: str, folder: Path, port: int) -> Iterator[psutil.Process]:
    """A server process, once it answers."""
    command = [sys.executable, "-m", "perf.board_reads", "--serve", kind, what, str(folder)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([*command, str(port)], **quiet)
    try:
        path = "/" if kind == "plain" else "/healthz"
        wait_for(f"http://127.0.0.1:{port}{path}", process)
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(timeout=20)


def wait_for(address: str, process: "subprocess.Popen[bytes]") -> None:
    """Until it answers, for at most two minutes."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(address, timeout=5).close()  # noqa: S310
            return
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"{address} does not answer")


def serve(kind: str, what: str, folder: Path, port: int) -> None:
    """Be one of the servers."""
    app: Any = plain_app(folder / what) if kind == "plain" else board_app(what, folder)
    gc.collect()
    gc.freeze()
    # Each as it is served: ours by its own protocol, as the documents start it.
    protocol = "auto" if kind == "plain" else "server.operations.heads:BoundedHttpProtocol"
    quiet: Any = {"access_log": False, "log_level": "error"}
    uvicorn.run(app, host="127.0.0.1", port=port, http=protocol, **quiet)


def plain_app(path: Path) -> Starlette:
    """One route that answers the same bytes for ever, and one that adds the board's headers."""
    content = path.read_bytes()
    headers = json.loads(path.with_name("headers.json").read_text())

    async def answer(_request: Request) -> Response:
        return Response(content, media_type="application/json")

    async def answer_with_headers(_request: Request) -> Response:
        return Response(content, headers=headers)

    return Starlette(routes=[Route("/", answer), Route("/headers", answer_with_headers)])


def board_app(url: str, folder: Path) -> FastAPI:
    """The server without its dispatch loop, and an address that changes a submission of a board."""
    app = create_app(settings_of(url, folder), dispatch=False)
    parts: Parts = app.state.parts
    app.state.version_watch.start()
    written = 0

    @app.get(WRITE, status_code=204)
    def write(board: str) -> None:
        nonlocal written
        written += 1
        of_board = select(Submission.id).where(Submission.benchmark_id == board)
        with parts.database.write() as session:
            which = session.scalars(of_board.limit(1).offset(written)).one()
            tta_seconds = 5.0 + written / 100
            session.execute(
                update(Submission).where(Submission.id == which).values(tta_seconds=tta_seconds)
            )
            raise_board_version(session, board, submission_id=which)

    return app


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], sys.argv[3], Path(sys.argv[4]), int(sys.argv[5]))
    else:
        sys.exit(main())
