"""The all-reduce over all ranks of several hosts that precedes their runs."""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter, ValidationError

from finishline.rules.measurements import Figure
from finishline.rules.verification.messages import Failure
from worker.child_process import ChildProcess, Host
from worker.failures import failure
from worker.hosts import EXPLAIN_SECONDS, Hosts

LIMIT_SECONDS = 120.0
POLL_SECONDS = 0.05
ALL_REDUCE_COMMAND = (sys.executable, "-m", "worker.all_reduce")


def check_hosts(host: Host, hosts: Hosts, *, stop: Callable[[], object]) -> Figure | Failure:
    """Exchange a message over all ranks: its rate, or the reason why the hosts may not train."""
    meeting = hosts.begin("all_reduce", {})
    child = ChildProcess(
        {"device": host.device}, host=replace(host, command=ALL_REDUCE_COMMAND), meeting=meeting
    )
    deadline = time.perf_counter() + LIMIT_SECONDS
    try:
        while time.perf_counter() < deadline:
            if stop():
                return failure("worker_stopped", "the worker got a request to stop")
            line = child.next_line(wait_seconds=POLL_SECONDS)
            if line is None:
                found: Figure | Failure | None = hosts.trouble()
            elif line.text is not None:
                found = _read(json.loads(line.text))
            else:
                found = hosts.trouble(wait_seconds=EXPLAIN_SECONDS) or _unfit(child.log_tail())
            if found is not None:
                return found
        return failure("nodes_unfit", f"the all-reduce took longer than {LIMIT_SECONDS:g} s")
    finally:
        child.kill()
        hosts.end()


def _read(event: dict[str, Any]) -> Figure | Failure:
    if event["event"] == "failure":
        return failure(event["code"], event["message"])
    try:
        return TypeAdapter(Figure).validate_python(event["figure"])
    except (KeyError, ValidationError) as error:
        return failure("nodes_unfit", f"the all-reduce answered with something else: {error}")


def _unfit(log_tail: str) -> Failure:
    lines = log_tail.strip().splitlines()
    return failure("nodes_unfit", f"the all-reduce ended early: {lines[-1] if lines else 'unsaid'}")
