"""Typed reading of JSON and TOML tables: a wrong value names its file and field."""

import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from finishline.rules.errors import RuleError, joined
from finishline.rules.text import did_you_mean, near_miss, shown

_Made = TypeVar("_Made")
Readers = Mapping[str, Callable[[], Any]]
TEXT_LIMIT = 4_000
# Characters that command a terminal, end a line unseen or turn the direction of writing, and
# unpaired surrogates.
MISLEADING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


MOST_MARKS = 2  # Vietnamese takes two. More grow over the lines of a page.


def fault_in_text(text: str) -> str | None:
    """The fault in the characters of a stranger's text; None if it may be shown."""
    if MISLEADING.search(text):
        return "control characters in a text"
    marks = 0
    for character in "" if text.isascii() else text:
        marks = marks + 1 if unicodedata.category(character) in ("Mn", "Me") else 0
        if marks > MOST_MARKS:
            return f"more than {MOST_MARKS} marks on a character"
    return None


class Fields:
    """One table of a JSON or TOML document, read field by field.

    Every getter raises `error` (a RuleError) with file, dotted field and expectation.
    A field that was never asked for is refused by `refuse_unknown`, with the nearest known name.
    """

    def __init__(
        self,
        table: object,
        *,
        file: str | None,
        error: type[RuleError] = RuleError,
        path: str = "",
    ) -> None:
        self.file = file
        self.path = path
        self._error = error
        self._seen: set[str] = set()
        self._hinted: set[str] = set()
        if not isinstance(table, Mapping):
            raise error(
                f"{_kind(table)} instead of a table",
                file=file,
                field=path or None,
                expected="a JSON object",
            )
        self._table: Mapping[str, Any] = table

    def field(self, name: str) -> str:
        """The dotted name of a field of this table."""
        return f"{self.path}.{name}" if self.path else name

    def fail(self, name: str, message: str, *, expected: str) -> RuleError:
        """The error for field `name`, to be raised by the caller."""
        return self._error(message, file=self.file, field=self.field(name), expected=expected)

    def _get(self, name: str, expected: str) -> Any:
        value = self._optional(name)
        if value is None:
            raise self.fail(name, f"missing{self._misspelt(name)}", expected=expected)
        return value

    def _misspelt(self, name: str) -> str:
        """Hint at an unread field of the table with a name near this one."""
        written = near_miss(name, (other for other in self._table if other not in self._seen))
        if written is None:
            return ""
        self._hinted.add(written)
        return f" (did you mean {name!r} where it says {written!r}?)"

    def _optional(self, name: str) -> Any:
        self._seen.add(name)
        return self._table.get(name)

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self._optional(name) is not None

    def raw(self, name: str) -> Any:
        """The value of a field as it was written, None where it is absent."""
        return self._optional(name)

    def text(self, name: str, *, default: str | None = None) -> str:
        """A non-empty text of at most 4,000 characters without control characters."""
        expected = f"a text of 1 to {TEXT_LIMIT} characters"
        if default is not None and not self.has(name):
            return default
        value = self._get(name, expected)
        if not isinstance(value, str) or not value.strip() or len(value) > TEXT_LIMIT:
            raise self.fail(name, f"{_kind(value)} {shown(value)}", expected=expected)
        if fault := fault_in_text(value):
            raise self.fail(name, fault, expected="printable text")
        return value.strip()

    def optional_text(self, name: str) -> str | None:
        """As `text`, or None where the field is absent or null."""
        return self.text(name) if self.has(name) else None

    def choice(self, name: str, choices: Sequence[str], *, default: str | None = None) -> str:
        """One of the given words."""
        value = self.text(name, default=default)
        if value not in choices:
            raise self.fail(name, f"unknown value {shown(value)}", expected=" or ".join(choices))
        return value

    def number(
        self, name: str, *, minimum: float | None = None, maximum: float | None = None
    ) -> float:
        """A finite number within the limits (both inclusive)."""
        return float(self._number(name, int | float, "a number", minimum, maximum))

    def _number(
        self, name: str, kind: Any, noun: str, minimum: float | None, maximum: float | None
    ) -> Any:
        expected = noun + _limits(minimum, maximum)
        value = self._get(name, expected)
        if isinstance(value, bool) or not isinstance(value, kind):
            raise self.fail(name, f"{_kind(value)} {shown(value)}", expected=expected)
        is_within = (minimum is None or value >= minimum) and (maximum is None or value <= maximum)
        if not is_within or (noun == "a number" and not _is_finite(value)):
            raise self.fail(name, f"got {shown(value)}", expected=expected)
        return value

    def optional_number(
        self, name: str, *, minimum: float | None = None, maximum: float | None = None
    ) -> float | None:
        """As `number`, or None where the field is absent or null."""
        return self.number(name, minimum=minimum, maximum=maximum) if self.has(name) else None

    def integer(self, name: str, *, minimum: int | None = None, maximum: int | None = None) -> int:
        """A whole number within the limits (both inclusive)."""
        return int(self._number(name, int, "a whole number", minimum, maximum))

    def optional_integer(
        self, name: str, *, minimum: int | None = None, maximum: int | None = None
    ) -> int | None:
        """As `integer`, or None where the field is absent or null."""
        return self.integer(name, minimum=minimum, maximum=maximum) if self.has(name) else None

    def boolean(self, name: str, *, default: bool) -> bool:
        """true or false."""
        value = self._optional(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.fail(name, f"{_kind(value)} {shown(value)}", expected="true or false")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A non-empty list of texts without control characters."""
        value = self._get(name, "a list of texts")
        if not isinstance(value, list) or not value or not all(isinstance(v, str) for v in value):
            raise self.fail(name, f"{_kind(value)} {shown(value)}", expected="a list of texts")
        if fault := next(filter(None, map(fault_in_text, value)), None):
            raise self.fail(name, fault, expected="printable texts")
        return tuple(value)

    def optional_texts(self, name: str) -> tuple[str, ...] | None:
        """As `texts`, or None where the field is absent or null."""
        return self.texts(name) if self.has(name) else None

    def numbers(self, name: str) -> tuple[float, ...]:
        """A non-empty list of finite numbers."""
        value = self._get(name, "a list of numbers")
        if not isinstance(value, list) or not value or not all(map(_is_finite, value)):
            raise self.fail(name, f"{_kind(value)} {shown(value)}", expected="a list of numbers")
        return tuple(float(v) for v in value)

    def table(self, name: str) -> "Fields":
        """A table within this one."""
        return Fields(
            self._get(name, "a table"), file=self.file, error=self._error, path=self.field(name)
        )

    def read_table(self, name: str, read: "Callable[[Fields], _Made]") -> "_Made | None":
        """Read a table within this one, None where the field is absent or null."""
        return read(self.table(name)) if self.has(name) else None

    def whole(self, make: Callable[..., _Made], **values: Any) -> _Made:
        """Call `make` with what was read. Raises for the first field that was not read."""
        self.refuse_unknown()
        return make(**values)

    def tables(self, name: str) -> list["Fields"]:
        """A list of tables, empty where the field is absent."""
        value = self._optional(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.fail(name, f"{_kind(value)} {shown(value)}", expected="a list of tables")
        return [
            Fields(item, file=self.file, error=self._error, path=f"{self.field(name)}[{index}]")
            for index, item in enumerate(value)
        ]

    def items(self) -> Iterator[tuple[str, Any]]:
        """Every field with its raw value; all count as known."""
        self._seen.update(self._table)
        yield from self._table.items()

    def unknown(self) -> Iterator[RuleError]:
        """An error for each field that was not read, but one told already as a misspelt name."""
        known = sorted(self._seen)
        for name in self._table:
            if name not in self._seen | self._hinted:
                message = f"unknown field{did_you_mean(name, known)}"
                yield self.fail(name, message, expected=f"one of {', '.join(known)}")

    def refuse_unknown(self) -> None:
        """Raise for the first field that was not read."""
        for error in self.unknown():
            raise error


def read_whole(table: Fields, make: Callable[..., _Made], readers: Readers) -> _Made:
    """Call `make` with the value of every reader by name.

    Raises one RuleError of everything that is wrong with the table, fields that nobody read too.
    """
    values, problems = read_each(readers)
    problems += table.unknown()
    if problems:
        raise joined(problems)
    return make(**values)


def read_each(readers: Readers) -> tuple[dict[str, Any], list[RuleError]]:
    """Call every reader; return the values by name, and the errors of those that raised one."""
    values: dict[str, Any] = {}
    problems: list[RuleError] = []
    for name, read in readers.items():
        try:
            values[name] = read()
        except RuleError as error:
            problems += error.problems
    return values, problems


def _is_finite(value: object) -> bool:
    try:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and math.isfinite(cast(float, value))
    except OverflowError:  # an int that no float can hold
        return False


def _limits(minimum: float | None, maximum: float | None) -> str:
    if minimum is not None and maximum is not None:
        return f" from {_exact(minimum)} to {_exact(maximum)}"
    if minimum is not None:
        return f" of at least {_exact(minimum)}"
    return f" of at most {_exact(maximum)}" if maximum is not None else ""


def _exact(value: float) -> str:
    return f"{value:g}" if float(f"{value:g}") == value else str(value)


def _kind(value: object) -> str:
    kinds = {str: "text", bool: "true/false", int: "number", float: "number", list: "list"}
    return kinds.get(type(value), "null" if value is None else type(value).__name__)
