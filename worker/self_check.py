"""The worker's own speed: a canary before and after each attempt, roofs now and then."""

import json
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from pydantic import TypeAdapter, ValidationError

from finishline.client.transport import FinishlineError
from finishline.periodic import PeriodicThread
from finishline.rules.scoring.measurements import (
    Canary,
    Figure,
    ProbeAnswer,
    ProbeMoment,
    WorkerProbe,
)
from finishline.rules.verification.messages import WorkerSystem
from worker.link import WorkerLink
from worker.measuring import Answer, Measure, measure_apart
from worker.state import WorkerState

log = logging.getLogger(__name__)


class KeptRoofs:
    """A JSON file with a canary for each hardware class; one that cannot be read is empty."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, hardware_class: str) -> Canary | None:
        """The roof of a class, None if it was never measured."""
        return self._read_all().get(hardware_class)

    def write(self, hardware_class: str, canary: Canary) -> None:
        """Keep the roof of a class. A file that cannot be written is a line in the log."""
        kept = self._read_all() | {hardware_class: canary}
        table = {name: asdict(roof) for name, roof in kept.items()}
        beside = self._path.with_suffix(".new")
        try:
            beside.write_text(json.dumps(table, indent=2) + "\n")
            beside.replace(self._path)
        except OSError as error:
            log.warning("the roof cannot be kept in %s: %s", self._path, error)

    def _read_all(self) -> dict[str, Canary]:
        try:
            return TypeAdapter(dict[str, Canary]).validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValidationError) as error:
            log.warning("the roofs in %s cannot be read: %s", self._path, error)
            return {}


Extent = Literal["all", "canary", "off"]

TRIES = 3
PROBE_LIMIT_SECONDS = 20.0
START_SECONDS = 40.0  # A process that loads torch from a cold disk; no part of the probe's time.
RECHECK_SECONDS = 60.0
FRESH_SECONDS = 5.0
ROOF_SECONDS = 0.5
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
    wants one: as kept in that file, else measured once and kept there.
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
        recheck_seconds: float = RECHECK_SECONDS,
    ) -> None:
        self._server = server
        self._system = system
        self._state = state
        self._device = device
        self._surroundings = dict(surroundings)
        self._extent = extent
        self._measure = measure
        self._one_at_a_time = threading.Lock()
        self._has_begun = False
        self._is_out = False
        self._after: tuple[float, Checked] | None = None
        self._untold: WorkerProbe | None = None
        self._thread: PeriodicThread | None = None
        if extent != "off":
            self._thread = PeriodicThread("self-check", recheck_seconds, self._look_after)
        elif roof_file is not None:
            keep_roof = partial(self._keep_roof, roof_file)
            self._thread = PeriodicThread("self-check", ROOF_SECONDS, keep_roof)

    def __enter__(self) -> Self:
        if self._thread is not None:
            self._thread.wake()
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._thread is not None:
            self._thread.stop(join_seconds=0.0)  # A measurement under way ends with the process.

    def check(self, moment: ProbeMoment, *, attempt_id: str | None = None) -> Checked:
        """Measure the canary, again if it is off, and tell the server each time.

        A reading after one attempt that is well and a few seconds old is the next one's before.
        """
        with self._one_at_a_time:
            if self._extent == "off":
                return Checked()
            after, self._after = self._after, None
            if moment == "before" and after is not None and time.monotonic() < after[0]:
                return after[1]
            checked = self._check(moment, attempt_id)
            if moment == "after" and checked.canary is not None and checked.drift is None:
                self._after = (time.monotonic() + FRESH_SECONDS, checked)
            return checked

    def is_fit(self) -> bool:
        """Whether this worker may take work; one that is out measures again before it says no."""
        return not self._is_out or self.check("recheck").drift is None

    def probe(self) -> None:
        """Measure the roofs and a canary, and tell the server with the surroundings."""
        with self._one_at_a_time:
            figures, host = self._roofs()
            canary = self._canary()
            probe = WorkerProbe(
                worker=self._system.worker,
                moment="start",
                canary=canary,
                figures=figures,
                host=self._surroundings | host,
            )
            answer = self._tell(probe)
            self._untold = probe if answer is None else None
            self._take_answer(answer)

    def _keep_roof(self, file: Path) -> None:
        """Tell the roof of this machine's class, as soon as the server asks for it."""
        if self._thread is not None and self._state.roof_wanted and not self._state.busy:
            self._thread.end()
            with self._one_at_a_time:
                self._tell_roof(KeptRoofs(file))

    def _tell_roof(self, kept: KeptRoofs) -> None:
        canary = kept.read(self._system.hardware_class)
        if canary is None and (canary := self._canary()) is not None:
            kept.write(self._system.hardware_class, canary)
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

    def _roofs(self) -> tuple[dict[str, Figure], dict[str, str | None]]:
        orders = {
            "device": self._device,
            "limit_seconds": PROBE_LIMIT_SECONDS,
            "threads": self._system.threads,
        }
        answer = self._measure("worker.roofs", orders, PROBE_LIMIT_SECONDS + START_SECONDS)
        if answer is None:
            return {}, {}
        figures = _read(answer.get("figures", {}), dict[str, Figure]) or {}
        return figures, {name: answer.get(name) for name in ("torch", "cuda", "hip")}

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
        self._is_out = self._state.out = answer.drifted

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
