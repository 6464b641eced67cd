"""The training process: `python -m worker.child` reads one JSON object and writes JSON lines.

It knows nothing of server, broker or attempts. Its standard output carries events only: what a
trainer or a library prints goes to standard error.
"""

import ctypes
import json
import math
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from reference_models import (
    DataSetError,
    HyperparameterError,
    Measurement,
    TrainingDivergedError,
    UnknownReferenceError,
    load_reference,
)
from rules.messages import FailureCode, TargetSpec
from rules.run import Phase
from worker.memory import accelerator_peak_bytes, resident_peak_bytes
from worker.target import is_reached

PR_SET_PDEATHSIG = 1


class EventWriter:
    """Writes events to the parent; ends the process when nobody reads them."""

    def __init__(self) -> None:
        self._stream = os.dup(1)
        os.dup2(2, 1)

    def write(self, event: str, **fields: Any) -> None:
        """One line, stamped with this process's own wall clock and processor time."""
        stamps = {"clock": time.perf_counter(), "cpu": time.process_time()}
        line = json.dumps({"event": event, **stamps, **fields}) + "\n"
        try:
            os.write(self._stream, line.encode())
        except BrokenPipeError:
            os._exit(1)


def main() -> None:
    """Train as told on standard input and end the process."""
    told = json.loads(sys.stdin.buffer.read())
    die_with_parent(told["parent_pid"])
    events = EventWriter()
    exit_code = 0
    try:
        train(told, events)
        events.write("end")
    except Exception as error:  # noqa: BLE001 - whatever went wrong is told to the parent
        traceback.print_exc()
        code = failure_code(error)
        if code is None:
            exit_code = 1
        else:
            events.write("failure", code=code, message=str(error))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)  # Tearing down torch takes time and can abort.


def train(told: dict[str, Any], events: EventWriter) -> None:
    """Run the trainer until it ends, or its target is reached where the run stops there."""
    reference = load_reference(told["reference"])
    if told["data_set_sha256"] != reference.DATA_SET_SHA256:
        raise DataSetError(
            f"the reference trains on a data set with the SHA-256 {reference.DATA_SET_SHA256}",
            field="data_set.sha256",
            expected=str(told["data_set_sha256"]),
        )
    config = reference.configure(told["hyperparameters"])
    target = TargetSpec(**told["target"])
    qualities: list[float] = []
    for item in reference.train(
        config, seed=told["seed"], device=told["device"], data_dir=Path(told["data_dir"])
    ):
        if isinstance(item, Phase):
            events.write("phase", phase=item.value)
            continue
        write_measurement(item, events)
        qualities.append(item.quality)
        if told["stop_at"] == "target" and is_reached(qualities, target):
            return


def write_measurement(measurement: Measurement, events: EventWriter) -> None:
    """Tell the parent what was measured. Raises TrainingDivergedError if it is no number."""
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
    )


def failure_code(error: Exception) -> FailureCode | None:
    """The failure an exception stands for, None if it is a bug."""
    if isinstance(error, HyperparameterError):
        return "bad_hyperparameter"
    if isinstance(error, UnknownReferenceError):
        return "unknown_reference"
    if isinstance(error, DataSetError):
        return "data_set_differs"
    if isinstance(error, TrainingDivergedError):
        return "training_diverged"
    # torch raises its own OutOfMemoryError on an accelerator and a RuntimeError on a CPU.
    no_memory = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    if no_memory or "can't allocate memory" in str(error):
        return "out_of_memory"
    return None


def die_with_parent(parent_pid: int) -> None:
    """Ask the kernel to kill this process when its parent dies, however it dies (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # It died before the request was made.
        os._exit(1)


if __name__ == "__main__":
    main()
