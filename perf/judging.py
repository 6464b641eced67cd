"""Reports judged a second on PostgreSQL: `python -m perf.judging [--processes 4] [--reports 160]`.

Each report ends a replay of digits with settings of its own. The server checks it against the
stored events, judges it, keeps its runs and raises the board's version. 16 workers report over so
many server processes. Then they report again while 8 users submit.
"""

import argparse
import asyncio
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2

from finishline.rules.verification.messages import WORKER_PROTOCOL
from perf.harness import Bars, percentiles
from perf.servers import (
    Server,
    ask_over,
    environment_of,
    make_tokens,
    running_database,
    running_server,
)
from perf.submission_writes import QUALITIES, Requests
from server.base.database import Database, utc_now
from server.base.models import Attempt, Verification
from server.base.viewer import ORGANISER
from tests.support.build import build_report
from tests.support.streams import stream_report
from tests.support.workers import WORKER_SYSTEM, greet_as_servers, latest_attempt, send_to
from tests.support.world import World

WORKERS = 16
USERS = 8
SETTINGS = {"FINISHLINE_BROKER_URL": "redis://127.0.0.1:1/0"}  # No broker: nothing is sent.


def main() -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--reports", type=int, default=160, help="of each round")
    asked = parser.parse_args()
    bars = Bars("judging")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = stack.enter_context(running_database("postgresql", folder))
        environment = environment_of(url, folder, **SETTINGS)
        servers = [stack.enter_context(running_server(environment)) for _ in range(asked.processes)]
        database = Database(url)
        stack.callback(database.close)
        measure(bars, servers, database, url, reports=asked.reports)
    return bars.exit_code


def measure(
    bars: Bars, servers: list[Server], database: Database, url: str, *, reports: int
) -> None:
    """Print reports judged a second, alone and beside submissions."""
    roles = {f"user{n}": "submitter" for n in range(USERS)}
    roles |= {"walter": "worker", "olivia": "organiser"}
    tokens = make_tokens(url, roles)
    requests = Requests(5, QUALITIES, late=(20, 40, 60, 80))
    senders = [tokens[f"user{n}"] for n in range(USERS)]
    with httpx2.Client(base_url=servers[0].url, trust_env=False, timeout=60) as client:
        world = World(client, tokens["olivia"])
        world.secrets |= tokens
        settings = itertools.count(500)
        for beside in (False, True):
            posts = list(prepare(world, database, settings, reports=reports))
            began = time.perf_counter()
            waits, sent = asyncio.run(
                report_all(servers, posts, senders if beside else [], requests)
            )
            rate = reports / (time.perf_counter() - began)
            p50, p99 = (1e3 * each for each in percentiles(waits))
            words = "beside submissions" if beside else "alone"
            bars.hold(f"reports judged, {words}", rate, "/s")
            bars.hold(f"answered, {words}, p50", p50, " ms")
            bars.hold(f"answered, {words}, p99", p99, " ms")
            if beside:
                bars.hold("submissions beside", sent * rate / reports, "/s")


def prepare(
    world: World, database: Database, settings: Iterator[int], *, reports: int
) -> Iterator[bytes]:
    """Submit, verify and lease so many replays; the requests that report them."""
    for number in range(reports):
        by = f"user{number % USERS}"
        chosen = {"batch_size": 32, "momentum": next(settings) / 1000}
        submission = world.submit(by=by, division="open", hyperparameters=chosen)
        verification = world.verify(submission)
        worker = f"walter-{number % WORKERS}"
        greet_as_servers(database, worker)
        attempt = latest_attempt(database, verification)
        send_to(database, attempt, worker)
        body = {"worker": worker, "protocol": WORKER_PROTOCOL}
        lease: dict[str, Any] = world.post(f"/attempts/{attempt}/claim", body, by="walter")
        with database.write() as session:  # Preparing all takes longer than a lease.
            leased = session.get_one(Attempt, attempt)
            leased.lease_expires_at = utc_now() + timedelta(hours=1)
        with database.read(ORGANISER) as session:
            seeds = list(session.get_one(Verification, verification).seeds)
        report = build_report(seeds, system=replace(WORKER_SYSTEM, worker=worker))
        stream_report(database, attempt, report, fence=lease["fence"])
        content = json.dumps(asdict(report)).encode()
        head = (
            f"POST /api/v1/attempts/{attempt}/report HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Authorization: Bearer {lease['token']}\r\nFinishline-Fence: {lease['fence']}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        yield head.encode() + content


async def report_all(
    servers: list[Server], posts: list[bytes], senders: list[str], requests: Requests
) -> tuple[list[float], int]:
    """Send each report over one of the workers' connections; the waits, and submissions taken."""
    waits: list[float] = []
    left = iter(posts)

    async def worker(server: Server) -> None:
        connection = await asyncio.open_connection("127.0.0.1", server.port)
        for post in left:
            began = time.perf_counter()
            head, body = await ask_over(connection, post)
            if not head.startswith(b"http/1.1 200"):
                raise SystemExit(f"a report was refused: {body.decode()[:500]}")
            waits.append(time.perf_counter() - began)
        connection[1].close()

    async def user(server: Server, token: str) -> None:
        connection = await asyncio.open_connection("127.0.0.1", server.port)
        while True:
            head, _ = await ask_over(connection, requests.make(token))
            sent.append(head.startswith(b"http/1.1 201"))

    sent: list[bool] = []
    users = [asyncio.create_task(user(servers[n % len(servers)], t)) for n, t in enumerate(senders)]
    await asyncio.gather(*(worker(servers[n % len(servers)]) for n in range(WORKERS)))
    for each in users:
        each.cancel()
    return waits, sum(sent)


if __name__ == "__main__":
    sys.exit(main())
