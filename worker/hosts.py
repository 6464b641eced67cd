"""Several hosts that train one model: they meet by `torch.distributed.run` for each training.

The first host is a worker like any other. `python -m worker --join RANK` on each other host starts
torch's launcher again and again. The launcher waits for the first host's, takes part and ends with
it. Before the runs of an attempt all ranks exchange a message, and the first host compares the
others with itself.
"""

import json
import logging
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from pydantic import TypeAdapter, ValidationError

from finishline.rules.measurements import Figure
from finishline.rules.verification.messages import Failure, Node, WorkerSystem
from worker.child_process import ChildError, ChildProcess, Host
from worker.failures import failure
from worker.machine.probe import class_over, node_of

log = logging.getLogger(__name__)

JOIN_SECONDS = 600.0
CHECK_SECONDS = 120.0
RETRY_SECONDS = 1.0
ALIKE = ("torch", "numpy")


@dataclass(frozen=True)
class Arrival:
    """A host that joins: hardware and versions must be alike on all."""

    node: Node
    hardware_class: str
    processes: int
    software: dict[str, str]

    @classmethod
    def of(cls, system: WorkerSystem, host: Host) -> "Arrival":
        """Describe this host, even if `system` already describes several."""
        node = system.nodes[0] if system.nodes else node_of(system)
        return cls(node, class_over(node, hosts=1), host.processes, system.software)

    def fault_beside(self, first: "Arrival") -> str | None:
        """Name the first difference to the first host, None if they are alike."""
        compared = (
            ("hardware_class", self.hardware_class, first.hardware_class),
            ("FINISHLINE_PROCESSES", self.processes, first.processes),
            *((name, self.software.get(name), first.software.get(name)) for name in ALIKE),
        )
        for field, found, expected in compared:
            if found != expected:
                return (
                    f"{self.node.name} has {field} {found}; expected {expected} as on "
                    f"{first.node.name}"
                )
        return None


@dataclass(frozen=True)
class Met:
    """All hosts in the order of their ranks, and the rate of an all-reduce over them."""

    arrivals: list[Arrival]
    all_reduce: Figure

    @property
    def nodes(self) -> list[Node]:
        return [arrival.node for arrival in self.arrivals]

    def fault(self) -> str | None:
        """Name the first host that differs from the first one, None if all are alike."""
        first, *others = self.arrivals
        return next((fault for each in others if (fault := each.fault_beside(first))), None)


def meet(
    host: Host,
    arrival: Arrival,
    *,
    limit_seconds: float = CHECK_SECONDS,
    stop: Callable[[], object] = lambda: None,
) -> Met | Failure:
    """Exchange a message over all ranks. Returns the hosts, or why they may not train."""
    orders = {"program": "meet", **own_orders(host, arrival)}
    child = ChildProcess(orders, host=host)
    try:
        event = child.first_event(limit_seconds=limit_seconds, stop=stop)
        if event["event"] == "failure":
            return failure(event["code"], event["message"])
        met = TypeAdapter(Met).validate_python(event["met"])
    except ChildError as error:
        if stop():
            return failure("worker_stopped", "the worker got a request to stop")
        return failure("nodes_unfit", f"the all-reduce over the hosts {error}")
    except (KeyError, ValidationError) as error:
        return failure("nodes_unfit", f"unexpected output of the all-reduce: {error}")
    finally:
        child.kill()
    fault = met.fault()
    return met if fault is None else failure("nodes_unfit", fault)


def own_orders(host: Host, arrival: Arrival) -> dict[str, object]:
    """Describe a host in the orders of a group."""
    return {
        "device": host.device,
        "data_dir": str(host.data_dir),
        "arrival": asdict(arrival),
    }


def follow(host: Host, arrival: Arrival, *, idle_seconds: float | None) -> int:
    """Train along with the first host, until it was away for `idle_seconds`. The exit code."""
    idle_since, idle_limit = time.monotonic(), math.inf if idle_seconds is None else idle_seconds
    while True:
        child = ChildProcess(own_orders(host, arrival), host=host)
        last = "nothing"
        try:
            while last != "left":
                line = child.next_line(wait_seconds=1.0)
                if line is not None and line.text is None:
                    break
                if line is not None:
                    event = json.loads(line.text or b"{}")
                    last = event["event"]
                    log.info("%s%s", last, f": {event['message']}" if last == "failure" else "")
                elif last == "nothing" and time.monotonic() - idle_since > idle_limit:
                    return 0
        finally:
            child.kill()  # The launcher would search the first host's for only half a minute.
        if last == "nothing":
            log.warning("no training was joined: %s", child.log_tail().strip()[-500:])
            time.sleep(RETRY_SECONDS)
        else:
            idle_since = time.monotonic()
