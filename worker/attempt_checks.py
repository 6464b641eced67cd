"""Checks around the runs of an attempt: a canary before and after, and the audit of training."""

import json
import logging
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from finishline.rules.scoring.measurements import Canary, ModelWork, PrecisionAudit
from finishline.rules.verification.messages import Failure, ReplayJob, Training
from worker.failures import failure
from worker.measuring import Measure, measure_apart
from worker.self_check import SelfCheck

log = logging.getLogger(__name__)

AUDIT_LIMIT_SECONDS = 120.0


@dataclass(frozen=True)
class Audited:
    """The precision and the work of a training; None if not found."""

    precision: PrecisionAudit | None = None
    work: ModelWork | None = None


class AttemptChecks:
    """The checks of one worker, for one attempt after the other.

    The audit of a reference with its settings is the same every time, so it is made once.
    """

    def __init__(
        self,
        self_check: SelfCheck,
        *,
        device: str,
        data_dir: Path,
        threads: int = 1,
        audits: bool = True,
        measure: Measure = measure_apart,
    ) -> None:
        self._self_check = self_check
        self._device = device
        self._data_dir = data_dir
        self._threads = threads
        self._audits = audits
        self._measure = measure
        self._known: dict[str, Audited] = {}
        self.canaries: list[Canary] = []

    def may_claim(self) -> bool:
        """Whether this worker is as fast as it was, so that it may ask for an attempt."""
        return self._self_check.is_fit()

    def before(self, job: ReplayJob) -> Failure | None:
        """Measure the canary; the failure that ends the attempt if this worker is out."""
        self.canaries = []
        checked = self._self_check.check("before", attempt_id=job.attempt_id)
        self._keep(checked.canary)
        if checked.drift is None:
            return None
        return failure("worker_drifted", f"the worker is {checked.drift}")

    def after(self, job: ReplayJob) -> str | None:
        """Measure the canary again; the sentence that says how far it is off, None if it is well.

        The runs are made and their convergence counts on any machine, so nothing fails.
        """
        checked = self._self_check.check("after", attempt_id=job.attempt_id)
        self._keep(checked.canary)
        return checked.drift

    def audit(self, job: ReplayJob) -> Audited:
        """The precision and the work of a job's training, found outside its timed runs."""
        wanted = next((each for each in job.trainings if "profile" in each.measure), None)
        if not self._audits or wanted is None:
            return Audited()
        key = json.dumps([wanted.package, wanted.settings], sort_keys=True)
        if key not in self._known:
            self._known[key] = self._audit(wanted)
        return self._known[key]

    def _audit(self, training: Training) -> Audited:
        orders = {
            "reference": training.package,
            "hyperparameters": training.settings,
            "device": self._device,
            "data_dir": str(self._data_dir),
            "threads": self._threads,
        }
        answer = self._measure("worker.precision_probe", orders, AUDIT_LIMIT_SECONDS)
        if answer is None:
            return Audited()
        try:
            return TypeAdapter(Audited).validate_python(answer)
        except ValidationError as error:
            log.warning("the audit of %s answered with something else: %s", training.package, error)
            return Audited()

    def _keep(self, canary: Canary | None) -> None:
        if canary is not None:
            self.canaries.append(canary)
