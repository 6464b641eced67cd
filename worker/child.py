"""The training process: `python -m worker.child` reads one JSON object and writes JSON lines.

Server and broker are out of its reach. Processes of several hosts tell the first one their failures
through a shared store.
"""

import json
import math
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from finishline.rules.run import Phase
from finishline.rules.verification.messages import FailureCode, LatencyOrder, TargetSpec
from reference_models import (
    DataSetError,
    DeviceError,
    HyperparameterError,
    Measurement,
    PrecisionError,
    Reference,
    TrainingDivergedError,
    UnknownReferenceError,
    load_reference,
)
from reference_models.data import require_data
from reference_models.memory import is_out_of_memory, naming_batch_size
from reference_models.precision import configured, require_precision
from worker.events import (
    EventWriter,
    accelerator_peak_bytes,
    end_process,
    has_other_hosts,
    joins_first_host,
    open_events,
    open_store,
    resident_peak_bytes,
)
from worker.stopwatch import is_reached

MESSAGE_LIMIT = 2_000  # A pipe keeps lines of several writers apart up to 4,096 bytes.
CODES: dict[type[Exception], FailureCode] = {
    HyperparameterError: "bad_hyperparameter",
    UnknownReferenceError: "unknown_reference",
    DataSetError: "data_set_differs",
    DeviceError: "device_unfit",
    PrecisionError: "precision_missing",
    TrainingDivergedError: "training_diverged",
}
EXCHANGE_MODULE = "reference_models.distributed"
FAILURE = "failure"


class Communication:
    """Sums the exchanges in a run's train phases. Empty if the counting module is unused."""

    def __init__(self) -> None:
        self._seconds: float | None = None
        self._begun_at: float | None = None

    def enter(self, phase: Phase) -> None:
        """Enter `phase`: the time belongs to it from here on. The device has been synchronised."""
        found = _exchange()
        if found is None:
            return
        so_far = found.seconds()
        if self._begun_at is not None and so_far is not None:
            self._seconds = (self._seconds or 0.0) + max(0.0, so_far - self._begun_at)
        self._begun_at = (so_far or 0.0) if phase is Phase.TRAIN else None

    def told(self) -> dict[str, Any]:
        """Return fields for a measurement's event. Empty if the processes exchanged no data."""
        found = _exchange()
        if found is None or self._seconds is None:
            return {}
        return {"communication_seconds": self._seconds, "communication_how": found.how()}


def _exchange() -> Any:
    """Count exchanges in this process, if it loaded that module."""
    module = sys.modules.get(EXCHANGE_MODULE)
    return None if module is None else module.EXCHANGE


def main() -> None:
    told, events = open_events()
    exit_code = 0
    try:
        if told.get("program") == "meet":
            from worker.machine.peak import meet_all

            events.write("met", met=meet_all(told))
        else:
            train(told, events)
            events.write("end")
    except Exception as error:  # noqa: BLE001 - every error is reported to the parent
        traceback.print_exc()
        code = failure_code(error)
        found = None if code is None else {"code": code, "message": str(error)[:MESSAGE_LIMIT]}
        if has_other_hosts():
            found = shared_failure(found)
        if found is None:
            exit_code = 1
        else:
            events.write("failure", **found)
    if joins_first_host():
        events.write("left")
    end_process(exit_code)


def shared_failure(found: dict[str, str] | None) -> dict[str, str] | None:
    """Return this process's own failure, or the failure that another host reported."""
    try:
        store = open_store()
        if found is not None:
            on_host = {"message": f"{found['message']} (on host {os.environ['GROUP_RANK']})"}
            store.set(FAILURE, json.dumps(found | on_host))
        elif store.check([FAILURE]):
            found = json.loads(store.get(FAILURE))
    except RuntimeError:  # The first host is gone.
        pass
    return found


def train(told: dict[str, Any], events: EventWriter) -> None:
    """Run the trainer until it ends, or its target is reached where the run stops there."""
    require_precision(told["precision"], told["device"])
    reference = load_reference(told["reference"])
    if told["data_set_sha256"] != reference.DATA_SET_SHA256:
        raise DataSetError(
            f"the reference trains on a data set with the SHA-256 {reference.DATA_SET_SHA256}",
            field="data_set.sha256",
            expected=str(told["data_set_sha256"]),
        )
    config = configured(reference, told["hyperparameters"], told["precision"])
    require_data(told["reference"], Path(told["data_dir"]), told["hyperparameters"])
    target = TargetSpec(**told["target"])
    qualities: list[float] = []
    communication = Communication()
    for item in trained(reference, config, told):
        if isinstance(item, Phase):
            events.write("phase", phase=item.value)
            communication.enter(item)  # Read it after the edge, off the training's clock.
            continue
        write_measurement(item, events, communication)
        qualities.append(item.quality)
        if told["stop_at"] == "target" and is_reached(qualities, target):
            if told["latency"] is not None:
                time_model(item, reference, told, events)
            return


def trained(
    reference: Reference, config: Any, told: dict[str, Any]
) -> Iterator[Phase | Measurement]:
    """Run the training. Re-raise out-of-memory with the batch size, for any reference."""
    batch_size = told["hyperparameters"].get("batch_size")
    with naming_batch_size(batch_size, device=told["device"]) if batch_size else nullcontext():
        yield from reference.train(
            config, seed=told["seed"], device=told["device"], data_dir=Path(told["data_dir"])
        )


def time_model(
    measurement: Measurement, reference: Reference, told: dict[str, Any], events: EventWriter
) -> None:
    """Time the model that reached the target. Raises UnknownReferenceError if it is missing."""
    items_of = getattr(reference, "evaluation_items", None)
    if measurement.model is None or items_of is None:
        raise UnknownReferenceError(
            f"the reference {told['reference']!r} provides no model to time",
            field="reference",
            expected="Measurement.model and evaluation_items()",
        )
    from worker.machine.latency import (
        measure_latency,  # torch loads with the reference
    )

    events.write("phase", phase=Phase.IDLE.value)
    items = items_of(device=told["device"], data_dir=Path(told["data_dir"]))
    order = LatencyOrder(**told["latency"])
    for found in measure_latency(measurement.model, items, order, device=told["device"]):
        events.write("latency", latency=asdict(found))


def write_measurement(
    measurement: Measurement, events: EventWriter, communication: Communication
) -> None:
    """Send a measurement to the parent. Raises TrainingDivergedError for NaN or infinity."""
    if not math.isfinite(measurement.quality):
        raise TrainingDivergedError(
            f"the quality is {measurement.quality} at epoch {measurement.epoch:g}"
        )
    events.write(
        "measurement",
        epoch=measurement.epoch,
        samples=measurement.samples,
        quality=measurement.quality,
        resident_peak_bytes=resident_peak_bytes(),
        accelerator_peak_bytes=accelerator_peak_bytes(),
        **communication.told(),
    )


def failure_code(error: Exception) -> FailureCode | None:
    """Return the failure that an exception means, None for a bug."""
    code = next((code for kind, code in CODES.items() if isinstance(error, kind)), None)
    if type(error).__name__ == "WrongSumError":  # Its module loads torch.
        code = "nodes_unfit"
    return code or ("out_of_memory" if is_out_of_memory(error) else None)


if __name__ == "__main__":
    main()
