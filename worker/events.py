"""The inner end of a process that trains or measures: its orders, its events, its death.

It reads one JSON object and writes JSON lines. Its standard output carries events only: prints of a
trainer or a library go to standard error. It dies with its parent.

Each of several processes that train together gets a folder and its parent's number instead:
orders and events go through that folder (worker.group). The first process writes all events, the
others only their failures.
"""

import ctypes
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from finishline.rules.errors import RuleError

PR_SET_PDEATHSIG = 1
STATUS = Path("/proc/self/status")
PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)
ORDERS, EVENTS = "orders.json", "events"
OF_ALL = ("failure", "joined", "left")

Answer = dict[str, Any]


class EventWriter:
    """Writes events to the parent, and ends with it. `quiet` keeps to OF_ALL."""

    def __init__(self, stream: int, *, quiet: bool = False) -> None:
        self._stream = stream
        self._quiet = quiet

    def write(self, event: str, **fields: Any) -> None:
        """Write one line, stamped with this process's own wall clock and processor time."""
        if self._quiet and event not in OF_ALL:
            return
        stamps = {"clock": time.perf_counter(), "cpu": time.process_time()}
        line = (json.dumps({"event": event, **stamps, **fields}) + "\n").encode()
        try:
            while line:  # A pipe takes a long line in parts.
                line = line[os.write(self._stream, line) :]
        except BrokenPipeError:
            os._exit(1)


def open_events() -> tuple[dict[str, Any], EventWriter]:
    """Return the orders of this process, and the way for its events."""
    if len(sys.argv) == 3:
        return _join_group(*sys.argv[1:])
    # Orders from standard input, events to the original standard output.
    told = json.loads(sys.stdin.buffer.read())
    die_with_parent(told["parent_pid"])
    events = EventWriter(os.dup(1))
    os.dup2(2, 1)
    return told, events


def _join_group(folder: str, parent_pid: str) -> tuple[dict[str, Any], EventWriter]:
    """Orders and events through a folder. Torch's launcher tells each process its rank."""
    die_with_parent(int(parent_pid))
    stream = os.open(Path(folder) / EVENTS, os.O_WRONLY)
    events = EventWriter(stream, quiet=os.environ["RANK"] != "0")
    told = _shared_orders(json.loads((Path(folder) / ORDERS).read_text()))
    if joins_first_host():
        events.write("joined")
    return told, events


def _shared_orders(own: dict[str, Any]) -> dict[str, Any]:
    """Return the first host's orders, with this host's own entries."""
    if not has_other_hosts():
        return own
    store = open_store()
    if os.environ["RANK"] == "0":
        store.set(ORDERS, json.dumps(own))
    first: dict[str, Any] = json.loads(store.get(ORDERS))
    return first | own


def has_other_hosts() -> bool:
    """Say whether this is a process of a group over several hosts."""
    return os.environ.get("LOCAL_WORLD_SIZE") != os.environ.get("WORLD_SIZE")


def joins_first_host() -> bool:
    """Say whether this process tells the worker of a later host that its training has begun."""
    return os.environ.get("GROUP_RANK", "0") != "0" and os.environ["LOCAL_RANK"] == "0"


def open_store() -> Any:
    """Open the group's shared store, which the first host's launcher keeps."""
    from torch.distributed import TCPStore

    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return TCPStore(address, port, is_master=False)


def answer_orders(answer: Callable[[Answer], Answer]) -> None:
    """Answer the orders of a measuring process with one event, and end the process."""
    told, events = open_events()
    events.write("answer", answer=answer(told))
    end_process(0)


def answer_or_reason(answer: Callable[[Answer], Answer]) -> None:
    """Answer the orders of a bench: {"missing"} with a sentence where the measurement fails."""

    def attempt(told: Answer) -> Answer:
        try:
            return answer(told)
        except (RuleError, MemoryError) as error:
            return {"missing": first_line(error)}
        except Exception as error:  # noqa: BLE001 - a model's code may raise anything
            subject = told.get("model") or told.get("reference") or "the measurement"
            return {"missing": f"{subject}: {type(error).__name__}: {first_line(error)}"}

    answer_orders(attempt)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's words, at most 300 characters."""
    text = str(error).strip().splitlines()
    return (text[0] if text else type(error).__name__)[:300]


def end_process(exit_code: int) -> None:
    """End at once: tearing down torch takes time and can abort."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)


def die_with_parent(parent_pid: int) -> None:
    """Ask the kernel to kill this process when its parent dies (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # It died before the request was made.
        os._exit(1)


def resident_peak_bytes(status: Path = STATUS) -> int | None:
    """Return this program's largest resident set, where /proc says it.

    getrusage would include the parent's memory, because a fork begins as its copy.
    """
    try:
        found = PEAK.search(status.read_text())
    except OSError:
        return None
    return int(found.group(1)) * 1024 if found else None


def accelerator_peak_bytes() -> int | None:
    """Return the most memory that torch allocated on all accelerators, None on a processor."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    return sum(
        int(torch.cuda.max_memory_allocated(index)) for index in range(torch.cuda.device_count())
    )


def tell(kind: str, **facts: object) -> None:
    """Print an event as one line of JSON, at once."""
    print(json.dumps({"kind": kind} | facts), flush=True)
