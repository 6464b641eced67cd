"""Reads of boards at speed, against a plain Starlette route, and the first read after a write.

One server has a board of 5,000 results. A plain Starlette application answers the same bytes. Both
are loaded in turns over loopback. The bar is in requests per CPU second of the server, which other
programs on the machine don't change. Then another process changes submissions, and the first read
after each write is timed.
"""

import itertools
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import httpx2
from sqlalchemy import insert, select, update
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from finishline.rules.benchmarks.benchmark import Benchmark, load_benchmarks
from perf.harness import Bars, in_turn, median_ratio, percentiles, run
from perf.servers import (
    Server,
    cpu_seconds,
    environment_of,
    get_request,
    load,
    running_database,
    running_server,
)
from server.base.board_versions import raise_board_version
from server.base.database import Database, utc_now
from server.base.models import RunRow, Submission, User
from server.base.settings import Settings
from server.benchmarks.definitions import put_in_force

API, BENCHMARK, RUNS = "/api/v1/leaderboards/", "digits", 5
WANTED_RATIO = 0.4
WANTED_FIRST_READ_MS = 100.0
CONTENT = "PERF_BOARD_CONTENT"
NO_LOGS = ("0" * 64,)
ROWS_AT_ONCE = 2000


def measure(
    bars: Bars,
    *,
    database: str = "sqlite",
    results: int = 5_000,
    rounds: int = 5,
    seconds: float = 2.0,
    connections: int = 32,
    writes: int = 100,
) -> None:
    """Fill a database and measure all figures of it."""
    with running_database(database) as (url, folder):
        filled = Database(url)
        fill_board(filled, results)
        bars.say(f"{database}, {results:,} results")
        protocol = ("--http", "server.operations.limits:BoundedHttpProtocol")
        with running_server(environment_of(url, folder), "server.app:app", *protocol) as server:
            board = httpx2.get(server.url + API + BENCHMARK, trust_env=False, timeout=60)
            (folder / "board.json").write_bytes(board.content)
            plain = os.environ | {CONTENT: str(folder / "board.json")}
            with running_server(plain, "perf.boards:plain_app", "--factory") as other:

                def rate_of(of: Server, request: bytes) -> float:
                    before = cpu_seconds(of)
                    answers = load([of], [itertools.repeat(request)] * connections, seconds)
                    assert not answers.other_than(200, 304), answers.statuses
                    return len(answers.seconds) / (cpu_seconds(of) - before)

                hold_ratios(bars, server, other, rate_of, board.headers["etag"], rounds)
            p50, p99 = percentiles([1e3 * each for each in first_reads(writes, server, filled)])
            bars.say(f"first read after a write, p50 {p50:.1f} ms")
            bars.hold("first read after a write, p99", p99, " ms", at_most=WANTED_FIRST_READ_MS)
            bars.say(f"memory of the server {server.process.memory_info().rss / 2**20:.0f} MiB")
        filled.close()


def hold_ratios(
    bars: Bars,
    server: Server,
    plain: Server,
    rate_of: Callable[[Server, bytes], float],
    etag: str,
    rounds: int,
) -> None:
    """Load each kind of read in turns. Compare requests per CPU second with the plain route's."""
    board, page = API + BENCHMARK, f"/benchmarks/{BENCHMARK}"
    kinds = {
        "JSON": get_request(board),
        "JSON 304": get_request(board, If_None_Match=etag),
        "page": get_request(page, Accept_Encoding="gzip"),
    }
    load([server], [list(kinds.values())])  # The first answer of each kind fills a cache.
    cases = {name: partial(rate_of, server, request) for name, request in kinds.items()}
    cases["plain"] = partial(rate_of, plain, get_request("/"))
    rates = in_turn(cases, rounds, warm=True)
    for name in kinds:
        ratio = median_ratio(rates[name], rates["plain"])
        bars.hold(f"{name} / plain route", ratio, at_least=WANTED_RATIO)


def first_reads(writes: int, server: Server, database: Database) -> list[float]:
    """Return seconds of the first read after each of many writes by this process."""
    seconds: list[float] = []
    for number in range(writes + 1):
        with database.write() as session:
            which = session.scalars(select(Submission.id).limit(1).offset(number)).one()
            changed = update(Submission).where(Submission.id == which)
            session.execute(changed.values(tta_seconds=5.0 + number / 100))
            raise_board_version(session, BENCHMARK, submission_id=which)
        seconds += load([server], [[get_request(API + BENCHMARK)]]).seconds
    return seconds[1:]  # The first read of a process fills caches that all others share.


