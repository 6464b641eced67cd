"""Workers of tests: what a server does before one may claim."""

from dataclasses import asdict, replace
from datetime import timedelta

from sqlalchemy import select, update

from finishline.rules.verification.messages import WORKER_PROTOCOL, WorkerSystem
from server.base.database import utc_now
from server.base.models import Attempt, WorkerRow
from tests.support.services import services_of

WORKER_SYSTEM = WorkerSystem(
    worker="walter-1",
    hardware_class="cpu-test",
    processor="test processor",
    processor_count=2,
    memory_gib=24.0,
    accelerator=None,
    accelerator_count=0,
    threads=1,
    software={"torch": "2.13.0"},
)


def latest_attempt(database, verification_id):
    query = select(Attempt.id).where(Attempt.verification_id == verification_id)
    with database.read() as session:
        return session.scalars(query.order_by(Attempt.number.desc())).first() or "none"


def send_to(database, attempt_id, worker):
    """Draw this worker for an attempt that waits and was sent to nobody yet."""
    with database.write() as session:
        session.execute(
            update(Attempt)
            .where(Attempt.id == attempt_id, Attempt.state == "queued", Attempt.sent_to.is_(None))
            .values(sent_to=worker)
        )


def greet_as_servers(database, name, hardware_class="cpu-test"):
    """As if the server itself had confirmed a worker of this class, which said hello long ago."""
    now = utc_now() - timedelta(days=1)
    row = WorkerRow(
        name=name, hardware_class=hardware_class, state="idle", system=asdict(WORKER_SYSTEM)
    )
    row.first_seen_at = row.last_seen_at = row.confirmed_at = now
    with database.write() as session:
        session.merge(row)


def say_hello(
    client, person, *, state="idle", polls=False, box=None, confirmed=True, database=None, **system
):
    """Say hello as a person's worker, which the server confirms if it is new."""
    database = database or services_of(client).database
    body = {"system": asdict(replace(WORKER_SYSTEM, **system)), "state": state}
    body |= {"protocol": WORKER_PROTOCOL, "polls": polls}
    name = body["system"]["worker"]
    with database.read() as session:
        new = session.get(WorkerRow, name) is None
    body |= {"box": asdict(box)} if box else {}
    answer = client.post("/api/v1/workers/hello", json=body, headers=person.headers)
    if not (confirmed and new and answer.is_success):
        return answer
    with database.write() as session:
        session.get_one(WorkerRow, name).confirmed_at = utc_now()
    return client.post("/api/v1/workers/hello", json=body, headers=person.headers)
