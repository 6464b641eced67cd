"""The outbox: messages are claimed by one server, sent, and tried again for about a day.

A claim is one UPDATE, won by one server, and puts the next try off. If the process dies, the
message is sent again with the same id. Sending happens outside transactions.
"""

import logging
import random
import time
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session, joinedload

from finishline.periodic import PeriodicThread
from server.base.database import OUTAGES, Database, utc_now
from server.base.events import NoticeWakeup
from server.base.models import Message, Receiver
from server.base.settings import Settings
from server.notices.events import API, SWITCHED_OFF, is_active, queue
from server.notices.messages import Answer, send

log = logging.getLogger(__name__)

# Longer than a try may take. A message without an outcome by then is sent again.
CLAIM = timedelta(seconds=60)
RETRY_SECONDS = (5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 36_000.0)
JITTER = 0.1
LONGEST_WAIT_SECONDS = 86_400.0
# A webhook failing for this long is disabled with the next message given up.
FAILING = timedelta(days=1)
GONE = 410
TRIES_KEPT = 20
THREADS = 8
IDLE_SECONDS = 1.0
KEEP, PRUNE_EVERY = timedelta(days=30), timedelta(hours=1)
UNSYNCHRONISED = {"synchronize_session": False}


def claim(session: Session, *, busy: Collection[str], limit: int) -> Sequence[Message]:
    """Claim due messages: the first of each idle receiver."""
    now = utc_now()
    is_due = (Message.state == "waiting") & (Message.due_at <= now)
    first = (
        select(func.min(Message.id))
        .where(is_due, Message.receiver_id.not_in(busy))
        .group_by(Message.receiver_id)
        .order_by(func.min(Message.due_at))
        .limit(limit)
    )
    claimed = session.scalars(
        # On PostgreSQL a claim that waited looks again whether the message is due.
        update(Message)
        .where(Message.id.in_(first), is_due)
        .values(due_at=now + CLAIM)
        .returning(Message.id),
        execution_options=UNSYNCHRONISED,
    ).all()
    with_receiver = select(Message).options(joinedload(Message.receiver))
    return session.scalars(with_receiver.where(Message.id.in_(claimed))).all()


def settle(session: Session, claimed: Message, answer: Answer, *, milliseconds: float) -> None:
    """Store the outcome of a try. A failure counts only under the latest claim."""
    message = session.get(Message, claimed.id, with_for_update=True)
    if message is None or message.state != "waiting" or message.receiver is None:
        return
    now, receiver = utc_now(), message.receiver
    if not answer.is_success and message.due_at != claimed.due_at:
        return
    made = {"at": now.isoformat(), "status": answer.status, "milliseconds": milliseconds}
    made |= {"answer": answer.text, "error": answer.error}
    message.tries = [*message.tries, made][-TRIES_KEPT:]
    if answer.is_success:
        message.state, message.ended_at, receiver.failing_since = "delivered", now, None
        return
    message.failures += 1
    receiver.failing_since = receiver.failing_since or now
    is_hook, since = receiver.channel == "webhook", receiver.failing_since
    # A mail server that answers 5yz rejects a mail for good (RFC 5321).
    is_final = not is_hook and answer.status is not None and answer.status >= 500
    if is_hook and answer.status == GONE:
        disable(session, receiver, "It returned 410 Gone.")
    elif message.failures <= len(RETRY_SECONDS) and not is_final:
        planned = RETRY_SECONDS[message.failures - 1]
        # Spread messages after a common failure.
        planned *= random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311
        wanted = min(answer.retry_after_seconds or 0.0, LONGEST_WAIT_SECONDS)
        message.due_at = now + timedelta(seconds=max(planned, wanted))
    else:
        message.state, message.ended_at = "failed", now
        if is_hook and now - since >= FAILING:
            disable(session, receiver, f"Deliveries have failed since {since:%Y-%m-%d %H:%M} UTC.")


