"""The worker's own speed: a canary before and after each attempt, roofs once after the start."""

import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, Self, TypeVar

from pydantic import TypeAdapter, ValidationError

from finishline.client.transport import FinishlineError
from finishline.periodic import PeriodicThread
from finishline.rules.measurements import (
    Canary,
    Figure,
    ModelWork,
    PrecisionAudit,
    ProbeAnswer,
    ProbeMoment,
    WorkerProbe,
)
from finishline.rules.verification.messages import ReplayJob, WorkerSystem
from worker.child_process import Host, Measure, measure_apart
from worker.events import Answer
from worker.link import WorkerLink
from worker.state import WorkerState

log = logging.getLogger(__name__)

T = TypeVar("T")
Extent = Literal["all", "roofs", "off"]

TRIES = 3
PROBE_LIMIT_SECONDS = 20.0
START_SECONDS = 40.0  # A process that loads torch from a cold disk, before the probe's time.
RECHECK_SECONDS = 60.0
FRESH_SECONDS = 5.0
LOOK_SECONDS = 0.5
QUIET_SECONDS = 20.0  # Idle time before the roofs are measured in the background.
VERSIONS = ("torch", "cuda", "hip")
CANARY_FIGURES = ("gemm_bf16", "gemm_fp32")
TERA_IN_GIGA = 1_000.0
AUDIT_LIMIT_SECONDS = 120.0


@dataclass(frozen=True)
class Checked:
    """The last canary of a check and the server's answer."""

    canary: Canary | None = None
    answer: ProbeAnswer | None = None

    @property
    def drift(self) -> str | None:
        """Say why this worker is out, None while it is in."""
        if self.answer is None or not self.answer.drifted:
            return None
        return self.answer.message or "off its own baseline"


@dataclass(frozen=True)
class Audited:
    """Precision and work of a training. None if unknown."""

    precision: PrecisionAudit | None = None
    work: ModelWork | None = None


