"""Throughput, work and MFU of any model. Each result is measured in a process of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from finishline.rules.errors import RuleError
from finishline.rules.measurements import Figure
from finishline.rules.verification.utilisation import best_roof_tflops
from worker.bench.runs import (
    MEASURING_ROOFS,
    ROOFS_SECONDS,
    START_SECONDS,
    TERA,
    Say,
    absent_figures,
    describe_machine,
    distribution,
    require,
    roof_orders,
)
from worker.child_process import Measure
from worker.machine.sensors import samples_per_joule

PrecisionName = Literal["fp32", "tf32", "bf16", "fp16", "fp8"]
ROW_FACTOR = 60.0  # One batch of a slow model takes many times the seconds to measure for.
SMALLER = "; --batch-sizes 1 makes a step smaller"
REASONS = {
    "samples_per_joule": "no energy counter can be read",
    "samples_per_dollar": "no price was given with --usd-per-hour",
    "peak_memory_bytes": "the peak of the process cannot be read",
}
CONVENTION = (
    "one multiply-add is two FLOPs, so FLOPs are twice the multiply-adds; matmuls, convolutions, "
    "LSTM and GRU gates and fused attention (whole, causal or not) are counted, nothing else; "
    "flops_per_sample at the top is a forward pass, that of a training result is forward and "
    "backward as they ran"
)


@dataclass(frozen=True)
class ModelBench:
    """A model, and how it is measured. Raises RuleError for what cannot be."""

    model: str
    device: str
    tokens: int = 128
    precision: PrecisionName = "fp32"
    batch_sizes: Sequence[int] = (1, 8)
    phases: Sequence[str] = ("inference", "training")
    seconds: float = 5.0
    threads: int = 1
    usd_per_hour: float | None = None

    def __post_init__(self) -> None:
        check_spec(self.model)
        check_precision(self.precision, self.device)


def run_model(asked: ModelBench, measure: Measure, say: Say) -> dict[str, Any]:
    """Every measurement in turn. Raises BenchError where the model cannot be built or run."""
    say("building the model and counting its FLOPs")
    answer = measure("worker.bench.model_speed", asdict(asked), 2 * START_SECONDS)
    work = require(answer, asked.model, hint=SMALLER)
    say(MEASURING_ROOFS)
    absent: dict[str, str] = {}
    peak = measure_peak(asked, measure)
    if peak is None:
        absent["peak_flops_per_second"] = absent["peak_source"] = absent["mfu"] = (
            f"no roof was measured in {asked.precision} on {asked.device}"
        )
    if work["flops_per_sample"] is None:
        absent["flops_per_sample"] = absent["macs_per_sample"] = absent["mfu"] = (
            "no product that can be counted was seen in the model"
        )
    results: list[dict[str, Any]] = []
    for phase in asked.phases:
        for batch_size in asked.batch_sizes:
            say(f"{phase}, batches of {batch_size}")
            orders = asdict(asked) | {"phase": phase, "batch_size": batch_size}
            limit = START_SECONDS + ROW_FACTOR * asked.seconds
            answer = measure("worker.bench.model_speed", orders, limit)
            row = require(answer, asked.model, hint=SMALLER)
            results.append(
                {"phase": phase, "batch_size": batch_size}
                | figures_of(row, batch_size, asked, peak)
            )
    absent |= absent_figures(results, REASONS, seconds="batch_seconds", calls="batches")
    flops = work["flops_per_sample"]
    return {
        "model": asked.model,
        "precision": asked.precision,
        **describe_machine(asked.device, threads=asked.threads),
        "parameters": work["parameters"],
        "macs_per_sample": None if flops is None else int(flops) // 2,
        "flops_per_sample": None if flops is None else int(flops),
        "flops_convention": CONVENTION,
        "peak_flops_per_second": peak,
        "peak_source": None if peak is None else "measured",
        "absent": absent,
        "results": results,
    }


def measure_peak(asked: ModelBench, measure: Measure) -> float | None:
    """The best FLOP/s of matmul and convolution in this precision. None where not measured."""
    only = [f"{what}_{asked.precision}" for what in ("gemm", "convolution")]
    orders = roof_orders(asked.device, asked.seconds) | {"only": only, "threads": asked.threads}
    answer = measure("worker.machine.peak", orders, ROOFS_SECONDS + START_SECONDS) or {}
    figures = TypeAdapter(dict[str, Figure]).validate_python(answer.get("figures", {}))
    roof = best_roof_tflops(figures, asked.precision)
    return None if roof is None else roof * TERA


def figures_of(
    row: Mapping[str, Any], batch_size: int, asked: ModelBench, peak: float | None
) -> dict[str, Any]:
    batches, flops = row["batches"], row["flops_per_sample"]
    samples = batch_size * len(batches)
    rate = samples / sum(batches)
    price = asked.usd_per_hour
    return {
        "samples_per_second": rate,
        "batch_seconds": distribution(batches),
        "samples_per_joule": samples_per_joule(samples, row["joules"]),
        "samples_per_dollar": None if price is None else rate * 3600 / price,
        "flops_per_sample": flops,
        "mfu": None if peak is None or flops is None else flops * rate / peak,
        "peak_memory_bytes": row["peak_memory_bytes"],
    }


def check_precision(precision: str, device: str) -> None:
    """Raise RuleError for a precision that a model cannot have on this kind of device."""
    if device == "cpu" and precision in ("tf32", "fp8"):
        raise RuleError(
            f"a processor has no arithmetic in {precision}",
            field="precision",
            expected="fp32, bf16 or fp16",
        )
    if precision == "fp8":
        raise RuleError(
            "torch has no layers in fp8, so a model's speed in it is not measured",
            field="precision",
            expected="fp32, tf32, bf16 or fp16",
        )


def check_spec(spec: str, *, generates: bool = False) -> None:
    """Raise RuleError unless a SPEC is of one of the three kinds, and none to be downloaded.

    One that generates may be of any class of transformers.
    """
    kind, _, name = spec.partition(":")
    if kind == "torchvision" and name:
        if generates:
            raise RuleError(
                f"{spec!r} generates nothing", field="model", expected="hf:NAME or FILE.py:FUNCTION"
            )
        return
    if kind == "hf":
        if "/" in name:
            raise RuleError(
                f"{spec!r} names a model to be downloaded, and nothing is",
                field="model",
                expected="hf:NAME of a class" if generates else "hf:roberta",
            )
        if not generates and name != "roberta":
            raise RuleError(f"{spec!r} is not known", field="model", expected="hf:roberta")
        return
    path, _, function = spec.rpartition(":")
    if not path or not function.isidentifier():
        raise RuleError(
            f"{spec!r} is no model",
            field="model",
            expected="hf:NAME or FILE.py:FUNCTION"
            if generates
            else "torchvision:NAME, hf:roberta or FILE.py:FUNCTION",
        )
    if not path.endswith(".py") or not Path(path).is_file():
        raise RuleError(f"there is no Python file {path!r}", field="model")