def plain_app() -> Starlette:
    """Return an app with one route that repeats the same bytes."""
    content = Path(os.environ[CONTENT]).read_bytes()

    async def answer(_request: Request) -> Response:
        return Response(content, media_type="application/json")

    return Starlette(routes=[Route("/", answer), Route("/healthz", answer)])


def fill_board(
    database: Database, count: int, *, evaluations: int = 8, logs: Sequence[str] = NO_LOGS
) -> None:
    """Fill a migrated database with a board after scoring. Runs share the logs of these hashes."""
    random, folder = Random(7), Settings().benchmarks_dir
    benchmark = load_benchmarks(folder)[BENCHMARK]
    with database.write() as session:
        put_in_force(session, benchmark, (folder / f"{BENCHMARK}.toml").read_bytes())
        user = User(name="perf", created_at=utc_now())
        session.add(user)
        session.flush()
        for start in range(0, count, ROWS_AT_ONCE):
            numbers = range(start, min(start + ROWS_AT_ONCE, count))
            rows = [submission_row(number, benchmark, user.id, random) for number in numbers]
            runs = [run for row in rows for run in run_rows(row, random, evaluations)]
            for at, row in enumerate(rows):
                row["claim_sha256"] = logs[at % len(logs)]
            for at, each in enumerate(runs):
                each["log_sha256"] = logs[at % len(logs)]
            session.execute(insert(Submission), rows)
            session.execute(insert(RunRow), runs)
        raise_board_version(session, BENCHMARK)
    if not database.is_sqlite:
        with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as c:
            c.exec_driver_sql("VACUUM ANALYZE")  # PostgreSQL does it by itself after a while.


def submission_row(
    number: int, benchmark: Benchmark, user_id: int, random: Random
) -> dict[str, Any]:
    """Make a row as a server has it after scoring."""
    tta = random.lognormvariate(4.0, 0.8)
    gpus = random.choice((1, 2, 4, 8, 64))
    accelerator = random.choice(("H100-SXM5-80GB", "H200-SXM-141GB", "B200", "MI355X"))
    step = {
        "name": "time to accuracy of run_0.log",
        "formula": "seconds at the first evaluation with top1Accuracy >= 97.5",
        "numbers": {"evaluation": 8, "quality": 98.1636}, "value": tta, "unit": "s",
    }  # fmt: skip
    result = {
        "reached": RUNS, "started": RUNS, "cv_percent": 5.0 + random.random(), "tta_seconds": tta,
        "raw_tta_seconds": tta, "tta_display": "0:01:00", "tta_low_seconds": tta * 0.96,
        "tta_high_seconds": tta * 1.04, "epochs_to_target": 7.5, "best_quality": 98.1,
        "evaluation_interval_seconds": tta / 8, "cost_usd": None, "clock": "mlperf", "rcp": None,
        "violations": [], "steps": [step] * (RUNS + 4),
    }  # fmt: skip
    system = {
        "processor": "a processor", "processor_count": 64, "memory_gib": 512.0,
        "accelerator": accelerator, "accelerator_count": gpus, "name": f"{gpus} x {accelerator}",
        "hardware_class": f"{gpus}-{accelerator.lower()}", "price_usd_per_hour": 2.5 * gpus,
        "price_source": "a price list", "pricing": "on_demand", "cloud": None,
        "availability": None,
    }  # fmt: skip
    return {
        "id": f"perf-{number:07}", "user_id": user_id, "benchmark_id": benchmark.benchmark_id,
        "benchmark_sha256": benchmark.sha256, "division": random.choice(("closed", "open")),
        "model": f"{random.choice(('resnet', 'vit', 'mlp'))}_{number}",
        "framework": random.choice(("torch 2.13.0", "jax 0.9", "tinygrad 0.12")),
        "system": system, "hyperparameters": {"batch_size": 64},
        "status": random.choice(("claimed", "verified", "verified", "rejected")),
        "eligible": True, "tta_seconds": tta, "cost_usd": tta / 3600 * 2.5 * gpus,
        "result": result, "request_sha256": f"{number:064}", "submitted_at": utc_now(),
        "kind": "train",
    }  # fmt: skip


def run_rows(row: dict[str, Any], random: Random, evaluations: int) -> list[dict[str, Any]]:
    """Make the runs of a submission, with a curve that ends at 96 %."""
    rise = 96 / evaluations
    curve = [[float(j), j * 1.0, rise * j, 1152 * j] for j in range(1, evaluations + 1)]
    return [
        {
            "submission_id": row["id"], "index": index, "file": f"run_{index}.log",
            "log_bytes": 1000, "reached": True, "curve": curve,
            "tta_seconds": row["tta_seconds"] * random.lognormvariate(0.0, 0.05),
        }
        for index in range(RUNS)
    ]  # fmt: skip


if __name__ == "__main__":
    run(measure)
