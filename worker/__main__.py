"""`python -m worker`: a worker that trains one attempt at a time."""

import logging
import sys
import time
from pathlib import Path

from finishline.devices import choose_device, find_devices
from finishline.rules.errors import RuleError
from finishline.rules.verification.messages import Failure, WorkerSystem
from worker.child_process import Host
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


def serve(*, pull: bool, limits: Limits, meeting: Meeting | None) -> int:
    """Start the worker with the settings of its environment. Returns its exit code.

    With `pull` it polls the server instead of a broker. At a `meeting` it trains with the workers
    of other hosts, as the first one or along with it.
    """
    settings = load_settings()
    joins = meeting is not None and meeting.rank > 0
    broker = None if pull or joins else settings.broker_address()
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
        # The first of several hosts would measure only a part of the energy.
        sensors=open_sensors(device) if meeting is None else None,
        meeting=meeting,
    )
    arrival = Arrival.of(system, host)
    if joins:
        return follow(host, arrival, idle_seconds=limits.idle_seconds)
    token = settings.token()
    if meeting is not None:
        met = meet(host, arrival, limit_seconds=JOIN_SECONDS)
        if isinstance(met, Failure):
            sys.exit(f"{met.message}; start the others with --join")
        system = system_over(system, met.nodes, hardware_class=settings.hardware_class)
    state = WorkerState(limits=limits, grace_seconds=settings.stop_grace_seconds)
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
    log.info("entries: %s", box)
    guard_stop(state)
    with (
        WorkerLink(settings.server_url, token=token) as server,
        HelloThread(server, system, state, box=box, polls=broker is None) as hello,
        SelfCheck(
            server,
            system,
            state,
            host,
            surroundings=describe_surroundings(host.device, image_digest=settings.image_digest),
            extent=settings.measure,
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
        if broker is None:
            return poll(server, name=system.worker, make_attempt=make_attempt, state=state)
        app = make_app(broker, name=system.worker, make_attempt=make_attempt)
        return run_celery(app, name=system.worker, state=state)


def _why_no_packages(settings: Settings, host: Host) -> str | None:
    if host.meeting is not None:
        return "code submissions are trained on one host, and this worker has several"
    return "FINISHLINE_ENTRIES is off" if settings.entries == "off" else None


def _device_of(settings: Settings) -> str:
    """Return the device named, the first accelerator or cpu. Several processes take all GPUs."""
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
