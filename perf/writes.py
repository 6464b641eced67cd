"""Writes: sign-ons of workers, stored submissions, and judged reports.

* sign-ons: 16 connections sign on at one server process on SQLite;
* submissions: 8 users submit to one server process on SQLite, as `finishline up` has it, one after
  the other. In turns they submit to a bare route, which writes the same files to the disk and
  inserts the same rows. Compared are submissions per CPU second;
* reports: 16 workers report replays of digits to four server processes on PostgreSQL. The server
  checks each against the stored events, judges it, keeps its runs and raises the board's version.
  Then the workers report again while 8 users submit.

`--only` measures one part. On ext4 a new file is ten times as dear where many were deleted in
the minutes before, as tests do: TMPDIR names another file system.
"""

import asyncio
import itertools
import json
import os
import secrets
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import orjson
from sqlalchemy import insert, select
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from finishline.rules.verification.messages import WORKER_PROTOCOL, WorkerHello, WorkerSystem
from perf.harness import Bars, in_turn, median_ratio, percentiles, run
from perf.servers import (
    NO_BROKER,
    Answers,
    Server,
    Submissions,
    cpu_seconds,
    environment_of,
    keep_asking,
    load,
    make_tokens,
    post_request,
    running_database,
    running_server,
)
from server.base.board_versions import raise_board_version
from server.base.database import Database, utc_now
from server.base.models import Attempt, RunRow, Submission, Verification
from server.base.visibility import ORGANISER
from tests.support.build import build_report
from tests.support.streams import stream_report
from tests.support.workers import WORKER_SYSTEM, greet_as_servers, latest_attempt, send_to
from tests.support.world import World

SIGN_ONS_A_SECOND = 100.0
SHARE_OF_BARE_ROUTE = 0.1  # Decision 0038.
REPORTS_A_SECOND = 10.0
CONNECTIONS, USERS, WORKERS, PROCESSES = 16, 8, 16, 4
SYSTEM = WorkerSystem("walter", "cpu-perf", "any", 2, 24.0, None, 0, 1, {"python": "3.11.7"})


def measure(
    bars: Bars, *, only: str = "", seconds: float = 5.0, rounds: int = 3, reports: int = 160
) -> None:
    """Measure sign-ons, submissions and reports, or a part."""
    if only in ("", "sign-ons"):
        hold_sign_ons(bars, seconds=seconds, rounds=rounds)
    if only in ("", "submissions"):
        hold_submissions(bars, seconds=seconds, rounds=rounds)
    if only in ("", "reports"):
        hold_reports(bars, reports)


def hold_sign_ons(bars: Bars, *, seconds: float, rounds: int) -> None:
    """Compare the sign-ons a second with their bar."""
    with running_database("sqlite") as (url, folder):
        token = make_tokens(url, {"will": "worker"})["will"]
        body = orjson.dumps(WorkerHello(SYSTEM, "idle", protocol=WORKER_PROTOCOL))
        hello = post_request("/api/v1/workers/hello", token, body)
        with running_server(environment_of(url, folder)) as server:
            clients = [itertools.repeat(hello)] * CONNECTIONS
            before = cpu_seconds(server)
            found = [load([server], clients, seconds) for _ in range(rounds)]
            used = cpu_seconds(server) - before
    answered = [answers.statuses[200] for answers in found]
    bars.say(f"{1000 * used / sum(answered):.2f} ms of the server's CPU for each sign-on")
    rate = statistics.median(answered) / seconds
    bars.hold("sign-ons, SQLite", rate, "/s", at_least=SIGN_ONS_A_SECOND)


def hold_submissions(bars: Bars, *, seconds: float, rounds: int) -> None:
    """Compare the server with a bare route, by stored submissions."""
    with running_database("sqlite") as (url, folder), ExitStack() as stack:
        tokens = make_tokens(url, {f"user{n}": "submitter" for n in range(USERS)})
        submissions = Submissions()
        clients = [submissions.of(token) for token in tokens.values()]
        environment = environment_of(url, folder)
        server = stack.enter_context(running_server(environment))
        load([server], clients[:1], 0.0)  # The row that the bare route repeats.
        bare_app = ("perf.writes:bare_app", "--factory")
        bare = stack.enter_context(running_server(environment, *bare_app))
        waits: list[float] = []
        refused = 0

        def stored_per_cpu_second(of: Server) -> float:
            nonlocal refused
            before = cpu_seconds(of)
            answers = load([of], clients, seconds)
            refused += answers.other_than(201)
            if of is server:
                waits.extend(answers.seconds)
            return answers.statuses[201] / (cpu_seconds(of) - before)

        cases = {
            "stored": partial(stored_per_cpu_second, server),
            "bare": partial(stored_per_cpu_second, bare),
        }
        found = in_turn(cases, rounds, warm=True)
    bars.say(f"{1e3 / statistics.median(found['stored']):.1f} ms of CPU for each submission")
    bars.say("submissions answered, p50 {:.3f} and p99 {:.3f} s".format(*percentiles(waits)))
    share = median_ratio(found["stored"], found["bare"])
    bars.hold("submissions / bare route", share, at_least=SHARE_OF_BARE_ROUTE)
    bars.hold("submissions refused", refused, at_most=0)


