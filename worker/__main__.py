"""`python -m worker`: a worker that trains one attempt at a time."""

import argparse
import logging
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from finishline.devices import choose_device, find_devices
from finishline.rules.errors import RuleError
from finishline.rules.verification.messages import WorkerSystem
from worker.child_process import Host
from worker.entries import box_word
from worker.follower import follow
from worker.hosts import Arrival, Hosts, HostsError, read_endpoint
from worker.intake import Poller, make_app, run_celery
from worker.link import HelloThread, WorkerLink
from worker.probe import class_over, describe_surroundings, node_of, probe, system_over
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
        "--nnodes", type=_positive(int), metavar="N", help="train over N hosts, of which this leads"
    )
    parser.add_argument(
        "--rdzv-endpoint",
        type=_endpoint,
        metavar="HOST:PORT",
        help="the first of several hosts by a name that the others reach, and a free port there",
    )
    parser.add_argument(
        "--follow", action="store_true", help="train along with the first host; needs no server"
    )
    options = parser.parse_args(arguments)
    if (options.rdzv_endpoint is not None) != (options.follow or (options.nnodes or 1) > 1):
        parser.error(
            "several hosts: expected --rdzv-endpoint HOST:PORT with --nnodes N, N from 2, on the "
            "first, and with --follow on each other"
        )
    return options


def _endpoint(text: str) -> tuple[str, int]:
    try:
        return read_endpoint(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


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
    broker = None if options.pull or options.follow else settings.broker_address()
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
    if options.follow:
        endpoint, key = options.rdzv_endpoint, settings.hosts_secret()
        return follow(endpoint, key=key, arrival=_arrival(system, settings), host=host)
    token = settings.token()
    state = WorkerState(limits=Limits(options.max_attempts, options.exit_when_idle))
    if options.rdzv_endpoint is None:
        return work(settings, token=token, broker=broker, system=system, host=host, state=state)
    with _gather(options, settings, system, state) as hosts:
        system = system_over(system, hosts.nodes, hardware_class=settings.hardware_class)
        host = replace(host, hosts=hosts)
        return work(settings, token=token, broker=broker, system=system, host=host, state=state)


def _arrival(system: WorkerSystem, settings: Settings) -> Arrival:
    """This host in the words that it joins others with."""
    node = node_of(system)
    return Arrival(node, class_over(node, hosts=1), settings.processes, system.software)


@contextmanager
def _gather(
    options: argparse.Namespace, settings: Settings, system: WorkerSystem, state: WorkerState
) -> Iterator[Hosts]:
    """All hosts of the allocation. Stops the program with a sentence if they do not come."""

    def note(complete: bool) -> None:
        state.incomplete = not complete

    address, port = options.rdzv_endpoint
    try:
        hosts = Hosts(
            options.nnodes,
            address=address,
            port=port,
            key=settings.hosts_secret(),
            own=_arrival(system, settings),
            on_change=note,
        )
    except OSError as error:
        sys.exit(f"--rdzv-endpoint: no connection can be taken at port {port}: {error}")
    try:
        hosts.wait()
        yield hosts
    except HostsError as error:
        sys.exit(str(error))
    finally:
        hosts.close()


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
            roof_file=settings.roof_file,
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
            if state.stopping or state.is_done or state.incomplete:  # It was drawn just before.
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
    if host.hosts is not None:
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
