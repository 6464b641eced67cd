"""Speed of a reference in training and inference on made-up data, in its own process.

It reads {"reference", "hyperparameters", "device", "seconds"} and answers {"training", "inference",
"telemetry", "steps_per_epoch"}. The time is cut into rounds, and the device is synchronised only at
their edges. The median round is the figure, because a neighbour spoils fewer than half of the
rounds.
"""

import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from statistics import median
from typing import Any

from finishline.rules.errors import RuleError
from finishline.rules.run import Clock, Phase
from reference_models import load_reference, synthetic_of
from reference_models.memory import naming_batch_size
from worker.events import accelerator_peak_bytes, answer_or_reason, resident_peak_bytes
from worker.machine.clock import WARM_UP_CALLS, synchronise
from worker.machine.sensors import Telemetry, open_sensors

ROUNDS = 7


def measure_throughput(
    call: Callable[[], object], *, items: int, seconds: float, device: str
) -> dict[str, Any]:
    """Return items per second of the median round, and of all. A slow call gets one round."""

    def seconds_of(calls: int) -> float:
        started = time.perf_counter()
        for _ in range(calls):
            call()
        synchronise(device)
        return time.perf_counter() - started

    warm_up_calls = WARM_UP_CALLS if seconds_of(1) < seconds else 1
    seconds_of(warm_up_calls - 1)
    once = max(seconds_of(1), 1e-9)
    calls = max(1, math.ceil(seconds / ROUNDS / once))
    rounds = min(ROUNDS, max(1, int(seconds / once)))
    rates = sorted(calls * items / seconds_of(calls) for _ in range(rounds))
    return {
        "items_per_second": median(rates),
        "slowest": rates[0],
        "fastest": rates[-1],
        "seconds_per_call": items / median(rates),
        "items_per_call": items,
        "calls": calls * rounds,
        "warm_up_calls": warm_up_calls,
    }


def answer(told: dict[str, Any]) -> dict[str, Any]:
    settings, device, seconds = told["hyperparameters"], told["device"], told["seconds"]
    reference = load_reference(told["reference"])
    size = settings.get("batch_size")
    with naming_batch_size(size, device=device) if size else nullcontext():
        synthetic = synthetic_of(reference, reference.configure(settings), device)
        if synthetic is None:
            raise RuleError(f"the reference {told['reference']} offers no synthetic step")
        telemetry = Telemetry(open_sensors(device))
        telemetry.enter(Phase.TRAIN, on_clock=True)
        training = measure_throughput(
            synthetic.train_step, items=synthetic.batch_size, seconds=seconds, device=device
        )
        telemetry.stop()
        telemetry.note_memory(resident=resident_peak_bytes(), accelerator=accelerator_peak_bytes())
        inference = measure_throughput(
            synthetic.infer, items=synthetic.inference_items, seconds=seconds, device=device
        )
    samples = (training["calls"] + training["warm_up_calls"] + 1) * synthetic.batch_size
    return {
        "training": training,
        "inference": inference,
        "telemetry": asdict(telemetry.summary(Clock("speedrun"), samples=samples)),
        "steps_per_epoch": synthetic.steps_per_epoch,
    }


if __name__ == "__main__":
    answer_or_reason(answer)
