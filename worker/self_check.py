"""The worker's own speed: a canary before and after each attempt, roofs now and then."""

import json
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from pydantic import TypeAdapter, ValidationError

from finishline.client.transport import FinishlineError
from finishline.periodic import PeriodicThread
from finishline.rules.measurements import (
    Canary,
    Figure,
    ProbeAnswer,
    ProbeMoment,
    WorkerProbe,
)
from finishline.rules.verification.messages import WorkerSystem
from worker.link import WorkerLink
from worker.processes import Answer, Measure, measure_apart
from worker.state import WorkerState

log = logging.getLogger(__name__)


Measured = TypeVar("Measured", Canary, WorkerProbe)


def read_kept(path: Path, kind: type[Measured]) -> dict[str, Measured]:
    """Measurements by hardware class from a JSON file; one that cannot be read is empty."""
    kept: TypeAdapter[dict[str, Measured]] = TypeAdapter(dict[str, kind])  # type: ignore[valid-type]
    try:
        return kept.validate_json(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValidationError) as error:
        log.warning("the measurements in %s cannot be read: %s", path, error)
        return {}


def keep(path: Path, kept: Mapping[str, Canary | WorkerProbe]) -> None:
    """Write measurements to a file. One that cannot be written is a line in the log."""
    table = {hardware_class: asdict(measured) for hardware_class, measured in kept.items()}
    beside = path.with_suffix(".new")
    try:
        beside.write_text(json.dumps(table, indent=2) + "\n")
        beside.replace(path)
    except OSError as error:
        log.warning("the measurement cannot be kept in %s: %s", path, error)


Extent = Literal["all", "canary", "off"]

TRIES = 3
PROBE_LIMIT_SECONDS = 20.0
START_SECONDS = 40.0  # A process that loads torch from a cold disk; no part of the probe's time.
RECHECK_SECONDS = 60.0
FRESH_SECONDS = 5.0
ROOF_SECONDS = 0.5
QUIET_SECONDS = 20.0  # Without an attempt, before the roofs are measured in the background.
VERSIONS = ("torch", "cuda", "hip")
CANARY_FIGURES = ("gemm_bf16", "gemm_fp32")
TERA_IN_GIGA = 1_000.0


@dataclass(frozen=True)
class Checked:
    """The last canary of a check and the server's answer to it; None, None without one."""

    canary: Canary | None = None
    answer: ProbeAnswer | None = None

    @property
    def drift(self) -> str | None:
        """The sentence that says why this worker is out, None while it is in."""
        if self.answer is None or not self.answer.drifted:
            return None
        return self.answer.message or "off its own baseline"


