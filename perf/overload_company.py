"""What goes on beside the flood of perf/overload.py, in a process of its own.

A worker replays one verification after the other, with the worker's own client; somebody asks
/healthz twice a second. On SIGTERM it prints what became of both, as one JSON.
"""

import json
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx2
from sqlalchemy import select

sys.path.insert(0, str(Path(__file__).parents[1]))

from finishline.client.retries import Retries
from finishline.client.transport import Transport
from finishline.rules.verification.messages import (
    ClaimRequest,
    EvaluationBatch,
    ReplayEvaluation,
    ReplayEvent,
    ReplayReport,
    ReplayRun,
    WorkerHello,
    WorkerSystem,
)
from server.database import Database
from server.models import Attempt, Verification
from tests.support.streams import stream_report
from worker.server_client import ServerClient

QUALITIES = [14.8, 45.8, 73.0, 85.5, 90.8, 95.6, 97.4, 98.1]
SYSTEM = WorkerSystem(
    worker="perf-1", hardware_class="cpu-perf", processor="perf", processor_count=2,
    memory_gib=8.0, accelerator=None, accelerator_count=0, threads=1, software={},
)  # fmt: skip
POSTS = 16
POST_EVERY_SECONDS = 0.4
STOP = threading.Event()


def main() -> int:
    """Go on until SIGTERM; print the outcome."""
    if "FINISHLINE_URL" not in os.environ:
        print("overload company: run by perf/overload.py")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: STOP.set())
    logging.disable(logging.WARNING)
    url = os.environ["FINISHLINE_URL"]
    health: list[float] = []
    ended: list[str] = []
    faults: list[str] = []
    threads = [
        threading.Thread(target=ask_health, args=(url, health, faults)),
        threading.Thread(target=keep_replaying, args=(url, ended, faults)),
    ]
    print("ready", flush=True)  # All is imported: the flood may begin.
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps({"health_seconds": health, "ended": ended, "faults": faults}))
    return 0


def ask_health(url: str, seconds: list[float], faults: list[str]) -> None:
    """How long /healthz takes."""
    with httpx2.Client(trust_env=False, timeout=10.0) as client:
        while not STOP.wait(0.5):
            began = time.perf_counter()
            try:
                status = client.get(f"{url}/healthz").status_code
            except httpx2.TransportError as error:
                faults.append(f"/healthz: {type(error).__name__}")
                continue
            seconds.append(time.perf_counter() - began)
            if status != 200:
                faults.append(f"/healthz: {status}")


def keep_replaying(url: str, ended: list[str], faults: list[str]) -> None:
    """One verification after the other."""
    database = Database(os.environ["FINISHLINE_DATABASE_URL"])
    organiser = Transport(url, os.environ["PERF_ORGANISER_TOKEN"], retries=Retries(count=10))
    with ServerClient(url, token=os.environ["PERF_WORKER_TOKEN"]) as server:
        server.hello(WorkerHello(SYSTEM, "idle"))
        organiser.post(f"/workers/{SYSTEM.worker}/confirm", {"reason": "perf"})
        while not STOP.is_set():
            try:
                ended.append(replay(organiser, server, database))
            except Exception as error:  # noqa: BLE001  Whatever it is, it is a fault to show.
                faults.append(f"replay: {type(error).__name__}: {error}")
                STOP.wait(1.0)
    organiser.close()
    database.close()


def replay(organiser: Transport, server: ServerClient, database: Database) -> str:
    """Ask for a verification, claim it, post evaluations, report; the state it ends in."""
    asked = ask(organiser)
    server.hello(WorkerHello(SYSTEM, "idle"))
    grant = server.claim(sent_attempt(database, asked["id"]), ClaimRequest("perf-1", "cpu-perf"))
    for number in range(POSTS):
        event = ReplayEvent(number, 0, "evaluation", seconds=float(number), quality=50.0)
        server.post_events(grant, EvaluationBatch([event]))
        time.sleep(POST_EVERY_SECONDS)
    with database.read() as session:
        seeds = list(session.get_one(Verification, asked["id"]).seeds)
    report = report_of(seeds)
    # Beside the events posted above, those that an honest worker would have posted by now.
    stream_report(database, grant.attempt_id, report, fence=grant.fence)
    server.report(grant, report)
    with database.read() as session:
        return session.get_one(Verification, asked["id"]).state


def sent_attempt(database: Database, verification_id: str) -> str:
    """The attempt of a verification, once the server has drawn this worker for it."""
    query = select(Attempt.id).where(
        Attempt.verification_id == verification_id, Attempt.sent_to == "perf-1"
    )
    while not STOP.wait(0.02):
        with database.read() as session:
            if (found := session.scalar(query)) is not None:
                return found
    raise RuntimeError("stopped before the attempt was sent")


def ask(organiser: Transport) -> dict[str, Any]:
    """A verification, asked for by an organiser."""
    view: dict[str, Any] = organiser.post(
        f"/submissions/{os.environ['PERF_SUBMISSION']}/verifications"
    )
    return view


def report_of(seeds: list[int]) -> ReplayReport:
    """An honest replay of the digits."""
    runs = []
    for index, seed in enumerate(seeds):
        evaluations = [
            ReplayEvaluation(
                epoch=float(j), samples=1152 * j, seconds=0.114 * j,
                quality=quality + seed % 997 * 1e-5,
                ledger={"init": 2.0, "warmup": 0.2, "train": 0.11 * j, "eval": 0.004 * j},
            )
            for j, quality in enumerate(QUALITIES, start=1)
        ]  # fmt: skip
        last = evaluations[-1]
        runs.append(
            ReplayRun(
                index=index, seed=seed, status="reached", evaluations=evaluations,
                ledger=last.ledger, tta_seconds=last.seconds, parent_seconds=last.seconds,
                child_seconds=last.seconds, cpu_seconds=last.seconds,
            )
        )  # fmt: skip
    return ReplayReport(runs=runs, system=SYSTEM)


if __name__ == "__main__":
    sys.exit(main())
