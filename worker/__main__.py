"""`python -m worker`: a worker that trains one attempt at a time."""

import logging
import sys
from functools import partial
from pathlib import Path

from finishline.devices import choose_device, find_devices
from finishline.rules.errors import RuleError
from finishline.rules.verification.messages import ReplayJob
from worker.app import make_app, run_worker
from worker.child_process import Host
from worker.entries import box_word
from worker.link import HelloThread, WorkerLink
from worker.logs import configure_logging
from worker.measuring import measure_apart
from worker.probe import describe_surroundings, probe
from worker.replay import AttemptChecks, replay
from worker.self_check import SelfCheck
from worker.sensors import open_sensors
from worker.settings import Settings, load_settings
from worker.state import WorkerState, guard_stop

log = logging.getLogger(__name__)


def main() -> int:
    """Start the worker with the settings of its environment; returns its exit code."""
    settings = load_settings()
    configure_logging(settings)
    token = settings.token()
    device = _device_of(settings)
    system = probe(
        worker=settings.worker_name,
        hardware_class=settings.hardware_class,
        threads=settings.threads,
        device=device,
    )
    sensors = open_sensors(device)
    host = Host(
        device=device,
        data_dir=Path(settings.data_dir),
        threads=settings.threads,
        processes=settings.processes,
        sensors=sensors,
    )
    state = WorkerState()
    box = box_word(entries=settings.entries == "auto")
    log.info("entries: %s", box.entries if box.why is None else f"{box.entries}: {box.why}")
    guard_stop(state)
    measure = partial(measure_apart, stop=lambda: state.stopping)
    with (
        WorkerLink(settings.server_url, token=token) as server,
        HelloThread(server, system, state, box=box) as hello,
        SelfCheck(
            server,
            system,
            state,
            device=device,
            surroundings=describe_surroundings(device, image_digest=settings.image_digest),
            extent=settings.measure,
            roof_file=settings.roof_file,
            measure=measure,
        ) as self_check,
    ):
        if state.refused is not None:
            return state.exit_code
        checks = AttemptChecks(
            self_check,
            device=device,
            data_dir=host.data_dir,
            threads=settings.threads,
            audits=settings.measure == "all",
            measure=measure,
        )

        def make_attempt(job: ReplayJob) -> None:
            replay(job, server=server, system=system, host=host, state=state, checks=checks)

        app = make_app(
            settings.broker_address(),
            name=system.worker,
            make_attempt=make_attempt,
            state=state,
            on_free=hello.say_soon,
        )
        return run_worker(
            app,
            name=system.worker,
            state=state,
            stop_grace_seconds=settings.stop_grace_seconds,
        )


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
