"""Loop that fans events out and sends deliveries when they are due."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

from finishline.periodic import PeriodicThread
from finishline.rules.benchmarks.benchmark import Benchmark
from server.base.code_version import VERSION
from server.base.database import OUTAGES, Database, utc_now
from server.base.errors import ContentError
from server.base.events import NoticeWakeup
from server.base.models import Delivery, MailSubscription, NoticeEvent, Webhook
from server.base.settings import MailServer, Settings, parse_smtp_url
from server.notices.announce import CONFIRM
from server.notices.deliveries import Claimed, claim, first_due, next_due, settle
from server.notices.fan_out import next_event_due, spread
from server.notices.mailing import (
    compose,
    mail_subject,
    mail_text,
    post_body,
    send_mail,
    unsubscribe_url,
)
from server.notices.pruning import PRUNE_EVERY, prune
from server.notices.webhooks import Answer, check_url, signature_headers


def mail_server(settings: Settings) -> MailServer | None:
    """SMTP server for outgoing mail; None if this server sends none."""
    url = settings.smtp_url
    return None if url is None else parse_smtp_url(url.get_secret_value())


def deliver(database: Database, settings: Settings, claimed: Claimed) -> Answer | None:
    """Send a claimed delivery and store its outcome; None if it has ended meanwhile."""
    with database.read() as session:
        delivery = session.get(Delivery, claimed.id)
        if delivery is None or delivery.state != "waiting":
            return None
        event, hook, subscription = delivery.event, delivery.webhook, delivery.mail
    answer = _send(settings, event, hook, subscription)
    with database.write() as session:
        settle(session, claimed.id, answer, claims=claimed.claims + 1)
    return answer


def _send(
    settings: Settings,
    event: NoticeEvent,
    hook: Webhook | None,
    subscription: MailSubscription | None,
) -> Answer:
    if hook is not None:
        return _post(settings, event, hook)
    if subscription is not None:
        return _mail(settings, event, subscription)
    raise ValueError(f"event {event.id} is on its way to nobody")


def _post(settings: Settings, event: NoticeEvent, hook: Webhook) -> Answer:
    # The client is imported by the first message: most servers start without sending one.
    from server.notices.posting import post

    private_allowed = settings.webhook_private_addresses
    try:
        check_url(hook.url, private_allowed=private_allowed)
    except ContentError as error:  # Its address may not be allowed any more.
        return Answer(None, 0.0, error=error.detail)
    body = post_body(hook.url, event, site=site_of(settings))
    signed = signature_headers(valid_secrets(hook), event.id, seconds=int(time.time()), body=body)
    headers = signed | {
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "User-Agent": f"Finishline/{VERSION}",
    }
    return post(hook.url, headers, body, private_allowed=private_allowed)


def valid_secrets(hook: Webhook) -> list[str]:
    """Secrets that sign, the latest first: two while one is being replaced."""
    until = hook.previous_until
    if hook.previous_secret is None or until is None or until <= utc_now():
        return [hook.secret]
    return [hook.secret, hook.previous_secret]


def _mail(settings: Settings, event: NoticeEvent, subscription: MailSubscription) -> Answer:
    server, sender, site = mail_server(settings), settings.mail_from, site_of(settings)
    if server is None or sender is None:
        return Answer(None, 0.0, error="This server sends no mail.")
    ends = None if event.kind == CONFIRM else unsubscribe_url(subscription, site=site)
    message = compose(
        sender=sender,
        receiver=subscription.address,
        subject=mail_subject(event),
        text=mail_text(event, subscription, site=site),
        message_id=f"{event.id}.{subscription.id}",
        unsubscribe_url=ends,
    )
    return send_mail(server, message)


def site_of(settings: Settings) -> str:
    """Public address without a slash at its end; empty if it is not set."""
    return (settings.public_url or "").rstrip("/")


log = logging.getLogger(__name__)

IDLE_SECONDS = 5.0
AWAY_SECONDS = 2.0
SHORTEST_SECONDS = 0.02
PLACES = 8
# Of one person's webhooks, and of all mail: slow receivers leave places to others.
PLACES_OF_ONE = 3
Moments = tuple[datetime | None, datetime | None]


class NoticeLoop:
    """Thread that decides, with a pool of threads that send, until it is stopped."""

    def __init__(
        self, database: Database, benchmarks: Mapping[str, Benchmark], settings: Settings
    ) -> None:
        self._database = database
        self._benchmarks = dict(benchmarks)
        self._settings = settings
        self._with_mail = mail_server(settings) is not None
        self._wake = database.state.of(NoticeWakeup)
        self._lock = threading.Lock()
        self._under_way: dict[int, Claimed] = {}
        self._prune_at = utc_now() + timedelta(minutes=1)
        self._pool = ThreadPoolExecutor(PLACES, thread_name_prefix="notice")
        self._thread = PeriodicThread(
            "notices", AWAY_SECONDS, self.run_once, self._wake, outages=OUTAGES
        )

    @property
    def is_running(self) -> bool:
        """Whether the thread is alive."""
        return self._thread.is_running

    def start(self) -> None:
        """Start the thread, with a round at once."""
        self._thread.wake()
        self._thread.start()

    def stop(self) -> None:
        """Stop after the tries under way."""
        self._thread.stop()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def run_once(self) -> float:
        """Fan out due events and start due deliveries; returns the seconds until the next."""
        event_at, due_at = self._look()
        now = utc_now()
        if event_at is not None and event_at <= now:
            spread(self._database, self._benchmarks)
            event_at, due_at = self._look()
        if due_at is not None and due_at <= utc_now():
            self._begin()
            event_at, due_at = self._look()
        if now >= self._prune_at:
            self._prune_at = now + PRUNE_EVERY
            prune(self._database)
        return _pause(event_at, due_at)

    def _look(self) -> Moments:
        with self._database.read() as session:
            return next_event_due(session), next_due(session, with_mail=self._with_mail)

    def _begin(self) -> None:
        with self._database.read() as session:
            wanted = first_due(session, with_mail=self._with_mail, limit=PLACES * 4)
        for item in self._with_places(wanted):
            with self._database.write_beside() as session:
                won = claim(session, item)
            if won:
                with self._lock:
                    self._under_way[item.id] = item
                self._pool.submit(self._try, item)

    def _with_places(self, wanted: list[Claimed]) -> list[Claimed]:
        """Choose deliveries with a free slot now: a claim expires, so it must not wait for one."""
        with self._lock:
            busy = list(self._under_way.values())
        receivers = {item.receiver for item in busy}
        lanes = Counter(item.lane for item in busy)
        chosen: list[Claimed] = []
        for item in wanted:
            if len(busy) + len(chosen) >= PLACES:
                break
            if item.receiver in receivers or lanes[item.lane] >= PLACES_OF_ONE:
                continue
            lanes[item.lane] += 1
            chosen.append(item)
        return chosen

    def _try(self, item: Claimed) -> None:
        try:
            answer = deliver(self._database, self._settings, item)
            if answer is not None and not answer.is_success:
                log.info("delivery %s failed: %s", item.id, answer.error or answer.status)
        except OUTAGES as error:
            log.warning("delivery %s could not be settled; it is sent again: %s", item.id, error)
        except Exception:
            log.exception("delivery %s could not be settled; it is sent again", item.id)
        finally:
            with self._lock:
                self._under_way.pop(item.id, None)
            self._wake.set()


def _pause(event_at: datetime | None, due_at: datetime | None) -> float:
    """Seconds until the next event or delivery; limited, for events of other processes.

    A due delivery that was not started waits for a free slot: the thread that frees one wakes the
    loop.
    """
    now = utc_now()
    moments = [event_at] if event_at is not None else []
    if due_at is not None and due_at > now:
        moments.append(due_at)
    seconds = [max((moment - now).total_seconds(), SHORTEST_SECONDS) for moment in moments]
    return min([IDLE_SECONDS, *seconds])
