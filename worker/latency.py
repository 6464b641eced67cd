"""Time a trained model one item at a time, as eager torch, compiled and in ONNX Runtime.

Runs in the training process: the parent never loads torch. A backend that cannot run here, or
whose outputs are not eager's, is told as absent with a typed reason and does not stop the others.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from finishline.rules.scoring.latency import samples_in_whole_passes
from finishline.rules.verification.messages import Absence, Backend, BackendLatency, LatencyOrder
from worker.latency_backends import BACKENDS, BackendAbsentError, Call

Item = tuple[Tensor, ...]
COMPARED_ITEMS = 100  # Outputs of this many items are held against eager's.


def measure_latency(
    model: Any,
    items: Sequence[Item],
    order: LatencyOrder,
    *,
    device: str,
    backends: dict[Backend, Callable[..., Call]] = BACKENDS,
) -> Iterator[BackendLatency]:
    """What each backend takes for each item, eager first; every item is on the device already."""
    model.eval()
    chosen = items[: order.items]
    expected: list[Tensor] = []
    for name, prepare in backends.items():
        try:
            call = prepare(model, chosen[0], device)
            found = _time_backend(name, call, chosen, order, device=device)
        except BackendAbsentError as error:
            yield BackendLatency(backend=name, absence=Absence(error.code, str(error)))
            continue
        latency, outputs = found
        expected = expected or outputs
        yield _held_against(latency, outputs, expected, tolerance=order.output_tolerance)


def _time_backend(
    name: Backend, call: Call, items: Sequence[Item], order: LatencyOrder, *, device: str
) -> tuple[BackendLatency, list[Tensor]]:
    """Times of the warm-up and of whole passes, and the outputs of the first items after it."""
    keep, wanted = order.warmup_items, samples_in_whole_passes(order.items, len(items))
    nanoseconds: list[int] = []
    outputs: list[Tensor] = []
    with torch.inference_mode():
        started, cpu_started = time.perf_counter(), time.process_time()
        for position, item in enumerate(_rounds(items, warmup=keep, samples=wanted)):
            if _is_over(time.perf_counter() - started, position - keep, order):
                break
            synchronise(device)
            begin = time.perf_counter_ns()
            result = call(*item)
            synchronise(device)
            nanoseconds.append(time.perf_counter_ns() - begin)
            if keep <= position < keep + COMPARED_ITEMS:
                outputs.append(_flat(result))
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    latency = BackendLatency(
        backend=name,
        milliseconds=[value / 1e6 for value in nanoseconds],
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        passes=(len(nanoseconds) - keep) / len(items),
    )
    return latency, outputs


def _rounds(items: Sequence[Item], *, warmup: int, samples: int) -> Iterator[Item]:
    """The items round and round: first those of the warm-up, then from the first one again."""
    for index in (*range(warmup), *range(samples)):
        yield items[index % len(items)]


def _is_over(seconds: float, samples: int, order: LatencyOrder) -> bool:
    """Whether a slow model has had its time; one sample after the warm-up it gets in any case."""
    if seconds > order.most_seconds:
        return samples >= 1
    return seconds > order.enough_seconds and samples >= order.fewest_items


def _held_against(
    latency: BackendLatency, outputs: list[Tensor], expected: list[Tensor], *, tolerance: float
) -> BackendLatency:
    difference = largest_difference(outputs, expected)
    if not difference <= tolerance:  # NaN is no agreement either.
        said = f"outputs differ from eager's by {difference:.2g} of the largest, not {tolerance:g}"
        return BackendLatency(latency.backend, absence=Absence("outputs_differ", said))
    return BackendLatency(
        backend=latency.backend,
        milliseconds=latency.milliseconds,
        largest_difference=difference,
        seconds=latency.seconds,
        cpu_seconds=latency.cpu_seconds,
        passes=latency.passes,
    )


def largest_difference(outputs: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """The largest difference of two series of outputs, as a share of the largest expected one."""
    if [x.shape for x in outputs] != [y.shape for y in expected]:
        return float("inf")
    largest = max(float(y.abs().max()) for y in expected)
    apart = torch.stack([(x - y).abs().max() for x, y in zip(outputs, expected, strict=True)]).max()
    return float(apart) / largest if largest > 0 else float(apart)


def synchronise(device: str) -> None:
    """Wait for what an accelerator was given; a processor is never ahead of its program."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def _flat(result: Any) -> Tensor:
    """All outputs of one item as one copy on the processor: a backend may reuse its memory."""
    parts = result if isinstance(result, list | tuple) else [result]
    return torch.cat([torch.as_tensor(part).detach().double().cpu().flatten() for part in parts])
