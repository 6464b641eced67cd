"""Everything that goes wrong: each fault hurts a cluster once, or finds nothing to hurt."""

import contextlib
import random
import resource
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import httpx2
import psutil
import redis
from kombu.exceptions import OperationalError
from sqlalchemy import select

from server.base.broker import Broker
from server.base.models import Attempt
from tests.chaos.cluster import Cluster

COPIES = 2  # Beside the message itself: three deliveries.


@dataclass
class Havoc:
    """What the faults need to know and what they saw.

    `lease_seconds` is the lease of an attempt; `submit` makes a new submission under a key and
    gives back the answer's status; `keep_busy` asks for another verification if few are open.
    """

    cluster: Cluster
    lease_seconds: float
    submit: Callable[[str], int]
    keep_busy: Callable[[], None]
    random: random.Random
    refused_while_full: int = 0
    copied_messages: int = 0
    paused: int = 0


def kill_worker(havoc):
    """Kill -9 of a worker; its training dies with it. One that is stopped is to post late."""
    going = [worker for worker in havoc.cluster.workers if not _is_stopped(worker.process)]
    return bool(going) and havoc.random.choice(going).hurt(signal.SIGKILL)


def kill_training(havoc):
    """Kill -9 of a training process."""
    trainings = havoc.cluster.trainings()
    if not trainings:
        return False
    with contextlib.suppress(psutil.NoSuchProcess):
        havoc.random.choice(trainings).kill()
        return True
    return False


def kill_server(havoc):
    """Kill -9 of the server."""
    return havoc.cluster.server.hurt(signal.SIGKILL)


def pause_worker(havoc):
    """Stop a busy worker past its lease, then let it go on: its late posts must be refused."""
    busy = [worker for worker in havoc.cluster.workers if _is_training(worker.process)]
    if not busy:
        return False
    worker = havoc.random.choice(busy)
    process = worker.process
    if process is None or _is_stopped(process):
        return False
    process.suspend()
    threading.Timer(havoc.lease_seconds + 3.0, _resume, args=(havoc, process)).start()
    return True


def _is_stopped(process):
    with contextlib.suppress(psutil.Error):
        return process is not None and process.status() == psutil.STATUS_STOPPED
    return False


def _is_training(process):
    with contextlib.suppress(psutil.Error):
        return process is not None and bool(process.children())
    return False


def _resume(havoc, process):
    """Let a worker go on; one that was killed meanwhile posts nothing."""
    with contextlib.suppress(psutil.Error):
        process.resume()
        havoc.paused += 1


def flush_broker(havoc):
    """Empty Redis."""
    with contextlib.suppress(redis.RedisError), havoc.cluster.broker() as broker:
        return bool(broker.flushall())
    return False


def restart_broker(havoc):
    """Kill -9 of Redis, which keeps nothing on disk."""
    return havoc.cluster.services["redis"].hurt(signal.SIGKILL)


def restart_database(havoc):
    """An immediate shutdown of PostgreSQL, and its recovery."""
    havoc.cluster.restart_database()
    return True


def deliver_three_times(havoc):
    """The message of every attempt that was sent and has not ended comes twice more."""
    with havoc.cluster.database.read() as session:
        sent = session.execute(
            select(Attempt.id, Attempt.sent_to).where(
                Attempt.state.in_(("queued", "running")), Attempt.sent_to.is_not(None)
            )
        ).all()
    broker = Broker(f"redis://127.0.0.1:{havoc.cluster.broker_port}/0")
    copied = 0
    with contextlib.suppress(OSError, redis.RedisError, OperationalError):
        for attempt_id, worker in sent:
            for _ in range(COPIES):
                broker.send_attempt(attempt_id, worker)
            copied += 1
    broker.close()
    havoc.copied_messages += copied
    return copied > 0


def skew_clock(havoc):
    """The clock of the next training process runs half as fast again."""
    havoc.cluster.skew.touch()
    return True


def fill_disk(havoc):
    """The server cannot write a byte into any file; a submission is refused and leaves nothing."""
    process = havoc.cluster.server.process
    if process is None:
        return False
    try:
        hard = process.rlimit(psutil.RLIMIT_FSIZE)[1]
        process.rlimit(psutil.RLIMIT_FSIZE, (0, hard))
        key = f"disk-full-{havoc.random.random()}"
        refused = havoc.submit(key)
        process.rlimit(psutil.RLIMIT_FSIZE, (resource.RLIM_INFINITY, hard))
    except (psutil.Error, httpx2.TransportError, OSError):
        return False
    assert refused in (503, 507), f"a full disk was answered {refused}"
    havoc.refused_while_full += 1
    return True


FAULTS: dict[str, Callable[[Havoc], bool]] = {
    "kill -9 worker": kill_worker,
    "kill -9 training": kill_training,
    "kill -9 server": kill_server,
    "pause worker past its lease": pause_worker,
    "flush broker": flush_broker,
    "restart broker": restart_broker,
    "restart database": restart_database,
    "deliver three times": deliver_three_times,
    "skew clock of training": skew_clock,
    "disk full": fill_disk,
}


def draw_faults(count, *, seed):
    """Kinds of faults in random order, each kind as often as the others."""
    names = [list(FAULTS)[index % len(FAULTS)] for index in range(count)]
    random.Random(seed).shuffle(names)
    return names


def inflict(havoc, name, *, seconds=30.0):
    """Hurt the cluster, waiting a while for something to hurt; False if nothing came up."""
    limit = time.monotonic() + seconds
    while not FAULTS[name](havoc):
        if time.monotonic() > limit:
            return False
        havoc.keep_busy()
        time.sleep(0.05)
    return True
