"""Lists of kernels, as DeepBench has them: shapes, passes, precisions, FLOPs, and their times.

Source of the kinds: baidu-research/DeepBench, README (GEMM, convolution, recurrent, all-reduce).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, make_dataclass
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le, MinLen

from finishline.rules.errors import RuleError
from finishline.rules.table import read_table
from finishline.rules.text import parse_toml
from worker.bench.runs import (
    START_SECONDS,
    BenchError,
    Say,
    absent_figures,
    describe_machine,
    distribution,
    require,
    run_group,
)
from worker.child_process import Measure

ON_PROCESSORS = ("fp32", "bf16", "fp16")
MOST_PROCESSES = 64
MOST_BYTES = 2**40
KERNEL_FACTOR = 60.0  # One call of a slow kernel takes many times the seconds to measure for.

Shape = Mapping[str, int | bool]
Tables = tuple[dict[str, Any], ...]

SIZES: Mapping[str, tuple[str, ...]] = {
    "gemm": ("m", "n", "k"),
    "convolution": ("n", "c", "h", "w", "k", "r", "s", "padding", "stride"),
    "lstm": ("hidden", "batch", "steps"),
    "gru": ("hidden", "batch", "steps"),
    "attention": ("batch", "heads", "query", "key", "head_dim"),
    "copy": ("bytes",),
    "all_reduce": ("bytes", "processes"),
    "launch": (),
}
"""Whole numbers of each kind's shape; attention has `causal` besides."""


def _shape_of(kind: str) -> type[Any]:
    """The table of a kind's shape."""
    fields: list[Any] = []
    for name in SIZES[kind]:
        least = {"padding": 0, "processes": 2}.get(name, 4 if name == "bytes" else 1)
        most = {"processes": MOST_PROCESSES, "bytes": MOST_BYTES}.get(name, 2**31 - 1)
        fields.append((name, Annotated[int, Ge(least), Le(most)]))
    if kind == "attention":
        fields.append(("causal", bool, False))
    return make_dataclass(kind, fields)


SHAPES = {kind: _shape_of(kind) for kind in SIZES}


@dataclass(frozen=True)
class Kernel:
    """One kernel to be timed. `flops` is of this pass. None where a kernel computes nothing."""

    kind: str
    direction: str
    precision: str
    shape: Shape

    @property
    def flops(self) -> int | None:
        """FLOPs of matmuls and convolutions: a backward pass has two products for each forward.

        Those are the gradients of both operands, without any product computed a second time.
        """
        count = _FLOPS.get(self.kind)
        if count is None:
            return None
        return count(self.shape) * (2 if self.direction == "backward" else 1)

    @property
    def bytes_moved(self) -> float | None:
        """Bytes that `bytes_per_second` is told from: read and written by a copy.

        Of an all-reduce those that each link carries, 2 (p - 1) / p of the message.
        """
        if self.kind == "copy":
            return 2 * self.shape["bytes"]
        if self.kind == "all_reduce":
            processes = self.shape["processes"]
            return 2 * (processes - 1) / processes * self.shape["bytes"]
        return None

    @property
    def words(self) -> str:
        """The kernel as a person names it."""
        numbers = ", ".join(f"{name} {value}" for name, value in self.shape.items())
        return f"{self.kind} {self.direction} in {self.precision}" + (numbers and f": {numbers}")


@dataclass(frozen=True)
class KernelList:
    """A list of kernels as its file has it."""

    schema: Annotated[int, Ge(1), Le(1)]
    precisions: Annotated[tuple[Literal["fp32", "tf32", "bf16", "fp16", "fp8"], ...], MinLen(1)]
    passes: Annotated[tuple[Literal["forward", "backward"], ...], MinLen(1)]
    gemm: Tables = ()
    convolution: Tables = ()
    lstm: Tables = ()
    gru: Tables = ()
    attention: Tables = ()
    copy: Tables = ()
    all_reduce: Tables = ()
    launch: Tables = ()


def read_kernels(content: bytes, *, file: str) -> tuple[Kernel, ...]:
    """The kernels of a TOML list, table by table. Raises RuleError with file, table and field.

    A copy, an all-reduce and a launch are of fp32 numbers and have no backward pass.
    """
    whole = read_table(KernelList, parse_toml(content, file=file), file=file)
    kernels: list[Kernel] = []
    for kind in SIZES:
        for index, table in enumerate(getattr(whole, kind)):
            shape = _read_shape(kind, table, file=file, path=f"{kind}[{index}]")
            computes = kind in _FLOPS
            kernels += [
                Kernel(kind, direction, precision, shape)
                for precision in (dict.fromkeys(whole.precisions) if computes else ("fp32",))
                for direction in (dict.fromkeys(whole.passes) if computes else ("forward",))
            ]
    if not kernels:
        expected = f"one of {', '.join(SIZES)}"
        raise RuleError("no kernel", file=file, field="gemm", expected=expected)
    return tuple(kernels)


