"""`python -m worker`: a worker that trains one attempt at a time."""

import logging
import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from finishline.devices import choose_device, find_devices
from finishline.rules.errors import RuleError
from finishline.rules.verification.messages import Failure, WorkerSystem
from worker.child_process import Host, measure_apart
from worker.entries import box_word
from worker.group import Meeting
from worker.hosts import JOIN_SECONDS, Arrival, follow, meet
from worker.intake import make_app, poll, run_celery
from worker.link import HelloThread, WorkerLink
from worker.machine.probe import describe_surroundings, probe, system_over
from worker.machine.self_check import SelfCheck
from worker.machine.sensors import open_sensors
from worker.replay import Attempts
from worker.settings import Settings, configure_logging, load_settings
from worker.state import Limits, WorkerState, guard_stop

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Options:
    """Options of the command line. `pull` asks the server itself for work, without a broker.

    Of `nnodes` hosts that meet at the `rdzv_endpoint` this one joins as the rank `join`, or is the
    first.
    """

    pull: bool = False
    max_attempts: int | None = None
    exit_when_idle: float | None = None
    nnodes: int = 1
    rdzv_endpoint: tuple[str, int] | None = None
    join: int = 0

    def __post_init__(self) -> None:
        if (self.rdzv_endpoint is not None) != (self.nnodes > 1) or self.join >= self.nnodes:
            raise ValueError(
                "several hosts: expected --nnodes N, N from 2, and --rdzv-endpoint HOST:PORT on "
                "all, and --join RANK, from 1 to N - 1, on each but the first"
            )


def serve(options: Options) -> int:
    """Start the worker with the settings of its environment. Returns its exit code."""
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
        meeting = Meeting(options.nnodes, options.join, *options.rdzv_endpoint)
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
    """Make one attempt after the other, from the broker or else from the server. The exit code."""
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
            data_dir=host.data_dir,
            surroundings=describe_surroundings(host.device, image_digest=settings.image_digest),
            extent=settings.measure,
            measure=measure,
            measure_gently=gently,
        ) as checks,
    ):
        if state.refused is not None:
            return state.exit_code

        attempts = Attempts(server, system, host, state, checks)

        def make_attempt(attempt_id: str) -> bool:
            if state.stopping or state.is_done:  # It was drawn just before.
                log.info("attempt %s is left to another worker", attempt_id)
                return False
            try:
                with state.at_work():
                    made = attempts.make(attempt_id)
                    state.made += made
            finally:
                hello.say_soon()
            return made

        state.idle_since = time.monotonic()
        name, grace = system.worker, settings.stop_grace_seconds
        if broker is None:
            return poll(
                server,
                name=name,
                make_attempt=make_attempt,
                state=state,
                stop_grace_seconds=grace,
            )
        app = make_app(broker, name=name, make_attempt=make_attempt)
        return run_celery(app, name=name, state=state, stop_grace_seconds=grace)


def _why_no_packages(settings: Settings, host: Host) -> str | None:
    if host.meeting is not None:
        return "code submissions are trained on one host, and this worker has several"
    return "FINISHLINE_ENTRIES is off" if settings.entries == "off" else None


def _device_of(settings: Settings) -> str:
    """The device named, or the first accelerator, or all for several processes. Else cpu.

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


def main(arguments: list[str] | None = None) -> int:
    """Read the command line as `finishline worker` does, and start the worker."""
    from worker.commands.probe import run

    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
