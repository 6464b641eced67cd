"""Thousands of verifications that wait: one submitted over HTTP, and copies of its rows."""

import json
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import insert, select

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.scoring.run import Ledger
from finishline.rules.verification.fair_queue import Waiting
from perf.dispatch_child import CURVE
from perf.dispatch_installation import HARDWARE_CLASS, Installation
from server.base.database import Database
from server.base.models import Attempt, Base, JobTraining, RunRow, Submission, User, Verification
from tests.support.run_logs import STARTED_AT_MS, make_run_log

SUBMITTERS = 50
GREEDY = 3
GREEDY_SHARE = 0.75
ORGANISERS_EVERY = 500
CHUNK = 1000


def define(text: str) -> str:
    """The digits benchmark as one that trains nothing and verifies every submission by itself."""
    text = text.partition("\n# The calibration")[0]
    for there, here in (
        ('id = "digits"', 'id = "nothing"'),
        ('reference = "digits"', 'reference = "nothing"'),
        ("automatic = false", "automatic = true"),
        ("min_runs = 3", "min_runs = 1"),
        ("max_runs = 3", "max_runs = 1"),
    ):
        if there not in text:
            raise SystemExit(f"benchmarks/digits.toml has no {there!r} any more")
        text = text.replace(there, here)
    before, _, after = text.partition('sha256 = "')
    return f'{before}sha256 = "nothing"{after.partition(chr(34))[2]}'


def submit_one(installation: Installation, benchmark: Benchmark) -> str:
    """An honest submission; the id of its verification, which waits."""
    names = [f"run_{index}.log" for index in range(3)]
    claim = {
        "benchmark": benchmark.benchmark_id,
        "division": "closed",
        "model": "nothing",
        "framework": "none",
        "system": {
            "name": "perf",
            "hardware_class": HARDWARE_CLASS,
            "processor": "any",
            "processor_count": 2,
            "memory_gib": 24,
        },
        "hyperparameters": {"batch_size": 64},
        "runs": names,
    }
    parts: list[Any] = [("submission", ("submission.json", json.dumps(claim).encode()))]
    parts += [
        ("logs", (name, _log(benchmark, name, seed=index))) for index, name in enumerate(names)
    ]
    view = installation.post("/submissions", by="ada", files=parts)
    return str(view["verifications"][0]["id"])


def _log(benchmark: Benchmark, name: str, *, seed: int) -> bytes:
    log = make_run_log(
        benchmark,
        CURVE,
        lambda epoch: epoch * (5.0 + seed / 7),
        name=name,
        seed=seed,
        prepared=Ledger(init=1.0),
        eval_seconds=0.01,
        started_at_ms=STARTED_AT_MS + seed,
    )
    return bytes(log)


def whose(number: int, count: int) -> int:
    """The submitter (from 0) of an attempt: three quarters are of the greedy, who came first."""
    greedy = int(count * GREEDY_SHARE)
    if number < greedy:
        return number % GREEDY
    return GREEDY + number % (SUBMITTERS - GREEDY)


def queue_copies(database: Database, verification_id: str, count: int) -> list[Waiting]:
    """Copy a verification that waits, its submission and its attempt; all that waits then."""
    with database.write() as session:
        session.execute(insert(User), [_user(number) for number in range(SUBMITTERS)])
        users = {row.name: row.id for row in session.execute(select(User.name, User.id))}
        verification = session.get_one(Verification, verification_id)
        templates = [
            _row(session, Submission, Submission.id == verification.submission_id)[0],
            _row(session, Verification, Verification.id == verification_id)[0],
            _row(session, Attempt, Attempt.verification_id == verification_id)[0],
        ]
        runs = _row(session, RunRow, RunRow.submission_id == verification.submission_id)
        trainings = _row(session, JobTraining, JobTraining.verification_id == verification_id)
        first = templates[2]
        waiting = [
            Waiting(first["id"], first["submitter_id"], first["by_organiser"], first["asked_at"])
        ]
        for start in range(0, count, CHUNK):
            rows = [
                _copies(templates, runs, number, users, count)
                for number in range(start, min(start + CHUNK, count))
            ]
            submissions, verifications, attempts, all_runs = zip(*rows, strict=True)
            session.execute(insert(Submission), submissions)
            session.execute(insert(Verification), verifications)
            session.execute(insert(Attempt), attempts)
            session.execute(insert(RunRow), [run for each in all_runs for run in each])
            session.execute(
                insert(JobTraining),
                [each | {"verification_id": row[1]["id"]} for row in rows for each in trainings],
            )
            waiting += [
                Waiting(
                    row[2]["id"], row[2]["submitter_id"], row[2]["by_organiser"], row[2]["asked_at"]
                )
                for row in rows
            ]
    return waiting


def _user(number: int) -> dict[str, Any]:
    return {"name": f"submitter-{number}", "created_at": datetime.now().astimezone()}


def _row(session: Any, table: type[Base], condition: Any) -> list[dict[str, Any]]:
    columns = table.__table__.columns
    return [dict(row._mapping) for row in session.execute(select(*columns).where(condition))]


def _copies(
    templates: list[dict[str, Any]],
    runs: list[dict[str, Any]],
    number: int,
    users: dict[str, int],
    count: int,
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    submission, verification, attempt = templates
    user = users[f"submitter-{whose(number, count)}"]
    by_organiser = number % ORGANISERS_EVERY == 0
    asked_at = verification["created_at"] + timedelta(milliseconds=1 + number)
    names = {kind: f"{kind}{number:05d}" for kind in "sva"}
    return (
        submission | {"id": names["s"], "user_id": user, "idempotency_key": None},
        verification
        | {
            "id": names["v"],
            "submission_id": names["s"],
            "requested_by": users["olivia"] if by_organiser else user,
            "created_at": asked_at,
        },
        attempt
        | {
            "id": names["a"],
            "verification_id": names["v"],
            "submitter_id": user,
            "by_organiser": by_organiser,
            "asked_at": asked_at,
        },
        [
            {key: value for key, value in run.items() if key != "id"}
            | {
                "submission_id": names["s"],
                # As if each had trained: runs alike are looked at, for copies of one another.
                "log_sha256": f"{number:032d}{run['log_sha256'][:32]}",
                "best_quality": run["best_quality"] - number / 1e7,
            }
            for run in runs
        ],
    )
