"""`python -m worker`: a worker that trains one attempt at a time."""

import logging
import sys
from functools import partial
from pathlib import Path

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
from worker.settings import load_settings
from worker.state import WorkerState, guard_stop

log = logging.getLogger(__name__)


def main() -> int:
    """Start the worker with the settings of its environment; returns its exit code."""
    settings = load_settings()
    configure_logging(settings)
    token = settings.token()
    system = probe(
        worker=settings.worker_name,
        hardware_class=settings.hardware_class,
        threads=settings.threads,
        device=settings.device,
    )
    device = settings.device or ("cuda" if system.accelerator_count else "cpu")
    sensors = open_sensors(device, visible=settings.visible_accelerators)
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
            surroundings=describe_surroundings(image_digest=settings.image_digest),
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


if __name__ == "__main__":
    sys.exit(main())
