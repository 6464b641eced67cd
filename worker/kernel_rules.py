"""Lists of kernels to be timed, as DeepBench has them: their shapes, passes, precisions and FLOPs.

Source of the kinds: baidu-research/DeepBench, README (GEMM, convolution, recurrent, all-reduce).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from finishline.rules.fields import Fields
from finishline.rules.text import parse_toml, shown

PASSES = ("forward", "backward")
PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp8")
ON_PROCESSORS = ("fp32", "bf16", "fp16")
MOST_PROCESSES = 64
MOST_BYTES = 2**40

Shape = Mapping[str, int | bool]

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


@dataclass(frozen=True)
class Kernel:
    """One kernel to be timed. `flops` is of this pass; None where a kernel computes nothing."""

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


def read_kernels(content: bytes, *, file: str) -> tuple[Kernel, ...]:
    """The kernels of a TOML list, table by table. Raises RuleError with file, table and field.

    A copy, an all-reduce and a launch are of fp32 numbers and have no backward pass.
    """
    root = Fields(parse_toml(content, file=file), file=file)
    root.integer("schema", minimum=1, maximum=1)
    precisions = _words(root, "precisions", PRECISIONS)
    directions = _words(root, "passes", PASSES)
    kernels: list[Kernel] = []
    for kind in SIZES:
        for table in root.tables(kind):
            shape = _read_shape(kind, table)
            if kind in _FLOPS:
                kernels += [
                    Kernel(kind, direction, precision, shape)
                    for precision in precisions
                    for direction in directions
                ]
            else:
                kernels.append(Kernel(kind, "forward", "fp32", shape))
    root.refuse_unknown()
    if not kernels:
        raise root.fail("gemm", "no kernel", expected=f"one of {', '.join(SIZES)}")
    return tuple(kernels)


def _words(root: Fields, name: str, known: tuple[str, ...]) -> tuple[str, ...]:
    words = root.texts(name)
    for word in words:
        if word not in known:
            raise root.fail(name, f"unknown value {shown(word)}", expected=" or ".join(known))
    return tuple(dict.fromkeys(words))


def _read_shape(kind: str, table: Fields) -> Shape:
    shape: dict[str, int | bool] = {}
    for name in SIZES[kind]:
        least = {"padding": 0, "processes": 2}.get(name, 4 if name == "bytes" else 1)
        most = {"processes": MOST_PROCESSES, "bytes": MOST_BYTES}.get(name, 2**31 - 1)
        shape[name] = table.integer(name, minimum=least, maximum=most)
    if kind == "attention":
        shape["causal"] = table.boolean("causal", default=False)
    if kind == "convolution":
        for side, filter_side in (("h", "r"), ("w", "s")):
            padded = shape[side] + 2 * shape["padding"]
            if shape[filter_side] > padded:
                raise table.fail(
                    filter_side,
                    f"got {shape[filter_side]}, more than {side} with its padding",
                    expected=f"at most {padded}",
                )
    table.refuse_unknown()
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
