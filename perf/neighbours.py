"""Is anybody else answered while one reader or submitter asks 64 times at once?

`python -m perf.neighbours [--seconds 15] [--database sqlite|postgresql]` starts a server whose
board has 1,500 rows with 5 runs of 40 evaluations, without rate limits. Over 64 connections one
reader asks for the board at other targets, then one submitter sends dry runs of 236 kB of code,
then of logs. Each asks again as soon as it is answered. Another reader asks for usual pages
meanwhile. Exits with 1 unless all of the other's answers are 200, and 99 % come within a second.
"""

import argparse
import asyncio
import itertools
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

from perf.boards import fill_board, request_for
from perf.harness import Bars, percentiles
from perf.servers import (
    Server,
    ask_over,
    cpu_seconds,
    environment_of,
    make_tokens,
    running_database,
    running_server,
)
from perf.submission_writes import BOUNDARY, QUALITIES, Requests, part
from server.base.database import Database
from tests.support.world import PACKAGE, Worker, World

AT_ONCE, RESULTS, EVALUATIONS = 64, 1500, 40
P99_SECONDS = 1.0
PAUSE_SECONDS = 0.02
PAGES = 8
SETTINGS = {"FINISHLINE_BROKER_URL": "redis://127.0.0.1:1/0"}  # None is there: nothing is trained.
PEOPLE = {"eve": "submitter", "walter": "worker", "olivia": "organiser"}
Make = Callable[[], bytes]


@dataclass
class Answers:
    """The statuses of one client's answers, and the seconds that each took."""

    statuses: Counter[int] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)

    def words(self) -> str:
        """How many of which status."""
        return ", ".join(f"{count} of {status}" for status, count in sorted(self.statuses.items()))


def main() -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each load")
    asked = parser.parse_args()
    bars = Bars("neighbours")
    with (
        tempfile.TemporaryDirectory() as name,
        running_database(asked.database, Path(name)) as url,
    ):
        database = Database(url)
        fill_board(database, RESULTS, evaluations=EVALUATIONS)
        database.close()
        tokens = make_tokens(url, PEOPLE)
        environment = environment_of(url, Path(name), **SETTINGS)
        for what, make in loads(tokens["eve"]).items():
            with running_server(environment) as server:
                sign_on(server, tokens)
                hold_neighbour(bars, server, what, make, seconds=asked.seconds)
    return bars.exit_code


def sign_on(server: Server, tokens: dict[str, str]) -> None:
    """Sign on as a confirmed worker that trains code, without which no code is taken."""
    with httpx2.Client(base_url=server.url, trust_env=False, timeout=60) as client:
        world = World(client, "")
        world.secrets |= tokens
        worker = Worker(world)
        worker.sign_on()
        # An earlier server of this database may have confirmed it.
        world.request("POST", f"/workers/{worker.name}/confirm", by="olivia", json={})


def loads(token: str) -> dict[str, Make]:
    """What one client asks for, by name; each call makes the next request."""
    drawn, logs = random.Random(7), Requests(5, QUALITIES, late=(20, 40, 60, 80))
    code = (code_request(token, number) for number in itertools.count())
    dry_run = (b"/submissions HTTP", b"/submissions?dry_run=true HTTP")
    return {
        "boards of other targets": lambda: request_for(
            f"/benchmarks/digits?target={drawn.uniform(50, 95):.6f}", X_Forwarded_For="10.1.0.1"
        ),
        "dry runs of code": lambda: next(code),
        "dry runs of logs": lambda: logs.make(token).replace(*dry_run, 1),
    }