@dataclass(eq=False)
class SelfCheck:
    """Measures one thing at a time, only between trainings.

    Entered, it starts a thread. With `extent` "all" the thread probes the roofs, and later measures
    once a minute whether a worker that is out is well again. With "roofs" it skips the canaries
    around attempts: the thread measures one as the hardware class's roof if the server wants it,
    and the roofs after some idle time. An attempt breaks these off, and they leave the processor to
    others.
    """

    server: WorkerLink
    system: WorkerSystem
    state: WorkerState
    host: Host
    surroundings: dict[str, str | None]
    extent: Extent = "all"
    measure: Callable[..., Answer | None] = measure_apart
    recheck_seconds: float = RECHECK_SECONDS
    quiet_seconds: float = QUIET_SECONDS

    def __post_init__(self) -> None:
        state = self.state
        self._measure: Measure = partial(self.measure, stop=lambda: state.stopping)
        self._measure_gently: Measure = partial(
            self.measure, stop=lambda: state.stopping or state.busy, niceness=19
        )
        self._one_at_a_time = threading.Lock()
        self._is_out = False
        self._after: tuple[float, Checked] | None = None
        self._audits: dict[str, Audited] = {}
        self._start: WorkerProbe | None = None
        self._roof_sent = self._start_sent = False
        all_of_it = self.extent == "all"
        step = self._look_after if all_of_it else self._measure_in_background
        seconds = self.recheck_seconds if all_of_it else LOOK_SECONDS
        self._thread = PeriodicThread("self-check", seconds, step)

    def __enter__(self) -> Self:
        if self.extent != "off":
            self._thread.wake()
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.stop(join_seconds=0.0)  # A measurement under way ends with the process.

    def check(self, moment: ProbeMoment, *, attempt_id: str | None = None) -> Checked:
        """Measure the canary, again if it is off, and tell the server each time.

        The reading after one attempt also serves as the reading before the next, if it is well and
        a few seconds old.
        """
        if self.extent != "all":
            return Checked()
        with self._one_at_a_time:
            after, self._after = self._after, None
            if moment == "before" and after is not None and time.monotonic() < after[0]:
                return after[1]
            checked = self._check(moment, attempt_id)
            if moment == "after" and checked.canary is not None and checked.drift is None:
                self._after = (time.monotonic() + FRESH_SECONDS, checked)
            return checked

    def audit(self, job: ReplayJob) -> Audited:
        """Find precision and work of a job's training, once for a reference with its settings."""
        wanted = next((each for each in job.trainings if "profile" in each.measure), None)
        if self.extent != "all" or wanted is None:
            return Audited()
        orders = {
            "reference": wanted.package,
            "hyperparameters": wanted.settings,
            "precision": wanted.precision,
            "device": self.host.device,
            "data_dir": str(self.host.data_dir),
            "threads": self.system.threads,
        }
        key = json.dumps(orders, sort_keys=True)
        if key not in self._audits:
            answer = self._measure("worker.machine.precision", orders, AUDIT_LIMIT_SECONDS)
            self._audits[key] = _read(answer, Audited) or Audited()
        return self._audits[key]

    def _look_after(self) -> None:
        """Measure the roofs at the start and report them. Later measure a worker that is out."""
        with self._one_at_a_time:
            if self._start is None:
                self._start = self._probe_roofs(self._measure, canary=self._canary())
            if not self._start_sent:
                answer = self._tell(self._start)
                self._start_sent = answer is not None
                self._note(answer)
            elif self._is_out and not self.state.busy:
                self._check("recheck", None)

    def _measure_in_background(self) -> None:
        """Measure the class's roof when the server asks, and the roofs when idle.

        An attempt breaks off the roofs, which are tried again. They come without a canary, because
        other work may have disturbed it.
        """
        if self.state.busy:
            return
        if self.state.roof_wanted and not self._roof_sent:
            self._roof_sent = True
            if (canary := self._canary()) is not None:
                self._tell(WorkerProbe(self.system.worker, moment="roof", canary=canary))
            return
        is_quiet = time.monotonic() - self.state.idle_since >= self.quiet_seconds
        if is_quiet and not self._start_sent:
            probe = self._probe_roofs(self._measure_gently, canary=None)
            self._start_sent = bool(probe.figures) or not self.state.busy
            if probe.figures:
                self._tell(probe)

    def _check(self, moment: ProbeMoment, attempt_id: str | None) -> Checked:
        checked = Checked()
        for _ in range(TRIES):
            canary = self._canary()
            if canary is None:
                break
            probe = WorkerProbe(
                worker=self.system.worker, moment=moment, canary=canary, attempt_id=attempt_id
            )
            checked = Checked(canary, self._tell(probe))
            if checked.drift is None:
                break
        self._note(checked.answer)
        return checked

    def _canary(self) -> Canary | None:
        if not self.host.device.startswith("cuda"):
            return _read(self._measure("worker.machine.canary", {}, START_SECONDS), Canary)
        answer = self._peaks(self._measure, only=CANARY_FIGURES)
        figures = _read(answer.get("figures"), dict[str, Figure]) or {}
        for name in CANARY_FIGURES:
            figure = figures.get(name)
            if figure is not None and figure.value is not None:
                configuration = f"torch {answer.get('torch')} {name} on {self.system.accelerator}"
                return Canary(TERA_IN_GIGA * figure.value, configuration, figure.how)
        return None

    def _probe_roofs(self, measure: Measure, *, canary: Canary | None) -> WorkerProbe:
        found = self._peaks(measure, threads=self.system.threads)
        versions = {name: found.get(name) for name in VERSIONS} if found else {}
        return WorkerProbe(
            worker=self.system.worker,
            moment="start",
            canary=canary,
            figures=_read(found.get("figures"), dict[str, Figure]) or {},
            host=self.surroundings | versions,
        )

    def _peaks(self, measure: Measure, **more: object) -> Answer:
        orders = {"device": self.host.device, "limit_seconds": PROBE_LIMIT_SECONDS} | more
        return measure("worker.machine.peak", orders, PROBE_LIMIT_SECONDS + START_SECONDS) or {}

    def _tell(self, probe: WorkerProbe) -> ProbeAnswer | None:
        try:
            return self.server.probe(probe)
        except (FinishlineError, ValueError) as error:
            log.warning("the server did not take a probe: %s", error)
            return None

    def _note(self, answer: ProbeAnswer | None) -> None:
        if answer is not None and answer.drifted != self._is_out:
            self._is_out = answer.drifted
            word = f"out: {answer.message}" if answer.drifted else "in again"
            log.warning("this worker is %s", word)


def _read(answer: object, kind: type[T]) -> T | None:
    """Read an answer as a value of its type. Another answer is logged and returns None."""
    if answer is None:
        return None
    try:
        return TypeAdapter(kind).validate_python(answer)
    except ValidationError as error:
        log.warning("a measurement answered with something else: %s", error)
        return None