class SelfCheck:
    """Measures one thing at a time, and nothing while a training runs.

    `extent` "canary" leaves the roofs out, "off" everything. Entered, it starts a thread that
    probes the roofs and later measures a worker that is out again, once a minute. With a
    `roof_file` a worker that measures nothing tells the roof of its hardware class, if the server
    wants one: as kept in that file, else measured once and kept there. Once it was without an
    attempt for a while it measures its roofs as well, by `measure_gently`, and keeps them beside.
    """

    def __init__(
        self,
        server: WorkerLink,
        system: WorkerSystem,
        state: WorkerState,
        *,
        device: str,
        surroundings: Mapping[str, str | None],
        extent: Extent = "all",
        roof_file: Path | None = None,
        measure: Measure = measure_apart,
        measure_gently: Measure = measure_apart,
        recheck_seconds: float = RECHECK_SECONDS,
        quiet_seconds: float = QUIET_SECONDS,
    ) -> None:
        self._server = server
        self._system = system
        self._state = state
        self._device = device
        self._surroundings = dict(surroundings)
        self._extent = extent
        self._measure = measure
        self._measure_gently = measure_gently
        self._quiet_seconds = quiet_seconds
        self._roof_told = False
        self._one_at_a_time = threading.Lock()
        self._has_begun = False
        self._is_out = False
        self._after: tuple[float, Checked] | None = None
        self._untold: WorkerProbe | None = None
        self._thread: PeriodicThread | None = None
        if extent != "off":
            self._thread = PeriodicThread("self-check", recheck_seconds, self._look_after)
        elif roof_file is not None:
            keep = partial(self._keep_measurements, roof_file)
            self._thread = PeriodicThread("self-check", ROOF_SECONDS, keep)

    def __enter__(self) -> Self:
        if self._thread is not None:
            self._thread.wake()
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            self._thread.stop(join_seconds=0.0)  # A measurement under way ends with the process.

    def check(self, moment: ProbeMoment, *, attempt_id: str | None = None) -> Checked:
        """Measure the canary, again if it is off, and tell the server each time.

        A reading after one attempt that is well and a few seconds old is the next one's before.
        """
        if self._extent == "off":
            return Checked()
        with self._one_at_a_time:
            after, self._after = self._after, None
            if moment == "before" and after is not None and time.monotonic() < after[0]:
                return after[1]
            checked = self._check(moment, attempt_id)
            if moment == "after" and checked.canary is not None and checked.drift is None:
                self._after = (time.monotonic() + FRESH_SECONDS, checked)
            return checked

    def probe(self) -> None:
        """Measure the roofs and a canary, and tell the server with the surroundings."""
        with self._one_at_a_time:
            probe = replace(self._roofs(self._measure), canary=self._canary())
            answer = self._tell(probe)
            self._untold = probe if answer is None else None
            self._take_answer(answer)

    def _keep_measurements(self, file: Path) -> None:
        """Tell the class's roof as soon as the server asks for it, and the roofs once it is quiet.

        Each is measured once, while there is no attempt.
        """
        if self._state.busy:
            return
        if self._state.roof_wanted and not self._roof_told:
            self._roof_told = True
            self._tell_roof(file)
        elif time.monotonic() - self._state.idle_since >= self._quiet_seconds:
            self._tell_figures(file.with_name("measured.json"))

    def _tell_figures(self, file: Path) -> None:
        """Measure the roofs unless they are kept. Broken off for an attempt, they are tried again.

        They come without a canary: one from beside other work is no baseline.
        """
        kept = read_kept(file, WorkerProbe)
        if self._system.hardware_class not in kept:
            probe = self._roofs(self._measure_gently)
            if not probe.figures and self._state.busy:
                return
            if probe.figures and self._tell(probe) is not None:
                keep(file, kept | {self._system.hardware_class: probe})
        if self._thread is not None and (self._roof_told or not self._state.roof_wanted):
            self._thread.end()

    def _tell_roof(self, file: Path) -> None:
        kept = read_kept(file, Canary)
        canary = kept.get(self._system.hardware_class)
        if canary is None and (canary := self._canary()) is not None:
            keep(file, kept | {self._system.hardware_class: canary})
        if canary is not None:
            self._tell(WorkerProbe(self._system.worker, moment="roof", canary=canary))

    def _check(self, moment: ProbeMoment, attempt_id: str | None) -> Checked:
        checked = Checked()
        for _ in range(TRIES):
            canary = self._canary()
            if canary is None:
                return checked
            probe = WorkerProbe(
                worker=self._system.worker, moment=moment, canary=canary, attempt_id=attempt_id
            )
            checked = Checked(canary, self._tell(probe))
            if checked.drift is None:
                break
        self._take_answer(checked.answer)
        return checked

    def _canary(self) -> Canary | None:
        if not self._device.startswith("cuda"):
            answer = self._measure("worker.canary", {}, START_SECONDS)
            return None if answer is None else _read(answer, Canary)
        orders = {
            "device": self._device,
            "only": CANARY_FIGURES,
            "limit_seconds": PROBE_LIMIT_SECONDS,
        }
        answer = self._measure("worker.roofs", orders, PROBE_LIMIT_SECONDS + START_SECONDS)
        return None if answer is None else self._canary_of_roofs(answer)

    def _canary_of_roofs(self, answer: Answer) -> Canary | None:
        figures = _read(answer.get("figures", {}), dict[str, Figure]) or {}
        for name in CANARY_FIGURES:
            figure = figures.get(name)
            if figure is not None and figure.value is not None:
                configuration = f"torch {answer.get('torch')} {name} on {self._system.accelerator}"
                return Canary(TERA_IN_GIGA * figure.value, configuration, figure.how)
        return None

    def _roofs(self, measure: Measure) -> WorkerProbe:
        orders = {
            "device": self._device,
            "limit_seconds": PROBE_LIMIT_SECONDS,
            "threads": self._system.threads,
        }
        answer = measure("worker.roofs", orders, PROBE_LIMIT_SECONDS + START_SECONDS)
        found: Answer = {} if answer is None else answer
        versions = {} if answer is None else {name: found.get(name) for name in VERSIONS}
        return WorkerProbe(
            worker=self._system.worker,
            moment="start",
            figures=_read(found.get("figures", {}), dict[str, Figure]) or {},
            host=self._surroundings | versions,
        )

    def _tell(self, probe: WorkerProbe) -> ProbeAnswer | None:
        try:
            return self._server.probe(probe)
        except (FinishlineError, ValueError) as error:
            log.warning("the server did not take a probe: %s", error)
            return None

    def _take_answer(self, answer: ProbeAnswer | None) -> None:
        if answer is None:
            return
        if answer.drifted and not self._is_out:
            log.warning("this worker is out: %s", answer.message)
        if self._is_out and not answer.drifted:
            log.info("this worker is in again")
        self._is_out = answer.drifted

    def _look_after(self) -> None:
        """Measure at the start; later a worker that is out again, and send an unheard probe."""
        if not self._has_begun:
            self._has_begun = True
            if self._extent == "all":
                self.probe()
            else:
                self.check("start")
            return
        with self._one_at_a_time:
            if self._untold is not None and self._tell(self._untold) is not None:
                self._untold = None
            if self._is_out and not self._state.busy:
                self._check("recheck", None)


def _read(answer: object, kind: Any) -> Any:
    try:
        return TypeAdapter(kind).validate_python(answer)
    except ValidationError as error:
        log.warning("a measurement answered with something else: %s", error)
        return None
