"""Permissions of a worker's own account at a Redis broker, named like its queue.

Kombu keeps a queue as one list for each priority, its binding as two sets, and unacknowledged
messages as a hash, an index and a lock.
"""

from urllib.parse import quote, urlsplit

from finishline.rules.verification.messages import queue_of

SEPARATOR = "\x06\x16"  # Kombu's, between a queue and a priority.
PRIORITIES = (3, 6, 9)
UNACKED = ("unacked", "unacked_index", "unacked_mutex")
COMMANDS = (
    *("auth", "hello", "ping", "select", "client|setinfo", "client|setname"),
    *("brpop", "rpop", "lpush", "rpush", "llen", "exists", "del", "expire", "pexpire"),
    *("sadd", "srem", "smembers", "hset", "hget", "hdel", "zadd", "zrem", "zrange"),
    *("get", "set", "watch", "unwatch", "multi", "exec", "discard"),
    *("evalsha", "script|load"),  # How a lock is let go; a script may do no more than its caller.
)


def unacked_keys(worker: str) -> dict[str, str]:
    """Keys of a worker's unacknowledged messages, by Kombu's name for each."""
    return {f"{name}_key": f"{name}/{queue_of(worker)}" for name in UNACKED}


def acl_rules(worker: str, password: str) -> list[str]:
    """The arguments of ACL SETUSER, after the name, that make a worker's account anew."""
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
    """The broker's address for a worker: the server's with the account's name and password."""
    parts = urlsplit(server_url)
    host = parts.netloc.rpartition("@")[2]
    account = f"{quote(queue_of(worker), safe='')}:{quote(password, safe='')}"
    # urlunsplit would leave the slashes out before an account without a host.
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{account}@{host}{parts.path}{query}"
