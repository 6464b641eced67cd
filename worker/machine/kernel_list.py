"""Lists of kernels like DeepBench's: shapes, passes, precisions, and their FLOPs.

Source of the kinds: baidu-research/DeepBench, README (GEMM, convolution, recurrent, all-reduce).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, make_dataclass
from math import prod
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le, MinLen

from finishline.rules.errors import RuleError
from finishline.rules.table import read_table
from finishline.rules.text import parse_toml

Shape = Mapping[str, int]
LEAST = {"padding": 0, "processes": 2, "bytes": 4}
MOST = {"processes": 64, "bytes": 2**40}


def _product(factor: int, names: str) -> Callable[[Shape], int]:
    return lambda shape: factor * prod(shape[name] for name in names.split())


def _convolution(shape: Shape) -> int:
    padded = {side: shape[side] + 2 * shape["padding"] for side in "hw"}
    rows = (padded["h"] - shape["r"]) // shape["stride"] + 1
    columns = (padded["w"] - shape["s"]) // shape["stride"] + 1
    return 2 * prod(shape[name] for name in "nkcrs") * rows * columns


KINDS: Mapping[str, tuple[str, Callable[[Shape], int] | None]] = {
    "gemm": ("m n k", _product(2, "m n k")),
    "convolution": ("n c h w k r s padding stride", _convolution),
    # Each gate has a matrix for the input and one for the hidden state, both square.
    "lstm": ("hidden batch steps", _product(2 * 2 * 4, "hidden hidden batch steps")),
    "gru": ("hidden batch steps", _product(2 * 2 * 3, "hidden hidden batch steps")),
    # Scores and their product with the values, whole where a causal kernel skips half.
    "attention": (
        "batch heads query key head_dim",
        _product(2 * 2, "batch heads query key head_dim"),
    ),
    "copy": ("bytes", None),
    "all_reduce": ("bytes processes", None),
    "launch": ("", None),
}
"""Of each kind the whole numbers of its shape, and its FLOPs. Attention has `causal` besides."""


def _shape_of(kind: str) -> type[Any]:
    """Return the table of a kind's shape."""
    fields: list[Any] = [
        (name, Annotated[int, Ge(LEAST.get(name, 1)), Le(MOST.get(name, 2**31 - 1))])
        for name in KINDS[kind][0].split()
    ]
    return make_dataclass(kind, [*fields, *([("causal", bool, False)] * (kind == "attention"))])


SHAPES = {kind: _shape_of(kind) for kind in KINDS}
Precisions = tuple[Literal["fp32", "tf32", "bf16", "fp16", "fp8"], ...]
Passes = tuple[Literal["forward", "backward"], ...]
KernelList: Any = make_dataclass(
    "KernelList",
    [
        ("schema", Annotated[int, Ge(1), Le(1)]),
        ("precisions", Annotated[Precisions, MinLen(1)]),
        ("passes", Annotated[Passes, MinLen(1)]),
        *((kind, tuple[dict[str, Any], ...], ()) for kind in KINDS),
    ],
)


@dataclass(frozen=True)
class Kernel:
    """One kernel to time. `flops` is of this pass, None for a kernel that only moves data."""

    kind: str
    direction: str
    precision: str
    shape: Shape

    @property
    def flops(self) -> int | None:
        """Count FLOPs. A backward pass has two products per forward, one for each gradient."""
        count = KINDS[self.kind][1]
        return count and count(self.shape) * (2 if self.direction == "backward" else 1)

    @property
    def bytes_moved(self) -> float | None:
        """Return bytes that a copy moves. An all-reduce counts a link's, 2 (p - 1) / p of all."""
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


def read_kernels(content: bytes, *, file: str) -> tuple[Kernel, ...]:
    """Read the kernels of a TOML list, table by table. Raises RuleError with file, table and field.

    A copy, an all-reduce and a launch are forward passes of fp32 numbers.
    """
    whole = read_table(KernelList, parse_toml(content, file=file), file=file)
    kernels: list[Kernel] = []
    for kind, (_, flops) in KINDS.items():
        for index, table in enumerate(getattr(whole, kind)):
            shape = vars(read_table(SHAPES[kind], table, file=file, path=f"{kind}[{index}]"))
            if kind == "convolution":
                _check_filter(shape, file=file, path=f"{kind}[{index}]")
            kernels += [
                Kernel(kind, direction, precision, shape)
                for precision in (dict.fromkeys(whole.precisions) if flops else ("fp32",))
                for direction in (dict.fromkeys(whole.passes) if flops else ("forward",))
            ]
    if not kernels:
        expected = f"one of {', '.join(KINDS)}"
        raise RuleError("no kernel", file=file, field="gemm", expected=expected)
    return tuple(kernels)


def _check_filter(shape: Shape, *, file: str, path: str) -> None:
    for side, filter_side in (("h", "r"), ("w", "s")):
        padded = shape[side] + 2 * shape["padding"]
        if shape[filter_side] > padded:
            raise RuleError(
                f"got {shape[filter_side]}, more than {side} with its padding",
                file=file,
                field=f"{path}.{filter_side}",
                expected=f"at most {padded}",
            )
