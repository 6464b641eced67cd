"""Fan events out: one delivery for each subscriber, in the transaction that marks the event."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, func, insert, or_, select, update
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from server.base.database import Database, utc_now
from server.base.models import Delivery, MailSubscription, NoticeEvent
from server.boards.record_views import RecordView
from server.boards.service import list_records
from server.notices.announce import (
    RECORD_CHECK,
    Subject,
    links_of,
    new_event,
    submission_content,
    watched_benchmark,
)
from server.notices.pruning import forget_events
from server.notices.subscribers import Listener, find_listeners, find_organisers
from server.submissions.service import find_submission

log = logging.getLogger(__name__)

BATCH = 100
MAILS_PER_DAY = 50
# A burst of submissions to one board is looked through once.
RECORD_WAIT = timedelta(seconds=2)


def is_due(now: datetime) -> ColumnElement[bool]:
    """SQL condition: events that can be fanned out."""
    ripe = or_(NoticeEvent.kind != RECORD_CHECK, NoticeEvent.created_at <= now - RECORD_WAIT)
    return NoticeEvent.spread_at.is_(None) & ripe


def next_event_due(session: Session) -> datetime | None:
    """Time at which the next event can be fanned out; None if none waits."""
    is_check = NoticeEvent.kind == RECORD_CHECK
    rows = session.execute(
        select(is_check, func.min(NoticeEvent.created_at))
        .where(NoticeEvent.spread_at.is_(None))
        .group_by(is_check)
    )
    return min((at + RECORD_WAIT if check else at for check, at in rows), default=None)


def spread(database: Database, benchmarks: Mapping[str, Benchmark]) -> int:
    """Fan out the oldest events; returns their number. Any number of servers may do so at once."""
    records = _look_for_records(database, benchmarks)
    with database.write() as session:
        events = _take(session)
        listeners = find_listeners(session) if events else []
        organisers = find_organisers(session, listeners)
        for event in events:
            if event.kind == RECORD_CHECK:
                _announce_record(session, event, records)
        told = [event for event in events if event.kind != RECORD_CHECK]
        sent_today = _mails_today(session, listeners) if told else Counter()
        for event in told:
            _deliver_to(session, event, listeners, organisers, sent_today)
        forget_events(session, [event.id for event in events])
    return len(events)


def _take(session: Session) -> list[NoticeEvent]:
    now = utc_now()
    events = session.scalars(
        select(NoticeEvent).where(is_due(now)).order_by(NoticeEvent.created_at).limit(BATCH)
    ).all()
    taken = [event.id for event in events]
    session.execute(
        update(NoticeEvent).where(NoticeEvent.id.in_(taken)).values(spread_at=now),
        execution_options={"synchronize_session": False},
    )
    return list(events)


def _deliver_to(
    session: Session,
    event: NoticeEvent,
    listeners: Sequence[Listener],
    organisers: frozenset[int],
    sent_today: Counter[str],
) -> None:
    now = utc_now()
    rows = []
    for listener in listeners:
        if not listener.wants(event, organisers):
            continue
        if listener.address is not None:
            sent_today[listener.address] += 1
            if sent_today[listener.address] > MAILS_PER_DAY:
                log.warning("no mail about %s: an address has had its mails of today", event.id)
                continue
        column = f"{listener.channel}_id"
        other = {"webhook_id": None, "mail_id": None}
        rows.append(other | waiting_row(event.id, now) | {column: listener.id})
    if rows:
        session.execute(insert(Delivery), rows)


def waiting_row(event_id: str, now: datetime) -> dict[str, object]:
    """Columns of a delivery that was not tried yet."""
    return {
        "event_id": event_id,
        "state": "waiting",
        "due_at": now,
        "claims": 0,
        "failures": 0,
        "tries": [],
        "created_at": now,
    }


def _mails_today(session: Session, listeners: Sequence[Listener]) -> Counter[str]:
    if not any(listener.channel == "mail" for listener in listeners):
        return Counter()
    rows = session.execute(
        select(MailSubscription.address, func.count())
        .join(Delivery, Delivery.mail_id == MailSubscription.id)
        .where(Delivery.created_at > utc_now() - timedelta(days=1))
        .group_by(MailSubscription.address)
    )
    return Counter(dict(rows.all()))


Records = dict[str, RecordView]


def _look_for_records(database: Database, benchmarks: Mapping[str, Benchmark]) -> Records:
    """Records of the benchmarks in question, found before the transaction."""
    with database.read() as session:
        asked = session.scalars(
            select(NoticeEvent.benchmark_id)
            .where(is_due(utc_now()), NoticeEvent.kind == RECORD_CHECK)
            .distinct()
        ).all()
        if not asked or not any("record.set" in item.kinds for item in find_listeners(session)):
            return {}
        watched = [benchmarks[name] for name in asked if name is not None and name in benchmarks]
        lists = [list_records(session, benchmark) for benchmark in watched]
    divisions = [division for found in lists for division in found.divisions]
    return {record.submission_id: record for d in divisions for record in d.records[::-1]}


def _announce_record(session: Session, event: NoticeEvent, records: Records) -> None:
    held = records.get(str(event.content.get("submission")))
    if held is None or held.date < event.content["since"]:
        return
    submission = find_submission(session, held.submission_id)
    content = submission_content(submission)
    content["record"] = {
        "tta_seconds": held.tta_seconds,
        "beaten": held.beaten,
        "margin_percent": held.margin_percent,
        "p_value": held.p_value,
    }
    content["links"] = links_of("submissions", submission.id)
    subject = Subject(submission.user_id, watched_benchmark(submission), content)
    session.execute(insert(NoticeEvent), [new_event("record.set", subject)])
