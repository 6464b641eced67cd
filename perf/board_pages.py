"""What the page of a large leaderboard costs: the first read, repeated reads, its size.

`python perf/board_pages.py [SUBMISSIONS]` fills an empty SQLite database with that many submissions
(5,000 by default) of five runs each and reads their board through the application, without a
network. Every figure is CPU or wall seconds of this process. Exit code 1 where the page renders
slower or is larger than wanted.
"""

import gc
import gzip
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from fastapi.testclient import TestClient
from sqlalchemy import insert

from finishline.rules.benchmarks.benchmark import Benchmark
from server.app import create_app
from server.benchmarks.queries import find_benchmark, keep_definition
from server.board_versions import raise_board_version
from server.boards.schemas import BoardQuery
from server.database import Database, utc_now
from server.dependencies import Parts
from server.models import RunRow, Submission, User
from server.pages.board_context import board_context
from server.schema import migrate
from server.settings import Settings
from web.render import render

SUBMISSIONS = 5000
RUNS = 5
BENCHMARK = "digits"
PAGE = f"/benchmarks/{BENCHMARK}"
API = f"/api/v1/leaderboards/{BENCHMARK}"
WANTED_RENDER_SECONDS = 0.015
WANTED_GZIP_BYTES = 60_000
RENDERS = 50