def _read_shape(kind: str, table: Mapping[str, Any], *, file: str, path: str) -> Shape:
    shape: dict[str, int | bool] = vars(read_table(SHAPES[kind], table, file=file, path=path))
    if kind == "convolution":
        for side, filter_side in (("h", "r"), ("w", "s")):
            padded = shape[side] + 2 * shape["padding"]
            if shape[filter_side] > padded:
                raise RuleError(
                    f"got {shape[filter_side]}, more than {side} with its padding",
                    file=file,
                    field=f"{path}.{filter_side}",
                    expected=f"at most {padded}",
                )
    return shape


def convolved_side(size: int, filter_size: int, *, padding: int, stride: int) -> int:
    """Height or width of a convolution's result."""
    return (size + 2 * padding - filter_size) // stride + 1


def _gemm(shape: Shape) -> int:
    return 2 * shape["m"] * shape["n"] * shape["k"]


def _convolution(shape: Shape) -> int:
    padding, stride = shape["padding"], shape["stride"]
    height = convolved_side(shape["h"], shape["r"], padding=padding, stride=stride)
    width = convolved_side(shape["w"], shape["s"], padding=padding, stride=stride)
    of_a_result = 2 * shape["c"] * shape["r"] * shape["s"]
    return shape["n"] * shape["k"] * height * width * of_a_result


def _recurrent(gates: int) -> Callable[[Shape], int]:
    """Each gate has a matrix for the input and one for the hidden state, both square."""
    return lambda shape: 2 * gates * 2 * shape["hidden"] ** 2 * shape["batch"] * shape["steps"]


def _attention(shape: Shape) -> int:
    """Scores and their product with the values, whole where a causal kernel skips half."""
    scores = shape["batch"] * shape["heads"] * shape["query"] * shape["key"]
    return 2 * 2 * scores * shape["head_dim"]


_FLOPS: Mapping[str, Callable[[Shape], int]] = {
    "gemm": _gemm,
    "convolution": _convolution,
    "lstm": _recurrent(4),
    "gru": _recurrent(3),
    "attention": _attention,
}


NO_PRODUCT = "a copy, an all-reduce and a launch multiply nothing"
REASONS = {
    "flops": NO_PRODUCT,
    "flops_per_second": NO_PRODUCT,
    "bytes_per_second": "bytes are counted of copies and all-reduces alone",
}
CONVENTION = (
    "one multiply-add is two FLOPs; matmuls and convolutions, with LSTM and GRU gates and attention"
    " (whole, causal or not), and nothing else; a backward pass is the gradients of both operands, "
    "two products for each forward"
)


def run_kernels(
    kernels: Sequence[Kernel],
    *,
    device: str,
    threads: int,
    seconds: float,
    measure: Measure,
    say: Say,
) -> dict[str, Any]:
    """Time every kernel. Raises BenchError where one cannot be run.

    An all-reduce is timed in processes of its own.
    """
    alone = [each for each in kernels if each.kind != "all_reduce"]
    say(f"{len(kernels)} kernels")
    orders = {
        "kernels": [asdict(each) for each in alone],
        "device": device,
        "threads": threads,
        "seconds": seconds,
    }
    limit = START_SECONDS + KERNEL_FACTOR * seconds * len(alone)
    taken = iter(require(measure("worker.bench.kernels", orders, limit), "The list")["seconds"])
    rows = [
        figures_of(each, _all_reduce(each, device, seconds))
        if each.kind == "all_reduce"
        else figures_of(each, next(taken))
        for each in kernels
    ]
    return {
        **describe_machine(device, threads=threads),
        "flops_convention": CONVENTION,
        "absent": absent_figures(rows, REASONS, seconds="seconds", calls="calls"),
        "kernels": rows,
    }


def _all_reduce(kernel: Kernel, device: str, seconds: float) -> list[float]:
    where = "cuda" if device.startswith("cuda") else device
    orders = {"device": where, "bytes": kernel.shape["bytes"], "seconds": seconds}
    try:
        return list(run_group(orders, kernel.shape["processes"])["seconds"])
    except BenchError as error:
        raise BenchError(f"{kernel.words} was not measured: {error}") from error


def figures_of(kernel: Kernel, taken: Sequence[float]) -> dict[str, Any]:
    seconds = distribution(taken)
    median = float(seconds["p50"] or 0)
    flops, moved = kernel.flops, kernel.bytes_moved
    return {
        "kind": kernel.kind,
        "pass": kernel.direction,
        "precision": kernel.precision,
        "shape": dict(kernel.shape),
        "seconds": seconds,
        "flops": flops,
        "flops_per_second": None if flops is None else flops / median,
        "bytes_per_second": None if moved is None else moved / median,
    }