def disable(session: Session, hook: Receiver, why: str) -> None:
    """Disable a webhook, give up its messages, and mail its owner."""
    give_up(session, hook, why)
    log.warning("webhook %s is disabled: %s", hook.id, why)
    content = {
        "sentence": f"Webhook {hook.id} is disabled: {why}",
        "webhook": {"id": hook.id, "url": hook.address, "why": why},
        "links": {"api": f"{API}/webhooks/{hook.id}", "page": f"/console/notices/{hook.id}"},
    }
    own = (Receiver.user_id == hook.user_id, Receiver.channel == "mail", is_active())
    queue(session, SWITCHED_OFF, content, session.scalars(select(Receiver).where(*own)).all())


def give_up(session: Session, receiver: Receiver, why: str | None) -> None:
    """End a receiver, and give up its waiting messages."""
    receiver.disabled_at, receiver.disabled_because = utc_now(), why
    session.flush()
    session.execute(
        update(Message)
        .where(Message.receiver_id == receiver.id, Message.state == "waiting")
        .values(state="failed", ended_at=receiver.disabled_at)
    )


def prune(session: Session) -> None:
    """Delete messages that ended long ago, and mail addresses that ended before them."""
    before = utc_now() - KEEP
    session.execute(
        delete(Message).where(Message.created_at < before, Message.state != "waiting"),
        execution_options=UNSYNCHRONISED,
    )
    left = select(Message.id).where(Message.receiver_id == Receiver.id)
    session.execute(
        delete(Receiver).where(
            Receiver.channel == "mail", Receiver.disabled_at < before, ~left.exists()
        ),
        execution_options=UNSYNCHRONISED,
    )


def next_due(session: Session) -> datetime | None:
    """Return the time of the next try, if a message waits."""
    return session.scalar(select(func.min(Message.due_at)).where(Message.state == "waiting"))


def overdue_seconds(session: Session, *, now: datetime) -> float:
    """Return the seconds since the oldest waiting try was due, at least 0."""
    due_at = next_due(session)
    return 0.0 if due_at is None else max((now - due_at).total_seconds(), 0.0)


class NoticeLoop:
    """Claims messages in a thread, and sends them in a pool of threads."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self._wake = database.state.of(NoticeWakeup)
        # Receivers of messages under way: each gets one message at a time.
        self._busy: set[str] = set()
        self._prune_at = utc_now() + timedelta(minutes=1)
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="notice")
        self._thread = PeriodicThread(
            "notices", IDLE_SECONDS, self.run_once, self._wake, outages=OUTAGES
        )

    def start(self) -> None:
        """Start the thread, with a round at once."""
        self._thread.wake()
        self._thread.start()

    def stop(self) -> None:
        """Stop after the tries under way."""
        self._thread.stop()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def run_once(self) -> None:
        """Start due messages."""
        now = utc_now()
        if now >= self._prune_at:
            self._prune_at = now + PRUNE_EVERY
            with self._database.write() as session:
                prune(session)
        with self._database.read() as session:
            due_at = next_due(session)
        busy = frozenset(self._busy)
        # With all threads busy, the next to end wakes the loop.
        if due_at is None or due_at > now or len(busy) >= THREADS:
            return
        with self._database.write_beside() as session:
            claimed = claim(session, busy=busy, limit=THREADS - len(busy))
        for message in claimed:
            self._busy.add(str(message.receiver_id))
            self._pool.submit(self._try, message)

    def _try(self, message: Message) -> None:
        try:
            assert message.receiver is not None  # noqa: S101  A claim joins it.
            began = time.monotonic()
            answer = send(message, message.receiver, self._settings)
            took = round((time.monotonic() - began) * 1000, 1)
            with self._database.write() as session:
                settle(session, message, answer, milliseconds=took)
            if not answer.is_success:
                log.info("message %s failed: %s", message.id, answer.error or answer.status)
        except OUTAGES as error:
            log.warning("message %s is sent again, its outcome is lost: %s", message.id, error)
        except Exception:
            log.exception("message %s is sent again, its outcome is lost", message.id)
        finally:
            self._busy.discard(str(message.receiver_id))
            self._wake.set()
