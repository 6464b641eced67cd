"""Speed of a reference in training and inference on made-up data, in a process of its own.

It reads {"reference", "hyperparameters", "device", "seconds"} and answers {"training",
"inference", "telemetry"}, or {"missing"} with a sentence for a reference without a synthetic step.
The time is cut into rounds and the device is synchronised at their edges alone. The median round
is the figure, because a neighbour spoils some rounds and not half of them.
"""

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from finishline.rules.errors import RuleError
from finishline.rules.run import Clock, Phase
from reference_models import load_reference, synthetic_of
from reference_models.memory import is_out_of_memory
from worker.events import accelerator_peak_bytes, answer_orders, resident_peak_bytes
from worker.machine.latency import first_line, synchronise
from worker.machine.sensors import Telemetry, open_sensors

ROUNDS = 7
WARM_UP_CALLS = 5


@dataclass(frozen=True)
class Throughput:
    """Items per second of the median round, with the slowest and the fastest. Calls in all."""

    items_per_second: float
    slowest: float
    fastest: float
    seconds_per_call: float
    items_per_call: int
    calls: int
    warm_up_calls: int = WARM_UP_CALLS


def measure_throughput(
    call: Callable[[], object],
    *,
    items_per_call: int,
    seconds: float,
    synchronise: Callable[[], None],
    clock: Callable[[], float] = time.perf_counter,
) -> Throughput:
    """Call it for about so many seconds and count the items.

    Where one call takes longer than that, it is called three times: to warm up, to see how long
    it takes, and for the one round that is left.
    """

    def seconds_of(calls: int) -> float:
        started = clock()
        for _ in range(calls):
            call()
        synchronise()
        return clock() - started

    first = seconds_of(1)
    warm_up_calls = WARM_UP_CALLS if first < seconds else 1
    for _ in range(warm_up_calls - 1):
        call()
    synchronise()
    once = max(seconds_of(1), 1e-9)
    calls = max(1, math.ceil(seconds / ROUNDS / once))
    wanted = min(ROUNDS, max(1, int(seconds / once)))
    rounds = [seconds_of(calls) for _ in range(wanted)]
    rates = sorted(calls * items_per_call / taken for taken in rounds)
    middle = statistics.median(rates)
    return Throughput(
        items_per_second=middle,
        slowest=rates[0],
        fastest=rates[-1],
        seconds_per_call=items_per_call / middle,
        items_per_call=items_per_call,
        calls=calls * wanted,
        warm_up_calls=warm_up_calls,
    )


def bench(told: dict[str, Any]) -> dict[str, Any]:
    reference = load_reference(told["reference"])
    config = reference.configure(told["hyperparameters"])
    device, seconds = told["device"], told["seconds"]
    synthetic = synthetic_of(reference, config, device)
    if synthetic is None:
        return {"missing": f"the reference {told['reference']} offers no synthetic step"}
    telemetry = Telemetry(open_sensors(device))
    telemetry.enter(Phase.TRAIN, on_clock=True)
    training = measure_throughput(
        synthetic.train_step,
        items_per_call=synthetic.batch_size,
        seconds=seconds,
        synchronise=partial(synchronise, device),
    )
    telemetry.stop()
    telemetry.note_memory(resident=resident_peak_bytes(), accelerator=accelerator_peak_bytes())
    samples = (training.calls + training.warm_up_calls + 1) * synthetic.batch_size
    inference = measure_throughput(
        synthetic.infer,
        items_per_call=synthetic.inference_items,
        seconds=seconds,
        synchronise=partial(synchronise, device),
    )
    return {
        "training": asdict(training),
        "inference": asdict(inference),
        "telemetry": asdict(telemetry.summary(Clock("speedrun"), samples=samples)),
        "steps_per_epoch": synthetic.steps_per_epoch,
    }


def answer(told: dict[str, Any]) -> dict[str, Any]:
    try:
        return bench(told)
    except RuleError as error:
        return {"missing": str(error)}
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        size = told["hyperparameters"].get("batch_size")
        return {
            "missing": f"a batch of {size} does not fit into the memory of {told['device']}: choose"
            f" a smaller one with --set batch_size=... ({first_line(error)[:120]})"
        }


if __name__ == "__main__":
    answer_orders(answer)
