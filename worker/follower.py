"""A host that trains along: `python -m worker --follow` joins each training of the first host.

It speaks to that host alone: it needs neither the server's address nor a token, and its clock
counts for nothing.
"""

import json
import logging
import os
import signal
import socket
import sys
import time
from dataclasses import asdict, replace
from types import FrameType
from typing import Any

from worker.child_process import ALL_REDUCE_COMMAND, ChildProcess, Host, Line
from worker.failures import count_oom_kills, death_of_child
from worker.group import Meeting
from worker.hosts import JOIN_SECONDS, Arrival, Channel, Message
from worker.training import EXIT_SECONDS, POLL_SECONDS

log = logging.getLogger(__name__)

CONNECT_SECONDS = 5.0
RETRY_SECONDS = 1.0


def follow(endpoint: tuple[str, int], *, key: bytes, arrival: Arrival, host: Host) -> int:
    """Join the first host at `endpoint` and train along until it ends; the exit code."""
    channel = join(endpoint, key=key, arrival=arrival)
    log.info("joined %s:%d", *endpoint)
    signal.signal(signal.SIGTERM, _leave_to_the_first)
    while not channel.is_lost:
        message = channel.next(wait_seconds=1.0) or {}
        if "end" in message:
            log.info("the first host ends")
            return 0
        if "start" in message:
            train_along(message, channel, address=endpoint[0], host=host)
    log.error("the first host is gone: this one ends")
    return 1


def join(
    endpoint: tuple[str, int], *, key: bytes, arrival: Arrival, seconds: float = JOIN_SECONDS
) -> Channel:
    """The connection to the first host. Stops the program with a sentence if it takes none."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            connection = socket.create_connection(endpoint, timeout=CONNECT_SECONDS)
            break
        except OSError as error:
            if time.monotonic() > deadline:
                sys.exit(f"no first host at {endpoint[0]}:{endpoint[1]} ({error}): start it there")
            time.sleep(RETRY_SECONDS)
    try:
        channel = Channel(connection, key, is_first=False)
        channel.send(asdict(arrival))
        answer = channel.receive()
    except (OSError, ValueError):
        connection.close()
        sys.exit(
            f"{endpoint[0]}:{endpoint[1]} takes no message of this host: expected a worker with "
            "--nnodes and the same FINISHLINE_HOSTS_KEY there"
        )
    if "refused" in answer:
        channel.close()
        sys.exit(f"the first host refuses this one: {answer['refused']}")
    channel.listen()
    return channel


def train_along(message: Message, channel: Channel, *, address: str, host: Host) -> None:
    """Run this host's part of a training until the first host ends it."""
    number = message["start"]
    meeting = Meeting(message["hosts"], message["rank"], address, message["port"])
    own = {"parent_pid": os.getpid(), "device": host.device, "data_dir": str(host.data_dir)}
    if message["program"] == "all_reduce":
        host = replace(host, command=ALL_REDUCE_COMMAND)
    oom_kills = count_oom_kills()
    child = ChildProcess(message["orders"] | own, host=host, meeting=meeting)
    ended: Message | None = None
    try:
        while not channel.is_lost:
            if (channel.next(wait_seconds=0) or {}).get("stop") == number:
                break
            line = child.next_line(wait_seconds=POLL_SECONDS)
            if line is not None and ended is None:
                ended = _end_of(line, child, oom_kills)
                if ended is not None:
                    channel.send(ended | {"ended": number, "log": child.log_tail()})
    finally:
        child.kill()
        channel.send({"idle": number})


def _end_of(line: Line, child: ChildProcess, oom_kills: int) -> Message | None:
    """The end that a line of the training means, None if it goes on."""
    if line.text is not None:
        event: Any = json.loads(line.text)
        return {"code": event["code"], "message": event["message"]} if "code" in event else None
    exit_code = child.exit_code(wait_seconds=EXIT_SECONDS)
    if exit_code == 0:
        return {"code": None}
    died = death_of_child(exit_code, oom_kills=count_oom_kills() - oom_kills)
    return {"code": died.code, "message": died.message}


def _leave_to_the_first(_number: int, _frame: FrameType | None) -> None:
    log.info("the first host says when this one ends; a second signal ends it at once")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
