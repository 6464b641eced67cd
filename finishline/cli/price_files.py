"""Files of prices: CSV with a header, or TOML with [[prices]]."""

import csv
import io
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from finishline.cli.errors import CliError, ExitCode
from finishline.rules.benchmarks.prices import Price, read_price
from finishline.rules.errors import RuleError
from finishline.rules.text import count_text, did_you_mean, parse_toml, refuse_utf16

LIMIT_BYTES = 16 * 1024 * 1024
NUMBERS = {"usd_per_hour": float, "supersedes": int}


@dataclass(frozen=True)
class Row:
    """One price as it was written, and where: its line in CSV, its path in TOML."""

    table: Mapping[str, Any]
    line: int | None = None
    path: str = ""


def read_prices(path: Path) -> list[Price]:
    """The prices in a file, all of them right. Raises CliError, or RuleError with the place."""
    try:
        if path.stat().st_size > LIMIT_BYTES:
            raise ValueError(f"more than {LIMIT_BYTES} bytes")
        content = path.read_bytes()
        refuse_utf16(content, file=path.name)
        text = content.decode("utf-8-sig")
    except RuleError:
        raise
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise CliError(
            f"Cannot read {path} ({why}). Expected a CSV with a header, or TOML.",
            exit_code=ExitCode.REFUSED,
        ) from error
    rows = _toml_rows if path.suffix.lower() == ".toml" else _csv_rows
    prices = [
        read_price(row.table, file=path.name, line=row.line, path=row.path)
        for row in rows(text, path.name)
    ]
    if not prices:
        raise RuleError("no prices", file=path.name, expected="at least one price")
    return prices


def _csv_rows(text: str, file: str) -> Iterator[Row]:
    # strict: a quote that is never closed would take the rest of the file for one cell.
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        _require_names(header, file)
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) != len(header):
                raise RuleError(
                    count_text(len(cells), "cell"), file=file, line=reader.line_num,
                    expected=f"{len(header)}, one for each column of the header",
                )  # fmt: skip
            named = zip(header, (cell.strip() for cell in cells), strict=True)
            table = {name: _value(name, cell) for name, cell in named if cell}
            yield Row(table, line=reader.line_num)
    except csv.Error as error:
        raise RuleError(str(error), file=file, line=reader.line_num, expected="CSV") from error


def _require_names(header: list[str], file: str) -> None:
    twice = sorted({name for name in header if header.count(name) > 1})
    if not header or twice:
        found = f"{twice[0]!r} twice" if twice else "no header"
        raise RuleError(
            found, file=file, line=1, expected="provider,instance,region,usd_per_hour,..."
        )


def _value(name: str, cell: str) -> object:
    """Convert a cell to its type; text that is no number stays text, for the rule to refuse."""
    try:
        number = NUMBERS[name](cell) if name in NUMBERS else cell
    except ValueError:
        return cell
    return cell if isinstance(number, float) and not math.isfinite(number) else number


def _toml_rows(text: str, file: str) -> Iterator[Row]:
    table = parse_toml(text.encode(), file=file, most_bytes=LIMIT_BYTES)
    for name in table:
        if name != "prices":
            raise RuleError(
                f"unknown field{did_you_mean(name, ['prices'])}",
                file=file,
                field=name,
                expected="[[prices]] and nothing else",
            )
    if not isinstance(table.get("prices", []), list):
        raise RuleError("not a list of tables", file=file, field="prices", expected="[[prices]]")
    for number, row in enumerate(table.get("prices", []), start=1):
        path = f"prices[{number}]"
        if not isinstance(row, Mapping):
            raise RuleError("not a table", file=file, field=path, expected="[[prices]]")
        yield Row(row, path=path)
