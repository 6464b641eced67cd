"""Latency of a trained model, one item at a time, on each backend."""

import io
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from finishline.rules.benchmarks.definition_tables import samples_in_whole_passes
from finishline.rules.verification.messages import (
    Absence,
    AbsenceCode,
    Backend,
    BackendLatency,
    LatencyOrder,
)
from worker.events import first_line
from worker.machine.clock import synchronise

Call = Callable[..., Any]


class BackendAbsentError(Exception):
    """A backend is missing here. `code` is from the closed list."""

    def __init__(self, code: AbsenceCode, message: str) -> None:
        self.code = code
        super().__init__(message)


def prepare_eager(model: Any, _example: tuple[Tensor, ...], _device: str) -> Call:
    call: Call = model
    return call


def prepare_compiled(model: Any, example: tuple[Tensor, ...], _device: str) -> Call:
    """Return the module through torch.compile, compiled for one item."""
    torch.compiler.reset()  # Start over, without the compilations of a training.
    try:
        # Compilers in a pool of processes would outlive this one when it is killed.
        call: Call = torch.compile(model, dynamic=False, options={"compile_threads": 1})
        with torch.inference_mode():
            call(*example)
    except MemoryError:
        raise
    except RuntimeError as error:
        if "not supported" in str(error):
            raise BackendAbsentError("not_supported", first_line(error)) from error
        raise BackendAbsentError("compile_failed", first_line(error)) from error
    except Exception as error:
        raise BackendAbsentError("compile_failed", first_line(error)) from error
    return call


def prepare_onnxruntime(model: Any, example: tuple[Tensor, ...], device: str) -> Call:
    """Export the module to ONNX and run it on the processor with torch's number of threads."""
    if device != "cpu":
        raise BackendAbsentError("not_supported", f"measured on a processor only, not on {device}")
    try:
        import onnx  # noqa: F401
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise BackendAbsentError(
            "not_installed",
            f"{error.name or error} is missing: pip install 'finishline-server[onnx]'",
        ) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        export(model, example), options, providers=["CPUExecutionProvider"]
    )
    names = [item.name for item in session.get_inputs()]

    def call(*item: Tensor) -> Any:
        return session.run(None, dict(zip(names, (part.numpy() for part in item), strict=True)))

    return call


def export(model: Any, example: tuple[Tensor, ...]) -> bytes:
    """Return the model as ONNX, through torch's dynamo exporter."""
    content = io.BytesIO()
    try:
        with torch.no_grad():
            torch.onnx.export(model, example, dynamo=True, verbose=False).save(content)
    except MemoryError:
        raise
    except Exception as error:
        raise BackendAbsentError("export_failed", first_line(error)) from error
    return content.getvalue()


BACKENDS: dict[Backend, Callable[..., Call]] = {
    "eager": prepare_eager,
    "compiled": prepare_compiled,
    "onnxruntime": prepare_onnxruntime,
}


Item = tuple[Tensor, ...]
COMPARED_ITEMS = 100  # Outputs of this many items are compared with eager's.


def measure_latency(
    model: Any,
    items: Sequence[Item],
    order: LatencyOrder,
    *,
    device: str,
    backends: dict[Backend, Callable[..., Call]] = BACKENDS,
) -> Iterator[BackendLatency]:
    """Time each backend on each item, eager first. Every item is on the device already."""
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
        yield _compare_outputs(latency, outputs, expected, tolerance=order.output_tolerance)


def _time_backend(
    name: Backend, call: Call, items: Sequence[Item], order: LatencyOrder, *, device: str
) -> tuple[BackendLatency, list[Tensor]]:
    """Times of the warm-up and of whole passes, and the outputs of the first items after it."""
    keep, wanted = order.warmup_items, samples_in_whole_passes(order.items, len(items))
    nanoseconds: list[int] = []
    outputs: list[Tensor] = []
    with torch.inference_mode():
        started, cpu_started = time.perf_counter(), time.process_time()
        # Round and round: first the items of the warm-up, then from the first one again.
        for position, index in enumerate((*range(keep), *range(wanted))):
            if _is_over(time.perf_counter() - started, position - keep, order):
                break
            synchronise(device)
            begin = time.perf_counter_ns()
            result = call(*items[index % len(items)])
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


def _is_over(seconds: float, samples: int, order: LatencyOrder) -> bool:
    """Say whether a slow model has had its time. It always gets one sample after the warm-up."""
    if seconds > order.most_seconds:
        return samples >= 1
    return seconds > order.enough_seconds and samples >= order.fewest_items


def _compare_outputs(
    latency: BackendLatency, outputs: list[Tensor], expected: list[Tensor], *, tolerance: float
) -> BackendLatency:
    difference = largest_difference(outputs, expected)
    if not difference <= tolerance:  # NaN disagrees too.
        said = f"outputs differ from eager's by {difference:.2g} of the largest, not {tolerance:g}"
        return BackendLatency(latency.backend, absence=Absence("outputs_differ", said))
    return replace(latency, largest_difference=difference)


def largest_difference(outputs: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """Return the largest difference of two series, as a share of the largest expected output."""
    if [x.shape for x in outputs] != [y.shape for y in expected]:
        return float("inf")
    largest = max(float(y.abs().max()) for y in expected)
    apart = torch.stack([(x - y).abs().max() for x, y in zip(outputs, expected, strict=True)]).max()
    return float(apart) / largest if largest > 0 else float(apart)


def _flat(result: Any) -> Tensor:
    """Copy all outputs of one item to the processor, because a backend may reuse its memory."""
    parts = result if isinstance(result, list | tuple) else [result]
    return torch.cat([torch.as_tensor(part).detach().double().cpu().flatten() for part in parts])
