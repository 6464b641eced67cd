"""The common parts of all benches: options, measuring processes, figures, absent ones."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from errno import EISDIR
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import TypeAdapter
from rich.console import RenderableType
from typer import Option

from finishline.cli.errors import CliError, UsageError
from finishline.cli.processes import require_training_packages
from finishline.cli.screen import Screen
from finishline.cli.tables import ABSENT, FittingTable, make_table
from finishline.devices import choose_device
from finishline.rules.errors import RuleError
from finishline.rules.measurements import Figure
from finishline.rules.scoring.latency import FEWEST_SAMPLES, nearest_rank, percentile
from finishline.rules.statistics.aggregate import mean
from worker.child_process import ChildError, answer_of, measure_apart
from worker.events import Answer
from worker.machine.probe import describe_surroundings, probe

START_SECONDS = 120.0  # A process that loads torch, and a device that wakes up.
ROOFS_SECONDS, ROOF_SECONDS_EACH = 20.0, 0.4
MIB, GIGA, TERA = 2**20, 1e9, 1e12
LEAST = 1e-6  # Of a price or a rate, which are above 0.

PrecisionName = Literal["fp32", "tf32", "bf16", "fp16", "fp8"]
Result = Mapping[str, Any]
Columns = Sequence[tuple[str, str, float, str]]
"""Of each column of figures its heading, field, factor and unit."""

Seconds = Annotated[float, Option(min=0.1, max=600.0, help="Seconds of each measurement.")]
Threads = Annotated[int, Option(min=1, max=1024, help="Processor threads to use.")]
Device = Annotated[str | None, Option(help="cpu or cuda. The default is cuda where there is one.")]
Steps = Annotated[int, Option("--steps", min=1, max=1000, help="Training steps to time.")]
Out = Annotated[Path | None, Option(help="Also write the result to this file (JSON).")]
Precision = Annotated[PrecisionName | None, Option(help="Of a model (default: fp32).")]
BatchSizes = Annotated[str | None, Option(help="Of a model, such as 1,8 (default).")]


def begin(*files: Path | None, device: str | None, **orders: Any) -> dict[str, Any]:
    """Return the orders of a bench with its device. Refuses files that cannot be written."""
    require_training_packages("bench")
    for path in filter(None, files):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(EISDIR, "it is a folder", str(path))
    return {"device": choose_device(device), **orders}


def ask(
    module: str,
    orders: Mapping[str, Any],
    seconds: float,
    *,
    what: str,
    hint: str = "",
    processes: int = 1,
) -> Answer:
    """Return the answer of one or several measuring processes. Raises CliError if it is missing.

    The `hint` says how to go on after a crash or without enough memory.
    """
    try:
        answer = answer_of(module, orders, START_SECONDS + seconds, processes=processes)
    except ChildError as error:
        raise CliError(f"{what} was not measured: its process {error}{hint}") from error
    if (missing := answer.get("missing")) is not None:
        raise CliError(missing + (hint if "out of memory" in missing else ""))
    return answer


def measure_peaks(
    screen: Screen, orders: Mapping[str, Any], *, only: Sequence[str] = ()
) -> dict[str, Figure]:
    """Measure the peak throughput of this machine by its parts. Empty if it fails."""
    screen.say("measuring the peak throughput of this machine ...")
    more = {
        "only": only,
        "limit_seconds": ROOFS_SECONDS,
        "seconds_each": min(ROOF_SECONDS_EACH, orders["seconds"]),
    }
    limit = ROOFS_SECONDS + START_SECONDS
    answer = measure_apart("worker.machine.peak", {**orders, **more}, limit) or {}
    return TypeAdapter(dict[str, Figure]).validate_python(answer.get("figures", {}))


def describe_machine(orders: Mapping[str, Any]) -> dict[str, Any]:
    """Return the machine, in the words of every result."""
    device = orders["device"]
    system = asdict(probe(threads=orders["threads"], device=device))
    return {"device": device, "system": system, "host": describe_surroundings(device)}


def distribution(values: Sequence[float]) -> dict[str, Any]:
    """Return count, mean and percentiles by nearest rank. None below enough samples."""
    ordered = sorted(values)
    return {
        "n": len(ordered),
        "mean": mean(ordered),
        "p50": nearest_rank(ordered, 50),
        "p90": percentile(ordered, 90),
        "p99": percentile(ordered, 99),
    }


def why_absent(
    rows: Sequence[Result], reasons: Mapping[str, str], *, fewest: int, path: str, what: str
) -> dict[str, str]:
    """Give a reason for each figure that a row lacks. A row has at least `fewest` samples."""
    absent = {name: why for name, why in reasons.items() if any(row[name] is None for row in rows)}
    return absent | {
        f"{path}.p{percent}": f"fewer than {least} {what}"
        for percent, least in FEWEST_SAMPLES.items()
        if fewest < least
    }


def check_precision(precision: str, device: str) -> None:
    """Raise RuleError for a precision that this kind of device lacks."""
    expected = "fp32, bf16 or fp16" if device == "cpu" else "fp32, tf32, bf16 or fp16"
    if device == "cpu" and precision in ("tf32", "fp8"):
        why = f"a processor has no arithmetic in {precision}"
        raise RuleError(why, field="precision", expected=expected)
    if precision == "fp8":
        why = "torch has no layers in fp8, so a model's speed in it is not measured"
        raise RuleError(why, field="precision", expected=expected)


def check_spec(spec: str, *, generates: bool = False) -> None:
    """Raise RuleError unless a SPEC is of one of the three kinds, and on this machine."""
    kind, _, name = spec.partition(":")
    path, _, function = spec.rpartition(":")
    why = None
    if kind == "torchvision" and name:
        why = "generates nothing" if generates else None
    elif kind == "hf" and "/" in name:
        why = "names a model to be downloaded, and nothing is"
    elif kind == "hf":
        why = None if generates or name == "roberta" else "is not known"
    elif not path or not function.isidentifier():
        why = "is no model"
    elif not path.endswith(".py") or not Path(path).is_file():
        why = "names no Python file"
    if why is not None:
        others = "hf:NAME" if generates else "torchvision:NAME, hf:roberta"
        expected = f"{others} or FILE.py:FUNCTION"
        raise RuleError(f"{spec!r} {why}", field="model", expected=expected)


def read_numbers(text: str, option: str, *, most: int = 10**6) -> list[int]:
    """Return the whole numbers of a list such as 1,8. Raises UsageError."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and 0 < int(part[:9]) <= most for part in parts):
        raise UsageError(
            f"{option} is {text!r}; expected whole numbers from 1 to {most}, with commas between "
            "them."
        )
    return list(dict.fromkeys(map(int, parts)))


def tell(
    screen: Screen, result: Result, lines: Iterable[RenderableType], out: Path | None = None
) -> None:
    """Write the result to its file and to the screen, with the reasons of absent figures."""
    if out is not None:
        out.write_text(json.dumps(result, indent=2) + "\n")
    absences = [f"{name}: absent, {why}" for name, why in result.get("absent", {}).items()]
    screen.answer(result, [*lines, *absences])


def table_of(rows: Sequence[Result], words: Mapping[str, str], figures: Columns) -> FittingTable:
    """Make a row for each result: words by their headings, then figures."""
    right = [heading for heading, *_ in figures]
    table = make_table(*words, *right, right=("batch", "n", *right))
    for row in rows:
        table.add_row(
            *(str(field_of(row, path)) for path in words.values()),
            *(figure_text(field_of(row, path), unit, scale) for _, path, scale, unit in figures),
        )
    return table


def field_of(row: Any, path: str) -> Any:
    """Return a value by its dotted path. None if a part of it is absent."""
    for name in path.split("."):
        row = row and row[name]
    return row


def figure_text(value: float | str | None, unit: str = "", scale: float = 1) -> str:
    if isinstance(value, str):
        return value
    return ABSENT if value is None else f"{value * scale:.4g}{unit}"
