"""`finishline bench kernels`: times of single kernels of the shapes in a list."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from finishline.cli.errors import UsageError
from finishline.cli.screen import Screen
from finishline.rules.errors import RuleError
from worker.commands import measuring
from worker.machine.kernel_list import Kernel, read_kernels

ON_PROCESSORS = ("fp32", "bf16", "fp16")
KERNEL_SECONDS, GROUP_SECONDS = 1.0, 600.0
KERNEL_FACTOR = 60.0  # One call of a slow kernel takes many times the seconds to measure for.
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
COLUMNS: measuring.Columns = (
    ("p50", "seconds.p50", 1, " s"),
    ("mean", "seconds.mean", 1, " s"),
    ("GFLOP/s", "flops_per_second", 1 / measuring.GIGA, ""),
    ("GB/s", "bytes_per_second", 1 / measuring.GIGA, ""),
)


def kernels(
    screen: Screen,
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="List of kernels.")],
    seconds: measuring.Seconds = KERNEL_SECONDS,
    device: measuring.Device = None,
    threads: measuring.Threads = 1,
    out: measuring.Out = None,
) -> None:
    """Time single kernels of the shapes in a list: matmul, convolution, attention and others."""
    orders = measuring.begin(out, device=device, threads=threads, seconds=seconds)
    listed = check_kernels(file, orders["device"])
    screen.say(f"{len(listed)} kernels ...")
    alone = [asdict(each) for each in listed if each.kind != "all_reduce"]
    limit = KERNEL_FACTOR * seconds * len(alone)
    taken = iter(
        measuring.ask(
            "worker.machine.kernels", orders | {"kernels": alone}, limit, what="The list"
        )["seconds"]
    )
    rows: list[dict[str, Any]] = []
    for kernel in listed:
        if kernel.kind == "all_reduce":
            found = measuring.distribution(_time_all_reduce(kernel, orders["device"], seconds))
        else:
            found = measuring.distribution(next(taken))
        flops, moved = kernel.flops, kernel.bytes_moved
        rows.append({
            "kind": kernel.kind,
            "pass": kernel.direction,
            "precision": kernel.precision,
            "shape": dict(kernel.shape),
            "seconds": found,
            "flops": flops,
            "flops_per_second": None if flops is None else flops / found["p50"],
            "bytes_per_second": None if moved is None else moved / found["p50"],
        })  # fmt: skip
    fewest = min(row["seconds"]["n"] for row in rows)
    result = {
        **measuring.describe_machine(orders),
        "flops_convention": CONVENTION,
        "absent": measuring.why_absent(
            rows, REASONS, fewest=fewest, path="seconds", what="calls were timed"
        ),
        "kernels": rows,
    }
    names = {name: name for name in ("pass", "precision", "shape")}
    shown = [row | {"shape": _shape_text(row["shape"])} for row in rows]
    table = measuring.table_of(shown, {"kernel": "kind", **names, "n": "seconds.n"}, COLUMNS)
    measuring.tell(screen, result, [table], out)


def check_kernels(file: Path, device: str) -> tuple[Kernel, ...]:
    """Read a list of kernels for this kind of device. Raises RuleError, UsageError."""
    try:
        listed = read_kernels(file.read_bytes(), file=file.name)
    except OSError as error:
        raise UsageError(
            f"Cannot read {file} ({error.strerror}); name a TOML file of kernels."
        ) from error
    for kernel in listed:
        if device == "cpu" and kernel.precision not in ON_PROCESSORS:
            raise RuleError(
                f"a processor has no arithmetic in {kernel.precision}",
                file=file.name,
                field="precisions",
                expected=" or ".join(ON_PROCESSORS),
            )
    return listed


def _time_all_reduce(kernel: Kernel, device: str, seconds: float) -> list[float]:
    """Return seconds of each all-reduce, in as many processes as the kernel has."""
    where = "cuda" if device.startswith("cuda") else device
    orders = {"device": where, "bytes": kernel.shape["bytes"], "seconds": seconds}
    found = measuring.ask(
        "worker.bench.steps",
        orders,
        GROUP_SECONDS,
        what=kernel.words,
        processes=kernel.shape["processes"],
    )
    return list(found["seconds"])


def _shape_text(shape: Mapping[str, Any]) -> str:
    numbers = [f"{name} {n}" for name, n in shape.items() if not isinstance(n, bool)]
    return ", ".join([*numbers, *(name for name, value in shape.items() if value is True)])
