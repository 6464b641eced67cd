"""`python -m worker`: a worker that trains one attempt at a time."""

import argparse
import logging
import math
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from finishline.devices import choose_device, find_devices
from finishline.rules.errors import RuleError
from finishline.rules.verification.messages import Failure, WorkerSystem
from worker.child_process import Host
from worker.entries import box_word
from worker.group import Meeting
from worker.hosts import JOIN_SECONDS, Arrival, follow, meet
from worker.intake import Poller, make_app, run_celery
from worker.link import HelloThread, WorkerLink
from worker.probe import describe_surroundings, probe, system_over
from worker.processes import measure_apart
from worker.replay import AttemptChecks, replay
from worker.self_check import SelfCheck
from worker.sensors import open_sensors
from worker.settings import Settings, configure_logging, load_settings
from worker.state import Limits, WorkerState, guard_stop

log = logging.getLogger(__name__)


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options of the command line. Stops the program with a sentence if one is wrong."""
    parser = argparse.ArgumentParser(prog="python -m worker", description=__doc__)
    parser.add_argument(
        "--pull",
        action="store_true",
        help="ask the server itself for work: no broker is reached, and none has to be set",
    )
    parser.add_argument(
        "--max-attempts", type=_positive(int), metavar="N", help="end after this many attempts"
    )
    parser.add_argument(
        "--exit-when-idle",
        type=_positive(float),
        metavar="SECONDS",
        help="end after this long without an attempt",
    )
    parser.add_argument(
        "--nnodes", type=_positive(int), metavar="N", help="train over N hosts, from 2"
    )
    parser.add_argument(
        "--rdzv-endpoint",
        type=_endpoint,
        metavar="HOST:PORT",
        help="the first of several hosts by a name that the others reach, and a free port there",
    )
    parser.add_argument(
        "--join",
        type=_positive(int),
        metavar="RANK",
        help="train along as the host of this rank, from 1; needs no server",
    )
    options = parser.parse_args(arguments)
    hosts = options.nnodes or 1
    if (options.rdzv_endpoint is not None) != (hosts > 1) or (options.join or 0) >= hosts:
        parser.error(
            "several hosts: expected --nnodes N, N from 2, and --rdzv-endpoint HOST:PORT on all, "
            "and --join RANK, from 1 to N - 1, on each but the first"
        )
    return options


def _endpoint(text: str) -> tuple[str, int]:
    address, _, port = text.rpartition(":")
    if not address or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise argparse.ArgumentTypeError(f"{text}: expected HOST:PORT, as in node-1:29400")
    return address.strip("[]"), int(port)


def _positive(kind: Callable[[str], float]) -> Callable[[str], float]:
    """Reader of a finite number above 0."""

    def read(text: str) -> float:
        value = kind(text)
        if not 0 < value < math.inf:
            raise argparse.ArgumentTypeError(f"{text}: expected a number above 0")
        return value

    read.__name__ = "number" if kind is float else "whole number"
    return read


def main(arguments: list[str] | None = None) -> int:
    """Start the worker with the settings of its environment; returns its exit code."""
    options = parse_arguments(arguments)
    settings = load_settings()
    broker = None if options.pull or options.join else settings.broker_address()
    configure_logging(settings)
    device = _device_of(settings)
    system = probe(
        worker=settings.worker_name,
        hardware_class=settings.hardware_class,
        threads=settings.threads,
        device=device,
    )
    host = Host(
        device=device,
        data_dir=Path(settings.data_dir),
        threads=settings.threads,
        processes=settings.processes,
        box=settings.box,
        has_compiler=settings.compiler == "gcc",
        # Those of the first of several hosts would tell a part of the energy.
        sensors=open_sensors(device) if options.rdzv_endpoint is None else None,
    )
    if options.rdzv_endpoint is not None:
        meeting = Meeting(options.nnodes, options.join or 0, *options.rdzv_endpoint)
        host = replace(host, meeting=meeting)
    if options.join:
        arrival = Arrival.of(system, host)
        return follow(host, arrival, idle_seconds=options.exit_when_idle)
    token = settings.token()
    if host.meeting is not None:
        met = meet(host, Arrival.of(system, host), limit_seconds=JOIN_SECONDS)
        if isinstance(met, Failure):
            sys.exit(f"{met.message}; start the others with --join")
        system = system_over(system, met.nodes, hardware_class=settings.hardware_class)
    state = WorkerState(limits=Limits(options.max_attempts, options.exit_when_idle))
    return work(settings, token=token, broker=broker, system=system, host=host, state=state)


def work(
    settings: Settings,
    *,
    token: str,
    broker: str | None,
    system: WorkerSystem,
    host: Host,
    state: WorkerState,
) -> int:
    """Make one attempt after the other, from the broker or else from the server; the exit code."""
    box = box_word(host=host, off=_why_no_packages(settings, host))
    log.info("entries: %s", box.entries if box.why is None else f"{box.entries}: {box.why}")
    guard_stop(state)
    measure = partial(measure_apart, stop=lambda: state.stopping)
    gently = partial(measure_apart, stop=lambda: state.stopping or state.busy, niceness=19)
    with (
        WorkerLink(settings.server_url, token=token) as server,
        HelloThread(server, system, state, box=box, polls=broker is None) as hello,
        SelfCheck(
            server,
            system,
            state,
            device=host.device,
            surroundings=describe_surroundings(host.device, image_digest=settings.image_digest),
            extent=settings.measure,
            measure=measure,
            measure_gently=gently,
        ) as self_check,
    ):
        if state.refused is not None:
            return state.exit_code
        checks = AttemptChecks(
            self_check,
            device=host.device,
            data_dir=host.data_dir,
            threads=settings.threads,
            audits=settings.measure == "all",
            measure=measure,
        )

        def make_attempt(attempt_id: str) -> bool:
            if state.stopping or state.is_done:  # It was drawn just before.
                log.info("attempt %s is left to another worker", attempt_id)
                return False
            try:
                with state.at_work():
                    made = replay(
                        attempt_id,
                        server=server,
                        system=system,
                        host=host,
                        state=state,
                        checks=checks,
                    )
                    state.made += made
            finally:
                hello.say_soon()
            return made

        state.idle_since = time.monotonic()
        name, grace = system.worker, settings.stop_grace_seconds
        if broker is None:
            return Poller(
                server,
                name=name,
                make_attempt=make_attempt,
                state=state,
                stop_grace_seconds=grace,
            ).run()
        app = make_app(broker, name=name, make_attempt=make_attempt)
        return run_celery(app, name=name, state=state, stop_grace_seconds=grace)


def _why_no_packages(settings: Settings, host: Host) -> str | None:
    if host.meeting is not None:
        return "code submissions are trained on one host, and this worker has several"
    return "FINISHLINE_ENTRIES is off" if settings.entries == "off" else None


def _device_of(settings: Settings) -> str:
    """The device named, or the first accelerator, or all for several processes; else cpu.

    Stops the program with a sentence if the device is not here.
    """
    found = find_devices()
    if found.problem is not None:
        log.warning(found.problem)
    try:
        device = choose_device(settings.device, found)
    except RuleError as error:
        sys.exit(f"FINISHLINE_DEVICE: {error}")
    return "cuda" if settings.processes > 1 and device == "cuda:0" else device


if __name__ == "__main__":
    sys.exit(main())
