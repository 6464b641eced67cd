"""The sending side of the broker. Celery takes a tenth of a server's start: import it late."""

import secrets
import threading
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from finishline.rules.verification.messages import REPLAY_TASK, queue_of, unacked_keys

if TYPE_CHECKING:
    from celery import Celery

ASKED_KEY = "finishline-asked"
ASKED_KEPT_SECONDS = 60
# Kombu keeps a queue as one list for each priority, its binding as two sets, and unacknowledged
# messages as a hash, an index and a lock.
SEPARATOR = "\x06\x16"  # Kombu's, between a queue and a priority.
PRIORITIES = (3, 6, 9)
COMMANDS = (
    *("auth", "hello", "ping", "select", "client|setinfo", "client|setname"),
    *("brpop", "rpop", "lpush", "rpush", "llen", "exists", "del", "expire", "pexpire"),
    *("sadd", "srem", "smembers", "hset", "hget", "hdel", "zadd", "zrem", "zrange"),
    *("get", "set", "watch", "unwatch", "multi", "exec", "discard"),
    *("evalsha", "script|load"),  # To release a lock. A script has its caller's rights.
)


def acl_rules(worker: str, password: str) -> list[str]:
    """List the arguments of ACL SETUSER, after the name, for a fresh account of a worker."""
    queue = queue_of(worker)
    keys = [
        queue,
        *(f"{queue}{SEPARATOR}{priority}" for priority in PRIORITIES),
        f"_kombu.binding.{queue}",
        f"_kombu.binding_permanent.{queue}",
        *unacked_keys(worker).values(),
    ]
    allowed = [f"+{command}" for command in COMMANDS]
    return ["reset", "on", f">{password}", *(f"~{key}" for key in keys), "-@all", *allowed]


def broker_url_of(server_url: str, worker: str, password: str) -> str:
    """Return the broker's address for a worker, with its account's name and password."""
    parts = urlsplit(server_url)
    host = parts.netloc.rpartition("@")[2]
    account = f"{quote(queue_of(worker), safe='')}:{quote(password, safe='')}"
    # urlunsplit would leave the slashes out before an account without a host.
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{account}@{host}{parts.path}{query}"


class Broker:
    """Wakes workers through the broker at an address. Several threads may share it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._made: Celery | None = None

    def ask(self) -> None:
        """Raise the driver's error unless the broker takes a key: a full one answers PING too."""
        with self._celery().connection_for_write() as connection:
            # Kombu would wait for two seconds between two tries.
            connection.ensure_connection(max_retries=1, interval_start=0, interval_step=0)
            connection.default_channel.client.set(ASKED_KEY, 1, ex=ASKED_KEPT_SECONDS)

    def make_account(self, worker: str) -> str:
        """Make a worker's account anew, and return the broker's address with it."""
        from redis.exceptions import ResponseError

        password = secrets.token_urlsafe(32)
        with self._celery().connection_for_write() as connection:
            connection.ensure_connection(max_retries=1, interval_start=0, interval_step=0)
            client = connection.default_channel.client
            client.execute_command("ACL", "SETUSER", queue_of(worker), *acl_rules(worker, password))
            with suppress(ResponseError):  # The broker has no file of accounts.
                client.execute_command("ACL", "SAVE")
        return broker_url_of(self._url, worker, password)

    def send_attempt(self, attempt_id: str, worker: str) -> None:
        """Send a worker the id of an attempt that it may lease."""
        self._celery().send_task(REPLAY_TASK, args=[attempt_id], queue=queue_of(worker))

    def close(self) -> None:
        """Close the connections, if any were made."""
        with self._lock:
            if self._made is not None:
                # Celery forgets them, but Kombu keeps them by address until the process ends.
                pool = self._made.pool
                pool.resize(pool.limit, reset=True)
                self._made.close()
                self._made = None

    def _celery(self) -> "Celery":
        with self._lock:
            if self._made is None:
                self._made = _make_celery(self._url)
            return self._made


def _make_celery(url: str) -> "Celery":
    """Make an application with short timeouts, because the dispatcher's loop comes again."""
    from celery import Celery

    app = Celery("finishline-server", broker=url)
    app.conf.update(
        task_ignore_result=True,
        task_serializer="json",
        broker_connection_retry=False,
        broker_connection_retry_on_startup=False,
        broker_connection_timeout=3.0,
        broker_transport_options={
            "socket_timeout": 3.0,
            "socket_connect_timeout": 3.0,
            "max_retries": 1,
        },
        task_publish_retry=False,
    )
    return app