def main() -> int:
    """Measure and print; returns the exit code."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else SUBMISSIONS
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/board.db"
        database = Database(url)
        migrate(database)
        database.close()
        settings = Settings(
            database_url=url, artifacts_dir=Path(folder) / "artifacts", rate_limits=False
        )
        with TestClient(create_app(settings, dispatch=False)) as client:
            parts: Parts = client.app.state.parts  # type: ignore[attr-defined]
            fill(parts, count)
            # As server.app does before it serves.
            gc.collect()
            gc.freeze()
            print(f"board pages: {count} submissions of {RUNS} runs")
            measure_reads(client, parts)
            return int(not measure_page(client, parts))


def measure_reads(client: TestClient, parts: Parts) -> None:
    """The first read of a version, and what is asked of it afterwards."""
    wall, cpu, _ = timed_read(client, PAGE)
    print(f"  {'the first of the process':30} {wall * 1e3:8.1f} ms wall {cpu * 1e3:8.1f} ms CPU")
    with parts.database.write() as session:
        raise_board_version(session, BENCHMARK)
    reads = {
        "first read after a change": PAGE,
        "the same page again": PAGE,
        "sorted by cost": f"{PAGE}?sort=cost",
        "of one word": f"{PAGE}?q=resnet",
        "page 20": f"{PAGE}?page=20",
        "as JSON": API,
        "as CSV": f"{API}.csv",
        "records": f"/api/v1/benchmarks/{BENCHMARK}/records",
        "home": "/",
        "home again": "/",
    }
    for words, address in reads.items():
        wall, cpu, size = timed_read(client, address)
        print(f"  {words:30} {wall * 1e3:8.1f} ms wall {cpu * 1e3:8.1f} ms CPU {size:9,} bytes")
    known = {"If-None-Match": client.get(PAGE).headers.get("etag", "none")}
    wall, cpu, _ = timed_read(client, PAGE, known)
    print(f"  {'a page that is known':30} {wall * 1e3:8.1f} ms wall {cpu * 1e3:8.1f} ms CPU")


def timed_read(
    client: TestClient, address: str, headers: dict[str, str] | None = None
) -> tuple[float, float, int]:
    """Wall seconds, CPU seconds and bytes of one answer."""
    wall, cpu = time.perf_counter(), time.process_time()
    answer = client.get(address, headers=headers)
    cost = time.perf_counter() - wall, time.process_time() - cpu
    assert answer.status_code in (200, 304, 404, 422), answer.text
    return *cost, len(answer.content)


def measure_page(client: TestClient, parts: Parts) -> bool:
    """The rendering and the size of a page of 100 rows; whether both are as wanted."""
    benchmark = find_benchmark(parts.benchmarks, BENCHMARK)
    with parts.database.read() as session:
        context = board_context(session, benchmark, BoardQuery())
    rendering = median_seconds(lambda: render("benchmark.html", **context))
    page = client.get(PAGE).text
    parts_of_page = {PAGE: page} | {path: client.get(path).text for path in assets_of(page)}
    sizes = {name: len(gzip.compress(text.encode(), 6)) for name, text in parts_of_page.items()}
    rows = page.count("<tr") - 1
    print(f"  rendering {rows} rows: median of {RENDERS} {rendering * 1e3:.1f} ms CPU")
    for name, size in sizes.items():
        print(f"  {name:60} {size:7,} bytes compressed")
    print(f"  in all {sum(sizes.values()):,} bytes compressed, without the chart bundle")
    return rendering < WANTED_RENDER_SECONDS and sum(sizes.values()) < WANTED_GZIP_BYTES


def assets_of(page: str) -> list[str]:
    """The styles and scripts that a page loads at once."""
    return re.findall(r'(?:href|src)="(/static/[^"]+\.(?:css|js))"', page)


def median_seconds(call: Callable[[], object]) -> float:
    """The median CPU seconds of many calls: neighbours on the machine take none of them."""
    seconds = []
    for _ in range(RENDERS):
        start = time.process_time()
        call()
        seconds.append(time.process_time() - start)
    return statistics.median(seconds)


def fill(parts: Parts, count: int) -> None:
    """Store so many submissions as they would be after scoring."""
    random = Random(7)
    benchmark = find_benchmark(parts.benchmarks, BENCHMARK)
    with parts.database.write() as session:
        keep_definition(session, benchmark, parts.settings.benchmarks_dir)
        user = User(name="perf", created_at=utc_now())
        session.add(user)
        session.flush()
        rows = [submission_row(number, benchmark, user.id, random) for number in range(count)]
        session.execute(insert(Submission), rows)
        session.execute(insert(RunRow), [run for row in rows for run in run_rows(row, random)])
        raise_board_version(session, BENCHMARK)


def submission_row(
    number: int, benchmark: Benchmark, user_id: int, random: Random
) -> dict[str, Any]:
    """A submission with a result of the usual size."""
    tta = random.lognormvariate(4.0, 0.8)
    gpus = random.choice((1, 2, 4, 8, 64))
    accelerator = random.choice(("H100-SXM5-80GB", "H200-SXM-141GB", "B200", "MI355X"))
    figures = {"reached": RUNS, "started": RUNS, "cv_percent": 5.0 + random.random()}
    return {
        "id": f"perf-{number:07}",
        "user_id": user_id,
        "benchmark_id": benchmark.benchmark_id,
        "benchmark_sha256": benchmark.sha256,
        "division": random.choice(("closed", "open")),
        "model": f"{random.choice(('resnet', 'vit', 'mlp'))}_{number}",
        "framework": random.choice(("torch 2.13.0", "jax 0.9", "tinygrad 0.12")),
        "system": {
            "name": f"{gpus} x {accelerator} node",
            "hardware_class": f"{gpus}-{accelerator.lower()}",
            "processor": "a processor",
            "processor_count": 64,
            "memory_gib": 512.0,
            "accelerator": accelerator,
            "accelerator_count": gpus,
            "price_usd_per_hour": 2.5 * gpus,
            "price_source": "a price list",
        },
        "hyperparameters": {"batch_size": 64},
        "claim_sha256": "0" * 64,
        "status": random.choice(("claimed", "verified", "verified", "rejected")),
        "eligible": True,
        "tta_seconds": tta,
        "cost_usd": tta / 3600 * 2.5 * gpus,
        "result": result_of(tta, figures),
        "request_sha256": f"{number:064}",
        "submitted_at": utc_now(),
        "kind": "train",
    }


def result_of(tta: float, figures: dict[str, Any]) -> dict[str, Any]:
    """A stored result with the steps that explain it."""
    step = {
        "name": "time to accuracy of run_0.log",
        "formula": "seconds at the first evaluation with top1Accuracy >= 97.5",
        "numbers": {"evaluation": 8, "quality": 98.1636},
        "value": tta,
        "unit": "s",
    }
    return figures | {
        "tta_seconds": tta,
        "raw_tta_seconds": tta,
        "tta_display": "0:01:00",
        "tta_low_seconds": tta * 0.96,
        "tta_high_seconds": tta * 1.04,
        "epochs_to_target": 7.5,
        "best_quality": 98.1,
        "evaluation_interval_seconds": tta / 8,
        "cost_usd": None,
        "clock": "mlperf",
        "rcp": None,
        "violations": [],
        "steps": [step] * (RUNS + 4),
    }


def run_rows(row: dict[str, Any], random: Random) -> list[dict[str, Any]]:
    """The runs of a submission, with a curve of eight evaluations."""
    return [
        {
            "submission_id": row["id"],
            "index": index,
            "file": f"run_{index}.log",
            "log_sha256": "0" * 64,
            "log_bytes": 1000,
            "reached": True,
            "tta_seconds": row["tta_seconds"] * random.lognormvariate(0.0, 0.05),
            "curve": [[float(j), j * 1.0, 12.0 * j, 1152 * j] for j in range(1, 9)],
        }
        for index in range(RUNS)
    ]


if __name__ == "__main__":
    sys.exit(main())
