"""Reads of boards at speed, against a plain Starlette route, and the first read after a write.

`python perf/board_reads.py [--database sqlite|postgresql] [--results N] [--folder F]` fills a
database with a board of 20,000 submissions (`--results 1000000`: 200 boards of 5,000, which takes
minutes and 4 GB; with `--folder` an SQLite database stays there for the next run). A server and a
plain Starlette application that answers the same bytes are loaded in turns over loopback: the
bar is in requests per CPU second of the server, because neighbours on the machine take none of it.
Then submissions of random boards are changed by another process, and the first read after each
write is timed. Exit code 1 where a bar is missed.
"""

import argparse
import asyncio
import os
import re
import statistics
import sys
import tempfile
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

import httpx2
from sqlalchemy import select, update
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from perf.board_fill import BENCHMARK, fill_boards
from perf.harness import Bars, in_turn, percentiles
from perf.servers import Server, cpu_seconds, environment_of, running_database, running_server
from server.base.board_versions import raise_board_version
from server.base.database import Database
from server.base.models import Submission
from server.base.schema import migrate

API = "/api/v1/leaderboards/"
PAGE = f"/benchmarks/{BENCHMARK}"
ONE_BOARD, MANY_BOARDS = 20_000, 5_000
WANTED_RATIO = 1.2
WANTED_FIRST_READ_MS = {False: 50.0, True: 150.0}  # With one board, with many.
CONTENT = "PERF_BOARD_CONTENT"
LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


def main() -> int:
    """Measure and print; returns the exit code."""
    asked = arguments()
    bars = Bars("board_reads")
    with tempfile.TemporaryDirectory() as own:
        folder = asked.folder or Path(own)
        folder.mkdir(parents=True, exist_ok=True)
        url = f"sqlite:///{folder / 'finishline.db'}"
        is_kept = asked.folder is not None and asked.database == "sqlite"
        with nullcontext(url) if is_kept else running_database(asked.database, folder) as url:
            measure(asked, bars, url, folder)
    return bars.exit_code


def arguments() -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--results", type=int, default=ONE_BOARD)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--writes", type=int, default=100)
    return parser.parse_args()


