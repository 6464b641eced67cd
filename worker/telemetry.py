"""The sensors of a run: a thread asks them twice a second, the ledger's edges read the counter."""

import threading
from dataclasses import dataclass
from statistics import fmean
from typing import Protocol

from finishline.periodic import PeriodicThread
from finishline.rules.measurements import RunTelemetry
from finishline.rules.run import Clock, Phase
from finishline.rules.verification.utilisation import samples_per_joule, timed_joules

EVERY_SECONDS = 0.5


@dataclass(frozen=True)
class Reading:
    """Sensor readings at one moment; absent ones are None."""

    watts: float | None = None
    clock_mhz: float | None = None
    celsius: float | None = None
    utilisation_percent: float | None = None


class Sensors(Protocol):
    """A source of readings. `energy_joules` counts up from anywhere, None where it cannot."""

    source: str

    def energy_joules(self) -> float | None:
        """The counter."""

    def read(self) -> Reading:
        """Every other sensor."""


class Telemetry:
    """Follows one run: call `enter` at each phase, `stop` at its end, then `summary`.

    Without sensors all it knows is the memory that the training reports. The counter is read by
    the thread too, so that it cannot turn around twice unseen.
    """

    def __init__(self, sensors: Sensors | None, *, every_seconds: float = EVERY_SECONDS) -> None:
        self._sensors = sensors
        self._lock = threading.Lock()
        self._phase = Phase.INIT
        self._joules: dict[str, float] | None = {} if sensors is not None else None
        self._counter = sensors.energy_joules() if sensors is not None else None
        self._readings: list[Reading] = []
        self._memory: dict[str, int] = {}
        self._communication: tuple[float | None, str | None] = (None, None)
        self._started = False
        self._thread = PeriodicThread("telemetry", every_seconds, self._look)
        if sensors is not None:
            self._thread.start()

    def enter(self, phase: Phase, *, on_clock: bool) -> None:
        """Enter `phase`: later energy belongs to it; readings count once the clock runs."""
        with self._lock:
            self._count()
            self._phase = phase
            self._started = self._started or on_clock

    def note_memory(self, *, resident: int | None, accelerator: int | None) -> None:
        """The peaks that the training process reports, in bytes."""
        for name, peak in (("resident", resident), ("accelerator", accelerator)):
            if peak is not None:
                self._memory[name] = max(self._memory.get(name, 0), peak)

    def note_communication(
        self, seconds: float | None, *, train_seconds: float, how: str | None
    ) -> None:
        """Note the training process's seconds of gradient exchange within its train seconds."""
        if seconds is not None and train_seconds > 0:
            self._communication = (min(1.0, seconds / train_seconds), how)

    def stop(self) -> None:
        """End the thread and count the remainder; harmless if it was called before."""
        if self._thread.is_stopping:
            return
        self._thread.stop()
        with self._lock:
            self._count()

    def summary(self, clock: Clock, *, samples: int) -> RunTelemetry:
        """Summarise the readings, with the energy of the phases on a benchmark's clock."""
        joules = timed_joules(self._joules, clock) if self._joules else None
        watts = _present([reading.watts for reading in self._readings])
        return RunTelemetry(
            readings=len(self._readings),
            energy_joules=joules,
            energy_source=self._sensors.source if self._sensors and joules is not None else None,
            samples_per_joule=samples_per_joule(samples, joules) if samples else None,
            power_mean_watts=_mean(watts),
            power_max_watts=max(watts, default=None),
            clock_mean_mhz=_mean(_present([item.clock_mhz for item in self._readings])),
            temperature_max_celsius=max(
                _present([item.celsius for item in self._readings]), default=None
            ),
            utilisation_mean_percent=_mean(
                _present([item.utilisation_percent for item in self._readings])
            ),
            memory_peak_bytes=self._memory.get("resident"),
            accelerator_memory_peak_bytes=self._memory.get("accelerator"),
            communication_share=self._communication[0],
            communication_how=self._communication[1],
        )

    def _look(self) -> None:
        with self._lock:
            self._count()
            if self._started and self._sensors is not None:
                self._readings.append(self._sensors.read())

    def _count(self) -> None:
        """Add the energy used since the last reading to the present phase.

        A counter that is lost once is lost for the run: a part of the energy is no energy.
        """
        if self._joules is None or self._sensors is None:
            return
        now = self._sensors.energy_joules()
        if now is None or self._counter is None or now < self._counter:
            self._joules = None
            return
        name = self._phase.value
        self._joules[name] = self._joules.get(name, 0.0) + now - self._counter
        self._counter = now


def _present(values: list[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean(values: list[float]) -> float | None:
    return fmean(values) if values else None