def code_request(token: str, number: int) -> bytes:
    """A dry run of legal code of 236 kB, which is new each time."""
    lines = "".join(f"x{k} = [{k}, {number}, 'a', (1, 2)]\n" for k in range(4000))
    files = PACKAGE | {"more.py": lines[:118_000].rpartition("\n")[0] + "\n"}
    files["most.py"] = files["more.py"]
    body = b"".join(part("files", name, text.encode()) for name, text in files.items())
    body += f"--{BOUNDARY}--\r\n".encode()
    head = (
        "POST /api/v1/submissions?dry_run=true HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Authorization: Bearer {token}\r\n"
        f"Content-Type: multipart/form-data; boundary={BOUNDARY}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def hold_neighbour(bars: Bars, server: Server, what: str, make: Make, *, seconds: float) -> None:
    """Put one load on the server, and compare the other reader's answers with the bars."""
    pages = usual_pages(server)
    asyncio.run(warm_up(server, [*itertools.islice(pages, PAGES), make()]))
    before, began = cpu_seconds(server.process), time.perf_counter()
    usual, many = asyncio.run(ask_beside(server, make, pages, seconds=seconds))
    used = (cpu_seconds(server.process) - before) / (time.perf_counter() - began)
    bars.say(f"{what}: answered {many.words()}; server {used:.2f} processors")
    bars.say(f"load of the machine {os.getloadavg()[0]:.1f}")
    p50, p99 = percentiles(usual.seconds)
    bars.say(f"beside {what}: {usual.words()}, p50 {p50:.3f} s, most {max(usual.seconds):.3f} s")
    others = usual.statuses.total() - usual.statuses[200]
    bars.hold(f"answers beside {what} that are not 200", others, at_most=0)
    bars.hold(f"answers beside {what}, p99 of {len(usual.seconds)}", p99, " s", at_most=P99_SECONDS)


async def warm_up(server: Server, requests: Sequence[bytes]) -> None:
    """Ask once for each. A process reads templates and makes tables for its first answers."""
    connection = await asyncio.open_connection("127.0.0.1", server.port)
    for request in requests:
        await ask_over(connection, request)
    connection[1].close()


async def ask_beside(
    server: Server, make: Make, pages: Iterator[bytes], *, seconds: float
) -> tuple[Answers, Answers]:
    """One client over many connections, and another over one; the other's answers come first."""
    usual, many = Answers(), Answers()
    until = time.perf_counter() + seconds
    asking = [asyncio.create_task(keep_asking(server, make, many)) for _ in range(AT_ONCE)]
    await asyncio.sleep(1.0)
    other = asyncio.create_task(keep_asking(server, lambda: next(pages), usual, PAUSE_SECONDS))
    await asyncio.sleep(until - time.perf_counter())
    for task in (*asking, other):
        task.cancel()
    for ended in await asyncio.gather(*asking, other, return_exceptions=True):
        if not isinstance(ended, asyncio.CancelledError):
            raise SystemExit(f"a connection ended by itself: {ended!r}")
    return usual, many


async def keep_asking(server: Server, make: Make, answers: Answers, pause: float = 0.0) -> None:
    """Ask over one connection until it is cancelled."""
    connection = await asyncio.open_connection("127.0.0.1", server.port)
    while True:
        began = time.perf_counter()
        try:
            head, _ = await ask_over(connection, make())
        finally:  # A request that was cancelled has waited so long at least.
            answers.seconds.append(time.perf_counter() - began)
        answers.statuses[int(head[9:12])] += 1
        if b"\nconnection: close" in head:
            connection[1].close()
            connection = await asyncio.open_connection("127.0.0.1", server.port)
        await asyncio.sleep(pause)


def usual_pages(server: Server) -> Iterator[bytes]:
    """What people read: boards, a submission, lists, as pages and as documents."""
    address = f"{server.url}/api/v1/leaderboards/digits"
    entry = httpx2.get(address, trust_env=False, timeout=60).json()["entries"][0]
    paths = [
        "/", "/benchmarks/digits", "/api/v1/leaderboards/digits", "/api/v1/submissions?limit=20",
        f"/submissions/{entry['submission_id']}", f"/api/v1/submissions/{entry['submission_id']}",
        "/api/v1/queue", "/benchmarks/digits?division=open",
    ]  # fmt: skip
    return itertools.cycle([request_for(path, X_Forwarded_For="10.2.0.1") for path in paths])


if __name__ == "__main__":
    sys.exit(main())