def measure(asked: argparse.Namespace, bars: Bars, url: str, folder: Path) -> None:
    """Fill a database and measure all figures of it."""
    database = Database(url)
    migrate(database)
    is_many = asked.results > ONE_BOARD
    boards, each = (asked.results // MANY_BOARDS, MANY_BOARDS) if is_many else (1, asked.results)
    names = fill_boards(url, folder / "benchmarks", boards=boards, each=each)
    bars.say(f"{asked.database}, {boards} boards of {each:,} results")
    environment = environment_of(url, folder, FINISHLINE_BENCHMARKS_DIR=str(folder / "benchmarks"))
    protocol = ("--http", "server.operations.heads:BoundedHttpProtocol")
    with running_server(environment, "server.app:app", *protocol) as server:
        board = httpx2.get(server.url + API + BENCHMARK, trust_env=False)
        (folder / "board.json").write_bytes(board.content)
        plain = os.environ | {CONTENT: str(folder / "board.json")}
        with running_server(plain, "perf.board_reads:plain_app", "--factory") as other:
            measure_ratios(asked, bars, server, other, board.headers["etag"])
        seconds = asyncio.run(first_reads(asked, server, database, names))
        p50, p99 = percentiles([each * 1e3 for each in seconds])
        bars.say(f"first read after a write, p50 {p50:.1f} ms")
        bars.hold("first read, p99", p99, " ms", at_most=WANTED_FIRST_READ_MS[is_many])
        mib = server.process.memory_info().rss / 1024**2
        bars.say(f"memory of the server {mib:.0f} MiB")
    database.close()


def measure_ratios(
    asked: argparse.Namespace, bars: Bars, server: Server, plain: Server, etag: str
) -> None:
    """Each kind of read in turns, by requests per CPU second of the plain route's."""
    board = API + BENCHMARK
    loads = {
        "plain": partial(rate_of, asked, plain, request_for("/"), b"200"),
        "JSON": partial(rate_of, asked, server, request_for(board), b"200"),
        "JSON 304": partial(rate_of, asked, server, request_for(board, If_None_Match=etag), b"304"),
        "page": partial(rate_of, asked, server, request_for(PAGE, Accept_Encoding="gzip"), b"200"),
    }
    rates = in_turn(loads, asked.rounds, warm=True)
    for name in ("JSON", "JSON 304", "page"):
        ratio = statistics.median(a / b for a, b in zip(rates[name], rates["plain"], strict=True))
        bars.hold(f"{name} / plain route", ratio, at_least=WANTED_RATIO)


def rate_of(asked: argparse.Namespace, server: Server, request: bytes, status: bytes) -> float:
    """Requests per CPU second of a server under load."""
    before, load = cpu_seconds(server.process), Load(request, status)
    load.until = time.perf_counter() + asked.seconds
    asyncio.run(put_load(server.port, load, connections=asked.connections))
    return len(load.seconds) / (cpu_seconds(server.process) - before)


async def first_reads(
    asked: argparse.Namespace, server: Server, database: Database, names: list[str]
) -> list[float]:
    """Seconds of the first read after each of many writes by this process."""
    random = Random(7)
    seconds: list[float] = []
    for number in range(asked.writes + 1):
        name = random.choice(names)
        change(database, name, number)
        load = Load(request_for(API + name), b"200")
        await put_load(server.port, load, connections=1)
        seconds += load.seconds
    return seconds[1:]  # The first read of a process fills caches that all others share.


def change(database: Database, name: str, number: int) -> None:
    """Give a submission of a board another time."""
    of_board = select(Submission.id).where(Submission.benchmark_id == name)
    with database.write() as session:
        which = session.scalars(of_board.limit(1).offset(number)).one()
        changed = update(Submission).where(Submission.id == which)
        session.execute(changed.values(tta_seconds=5.0 + number / 100))
        raise_board_version(session, name, submission_id=which)


@dataclass
class Load:
    """A request that is sent again as soon as it is answered, and the seconds of each answer."""

    request: bytes
    status: bytes
    until: float = 0.0
    seconds: list[float] = field(default_factory=list)


class Connection(asyncio.Protocol):
    """Sends a request, counts the answer's bytes, sends the next."""

    def __init__(self, load: Load, ended: asyncio.Future[None]) -> None:
        self._load = load
        self._ended = ended
        self._received = bytearray()
        self._wanted = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ask()

    def _ask(self) -> None:
        self._sent_at = time.perf_counter()
        self._transport.write(self._load.request)

    def data_received(self, data: bytes) -> None:
        """Count until the answer is whole."""
        self._received += data
        if self._wanted < 0:
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self._received[:end])
            assert head.startswith(b"HTTP/1.1 " + self._load.status), head
            length = None if self._load.status == b"304" else LENGTH.search(head)
            self._wanted = end + 4 + (int(length[1]) if length else 0)
        if len(self._received) < self._wanted:
            return
        now = time.perf_counter()
        self._load.seconds.append(now - self._sent_at)
        self._received.clear()
        self._wanted = -1
        if now < self._load.until:
            self._ask()
        else:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._ended.set_result(None)


async def put_load(port: int, load: Load, *, connections: int) -> None:
    """Ask over so many connections until the load ends, each once at least."""
    loop = asyncio.get_running_loop()
    ended = [loop.create_future() for _ in range(connections)]
    for one in ended:
        await loop.create_connection(partial(Connection, load, one), "127.0.0.1", port)
    await asyncio.gather(*ended)


def request_for(path: str, **headers: str) -> bytes:
    """A GET as bytes."""
    lines = [f"GET {path} HTTP/1.1", "Host: 127.0.0.1"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def plain_app() -> Starlette:
    """One route that answers the same bytes for ever."""
    content = Path(os.environ[CONTENT]).read_bytes()

    async def answer(_request: Request) -> Response:
        return Response(content, media_type="application/json")

    return Starlette(routes=[Route("/", answer), Route("/healthz", answer)])


if __name__ == "__main__":
    sys.exit(main())
