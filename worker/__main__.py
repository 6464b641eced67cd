"""`python -m worker`: a worker that trains one attempt at a time."""

import argparse
import logging
import math
import sys
import time
from collections.abc import Callable
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
from worker.pull import Puller
from worker.replay import AttemptChecks, replay
from worker.self_check import SelfCheck
from worker.sensors import open_sensors
from worker.settings import Settings, load_settings
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
    return parser.parse_args(arguments)


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
    broker = None if options.pull else settings.broker_address()
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
    state = WorkerState(limits=Limits(options.max_attempts, options.exit_when_idle))
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
            if state.is_done:  # A message that came before the queue was closed: it is sent again.
                log.info("attempt %s is left to another worker: this one ends", job.attempt_id)
            elif replay(job, server=server, system=system, host=host, state=state, checks=checks):
                state.made += 1

        state.idle_since = time.monotonic()
        if broker is None:
            return Puller(
                server,
                name=system.worker,
                make_attempt=make_attempt,
                state=state,
                on_free=hello.say_soon,
                stop_grace_seconds=settings.stop_grace_seconds,
            ).run()
        app = make_app(
            broker,
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
