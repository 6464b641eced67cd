"""Two machines side by side: the rows that two results of `finishline bench` share."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson
from rich.table import Table

from finishline.cli.errors import CliError, ExitCode
from finishline.cli.kernel_list import shape_words
from finishline.cli.tables import ABSENT, make_table
from finishline.rules.errors import RuleError
from finishline.rules.fields import Fields

UNITS = {"kernels": "seconds", "model": "samples_per_second", "generation": "tokens_per_second"}
LARGEST_BYTES = 2**24

Figures = dict[str, float]


@dataclass(frozen=True)
class Side:
    """One result: its kind, the machine as it names itself, and a figure by each row's words."""

    file: str
    kind: str
    machine: str
    rows: Figures


def compare(first: Path, second: Path) -> dict[str, Any]:
    """The rows of both, with the speed of the second by that of the first. Raises CliError."""
    try:
        a, b = read_side(first), read_side(second)
        if a.kind != b.kind:
            raise RuleError(f"{a.kind} in {a.file}, {b.kind} here", file=b.file, expected=a.kind)
        shared = [words for words in a.rows if words in b.rows]
        if not shared:
            raise RuleError(f"no row that {a.file} has too", file=b.file, expected="the same list")
    except RuleError as error:
        raise CliError(f"{error}.", exit_code=ExitCode.REFUSED) from error
    except OSError as error:
        raise CliError(
            f"Cannot read {error.filename} ({error.strerror}); name two results of bench --out.",
            exit_code=ExitCode.USAGE,
        ) from error
    sides = [{name: value for name, value in asdict(side).items() if name != "rows"}
             for side in (a, b)]  # fmt: skip
    return {
        "comparison": {
            "kind": a.kind,
            "figure": UNITS[a.kind],
            "a": sides[0],
            "b": sides[1],
            "rows": [_row(words, a.rows[words], b.rows[words], a.kind) for words in shared],
            "only_in_a": [words for words in a.rows if words not in b.rows],
            "only_in_b": [words for words in b.rows if words not in a.rows],
        }
    }


def _row(words: str, a: float, b: float, kind: str) -> dict[str, Any]:
    """Seconds are faster where they are fewer, rates where they are more."""
    return {"row": words, "a": a, "b": b, "speed_ratio": a / b if kind == "kernels" else b / a}


def read_side(path: Path) -> Side:
    """The rows of a result. Raises RuleError with file and field."""
    file = path.name
    with path.open("rb") as opened:
        content = opened.read(LARGEST_BYTES + 1)
    if len(content) > LARGEST_BYTES:
        raise RuleError("too large", file=file, expected=f"at most {LARGEST_BYTES} bytes")
    try:
        root = Fields(orjson.loads(content), file=file)
    except orjson.JSONDecodeError as error:
        raise RuleError(f"not JSON: {error}", file=file, expected="a result of bench") from error
    for kind, read in _READERS.items():
        if root.has("results" if kind == "model" else kind):
            rows = dict(read(root))
            break
    else:
        raise RuleError(
            "no result of kernels, a model or generation",
            file=file,
            expected="the JSON that finishline bench --out writes",
        )
    system = root.optional_table("system")
    name = None if system is None else system.optional_text("hardware_class")
    return Side(file, kind, name or root.text("device", default="unnamed"), rows)


def _kernels(root: Fields) -> Iterator[tuple[str, float]]:
    for table in root.tables("kernels"):
        shape = shape_words(dict(table.table("shape").items()))
        words = [table.text(name) for name in ("kind", "pass", "precision")]
        seconds = table.table("seconds").number("p50", minimum=1e-12)
        yield ", ".join([" ".join(words), *([shape] if shape else [])]), seconds


def _model(root: Fields) -> Iterator[tuple[str, float]]:
    model, precision = root.text("model"), root.text("precision")
    for table in root.tables("results"):
        words = f"{model} {precision} {table.text('phase')}, batch {table.integer('batch_size')}"
        yield words, table.number("samples_per_second", minimum=1e-12)


def _generation(root: Fields) -> Iterator[tuple[str, float]]:
    model, precision, found = root.text("model"), root.text("precision"), root.table("generation")
    cache = "" if found.boolean("kv_cache", default=True) else " without cache"
    for table in found.tables("results"):
        words = f"{model} {precision} {found.text('scenario')}{cache}"
        rate = table.number("tokens_per_second", minimum=1e-12)
        yield f"{words}, batch {table.integer('batch_size')}", rate


_READERS: Mapping[str, Callable[[Fields], Iterator[tuple[str, float]]]] = {
    "kernels": _kernels,
    "generation": _generation,
    "model": _model,
}


def compare_table(result: Mapping[str, Any]) -> Table:
    """One line for each row of both."""
    found = result["comparison"]
    a, b = (f"{found[side]['machine']} ({found[side]['file']})" for side in "ab")
    table = make_table("row", a, b, "speed ratio", right=(a, b, "speed ratio"))
    for row in found["rows"]:
        table.add_row(row["row"], f"{row['a']:.4g}", f"{row['b']:.4g}", f"{row['speed_ratio']:.3g}")
    for words in found["only_in_a"]:
        table.add_row(words, "there", ABSENT, ABSENT)
    for words in found["only_in_b"]:
        table.add_row(words, ABSENT, "there", ABSENT)
    return table


def compare_lines(result: Mapping[str, Any]) -> Iterator[str]:
    """The figure, and the direction of the ratio."""
    figure = result["comparison"]["figure"].replace("_", " ")
    yield f"Figures are {figure}. A ratio above 1 says that the second is faster."