def bare_app() -> Starlette:
    """Return an app whose route stores an upload's files and repeats the first one's rows."""
    database, folder = (
        Database(os.environ["FINISHLINE_DATABASE_URL"]),
        Path(os.environ["FINISHLINE_ARTIFACTS_DIR"]),
    )
    with database.engine.connect() as connection:
        first = dict(connection.execute(select(Submission.__table__)).mappings().first() or {})
        of_it = RunRow.submission_id == first["id"]
        rows = connection.execute(select(RunRow.__table__).where(of_it)).mappings().all()
    runs = [{name: value for name, value in row.items() if name != "id"} for row in rows]
    writers = threading.Lock()

    def store(files: Sequence[UploadFile]) -> None:
        for file in files:
            with (folder / secrets.token_hex(16)).open("wb") as target:
                target.write(file.file.read())
                target.flush()
                os.fsync(target.fileno())
        own = secrets.token_hex(6)
        logs = [{"submission_id": own, "log_sha256": secrets.token_hex(32)} for _ in runs]
        with writers, database.write() as session:
            session.execute(insert(Submission), [first | {"id": own, "idempotency_key": own}])
            session.execute(insert(RunRow), [a | b for a, b in zip(runs, logs, strict=True)])
            raise_board_version(session, first["benchmark_id"], submission_id=own)

    async def submit(request: Request) -> JSONResponse:
        async with request.form() as form:
            files = [part for _, part in form.multi_items() if isinstance(part, UploadFile)]
            await run_in_threadpool(store, files)
        return JSONResponse({}, status_code=201)

    async def healthz(_request: Request) -> JSONResponse:
        return JSONResponse({})

    submissions = Route("/api/v1/submissions", submit, methods=["POST"])
    return Starlette(routes=[submissions, Route("/healthz", healthz)])


def hold_reports(bars: Bars, reports: int) -> None:
    """Compare the reports judged in a second with their bar, alone and during submissions."""
    roles = {f"user{n}": "submitter" for n in range(USERS)}
    roles |= {"walter": "worker", "olivia": "organiser"}
    with running_database("postgresql") as (url, folder), ExitStack() as stack:
        environment = environment_of(url, folder, **NO_BROKER)
        servers = [stack.enter_context(running_server(environment)) for _ in range(PROCESSES)]
        database = Database(url)
        stack.callback(database.close)
        tokens = make_tokens(url, roles)
        client = httpx2.Client(base_url=servers[0].url, trust_env=False, timeout=60)
        world = World(stack.enter_context(client), tokens["olivia"])
        world.secrets |= tokens
        settings, submissions = itertools.count(500), Submissions()
        users = [submissions.of(tokens[f"user{n}"]) for n in range(USERS)]
        for words, beside in (("alone", []), ("beside submissions", users)):
            posts = [leased_report(world, database, next(settings)) for _ in range(reports)]
            began = time.perf_counter()
            judged, sent = asyncio.run(report_beside(servers, posts, beside))
            seconds = time.perf_counter() - began
            p50, p99 = percentiles(judged.seconds)
            bars.say(f"reports {words}: answered, p50 {p50:.2f} and p99 {p99:.2f} s")
            bars.say(f"{sent.statuses[201] / seconds:.1f} submissions a second {words}")
            bar = None if beside else REPORTS_A_SECOND
            bars.hold(f"reports judged, {words}", reports / seconds, "/s", at_least=bar)
            bars.hold(f"reports refused, {words}", judged.other_than(200), at_most=0)


def leased_report(world: World, database: Database, number: int) -> bytes:
    """Submit made-up settings, lease their replay. Returns the request that reports it."""
    chosen = {"batch_size": 32, "momentum": number / 1000}
    submission = world.submit(by=f"user{number % USERS}", division="open", hyperparameters=chosen)
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
    content, fence = json.dumps(asdict(report)).encode(), str(lease["fence"])
    path = f"/api/v1/attempts/{attempt}/report"
    return post_request(path, lease["token"], content, Finishline_Fence=fence)


async def report_beside(
    servers: Sequence[Server], posts: Sequence[bytes], users: Sequence[Iterator[bytes]]
) -> tuple[Answers, Answers]:
    """Send each report over one of the workers' connections, while users submit."""
    judged, sent, left = Answers(), Answers(), iter(posts)
    places = itertools.cycle(servers)
    submitting = [asyncio.create_task(keep_asking(next(places), u, sent)) for u in users]
    await asyncio.gather(*(keep_asking(next(places), left, judged) for _ in range(WORKERS)))
    for task in submitting:
        task.cancel()
    await asyncio.gather(*submitting, return_exceptions=True)
    return judged, sent


if __name__ == "__main__":
    run(measure)
