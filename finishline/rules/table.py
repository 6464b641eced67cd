"""Read tables of files into typed values. The types also write the errors, with the field."""

import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import Annotated, Any, TypeVar

from annotated_types import MaxLen, MinLen

from finishline.rules.errors import RuleError, joined
from finishline.rules.text import did_you_mean, near_miss, shown

T = TypeVar("T")
STRICT: Any = {"strict": True, "extra": "forbid", "allow_inf_nan": False}
MOST_PROBLEMS = 50  # A stranger's table may have any number of wrong fields.
TEXT_LIMIT = 4_000
# Characters that command a terminal, end a line unseen or turn the direction of writing, and
# unpaired surrogates.
MISLEADING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
MOST_MARKS = 2  # Vietnamese takes two. More grow over the lines of a page.


class FieldError(ValueError):
    """A rule refuses a value of the right type. The check of a table names its `field`."""

    def __init__(self, message: str, *, expected: str, field: str | None = None) -> None:
        super().__init__(f"{message}; expected {expected}")
        self.message, self.expected, self.field = message, expected, field


@dataclass(frozen=True)
class Checked:
    """Annotation of a field: `check` returns its value, or raises FieldError.

    A training only needs these types, so pydantic is loaded at the first table.
    """

    check: Callable[[Any], Any]
    pattern: str | None = None

    def __get_pydantic_core_schema__(self, kind: Any, handler: Callable[[Any], Any]) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(self.check, handler(kind))

    def __get_pydantic_json_schema__(self, core: Any, handler: Callable[[Any], Any]) -> Any:
        schema: dict[str, Any] = handler(core)
        return schema | ({"pattern": self.pattern} if self.pattern else {})


def like(pattern: str, expected: str) -> Checked:
    """Annotate a text that fits a pattern, which the API's document shows too."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text) or not text.isprintable():
            raise FieldError(f"got {shown(text)}", expected=expected)
        return text

    return Checked(check, f"^{pattern}$")


def _each_once(names: tuple[str, ...]) -> tuple[str, ...]:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise FieldError(f"{twice[:60]!r} is there twice", expected="each of them once")
    return names


EACH_ONCE = Checked(_each_once)


def fault_in_text(text: str) -> str | None:
    """Return the fault in the characters of a stranger's text, if any."""
    if MISLEADING.search(text):
        return "control characters in a text"
    marks = 0
    for character in "" if text.isascii() else text:
        marks = marks + 1 if unicodedata.category(character) in ("Mn", "Me") else 0
        if marks > MOST_MARKS:
            return f"more than {MOST_MARKS} marks on a character"
    return None


def _printable(text: str) -> str:
    if fault := fault_in_text(text):
        raise FieldError(fault, expected="printable text")
    return text


def _trimmed(text: str) -> str:
    if not text.strip():
        raise FieldError(f"got {shown(text)}", expected=f"a text of 1 to {TEXT_LIMIT} characters")
    return text.strip()


def read_day(value: object) -> date:
    """Read a date of TOML, or a text as 2026-11-21. Raises ValueError."""
    if type(value) is date:
        return value
    try:
        return date.fromisoformat(value if isinstance(value, str) else "")
    except ValueError:
        raise FieldError("no day", expected="one like 2026-11-21") from None


Printable = Annotated[str, Checked(_printable)]
Text = Annotated[Printable, MinLen(1), MaxLen(TEXT_LIMIT), Checked(_trimmed)]


def read_table(
    kind: type[T],
    table: Mapping[str, Any],
    *,
    file: str,
    line: int | None = None,
    path: str = "",
    error: type[RuleError] = RuleError,
) -> T:
    """Read a table as a dataclass or a model. `line` or `path` is its place in the file.

    A null is an absent field. Raises one RuleError with the first 50 problems, each with its field.
    """
    adapter, schema = _adapter(kind)  # type: ignore[arg-type]
    try:
        found: T = adapter.validate_json(json.dumps(_without_nulls(table), default=str))
    except ValueError as invalid:
        problems = [
            error(message, file=file, line=line, field=field, expected=expected)
            for field, message, expected in _problems(invalid, schema, path)
        ]
        raise joined(problems) from invalid
    return found


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list | tuple) else value


@cache
def _adapter(kind: type[Any]) -> tuple[Any, dict[str, Any]]:
    """Return the reader of a type, and its JSON schema. A type may keep its own configuration."""
    from pydantic import TypeAdapter

    optional: Any = kind | None
    adapter: Any = TypeAdapter(optional, config=STRICT)
    return adapter, adapter.json_schema()


def _problems(
    invalid: Any, whole: Mapping[str, Any], path: str
) -> Iterator[tuple[str | None, str, str]]:
    hinted: set[tuple[Any, ...]] = set()
    around: set[tuple[Any, ...]] = set()
    for each in invalid.errors(include_url=False)[:MOST_PROBLEMS]:
        steps = tuple(step for step in each["loc"] if step != "[key]")
        expected, found, kind = expected_of(_node(whole, steps), whole), each["input"], each["type"]
        siblings = _node(whole, steps[:-1]).get("properties", {})
        message = f"got {shown(found)}"
        if kind == "too_short" and steps in around:  # All its elements have the wrong type.
            continue
        around.update(steps[:length] for length in range(len(steps)))
        if kind == "missing":
            others = [name for name in found if name not in siblings]
            written = near_miss(steps[-1], others[:MOST_PROBLEMS])
            hinted.add((*steps[:-1], written))
            hint = f" (did you mean {steps[-1]!r} where it says {written!r}?)" if written else ""
            message = f"missing{hint}"
        elif kind in ("extra_forbidden", "unexpected_keyword_argument"):
            if steps in hinted:
                continue
            message = f"unknown field{did_you_mean(steps[-1], siblings)}"
            expected = f"one of {', '.join(sorted(siblings))}"
        elif kind == "value_error":
            fault = each["ctx"]["error"]
            message, expected = fault.message, fault.expected
            steps += (fault.field,) if fault.field else ()
        elif kind == "too_long" and not isinstance(found, str):
            message, expected = f"too many {steps[-1]}", f"at most {each['ctx']['max_length']}"
        elif kind == "literal_error":
            message = f"unknown value {shown(found)}"
        elif kind == "json_invalid":
            message, expected = "no JSON", "numbers and texts"
        while steps and isinstance(steps[-1], int) and not isinstance(found, dict):
            steps = steps[:-1]  # Of a list of numbers or texts the list is the field.
        field = path + "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in steps)
        yield field.removeprefix(".") or None, message, expected


def _node(whole: Mapping[str, Any], steps: tuple[Any, ...]) -> Mapping[str, Any]:
    """Return the part of a schema for the value at a place."""
    node = _resolved(whole, whole)
    for step in steps:
        inner = node.get("items") if isinstance(step, int) else node.get("properties", {}).get(step)
        node = _resolved(inner or node.get("additionalProperties") or {}, whole)
    return node


def _resolved(node: Any, whole: Mapping[str, Any]) -> Mapping[str, Any]:
    """Resolve a schema's references, for a value that is not null."""
    node = {} if isinstance(node, bool) else node
    if "$ref" in node:
        return {"type": "object"} | dict(whole["$defs"][node["$ref"].rpartition("/")[2]])
    if "anyOf" in node:
        return {**_resolved(node["anyOf"][0], whole), **node}
    return dict(node)


def expected_of(node: Mapping[str, Any], whole: Mapping[str, Any]) -> str:
    """Name the values that a schema allows, in words."""
    kind = node.get("type")
    if kind in ("object", None) and "enum" not in node and "const" not in node:
        return "a table"
    if "description" in node:
        return str(node["description"])
    if "enum" in node or "const" in node:
        return " or ".join(str(each) for each in node.get("enum", [node.get("const")]))
    if kind == "array":
        plural = {"string": "texts", "number": "numbers", "integer": "whole numbers"}
        return f"a list of {plural.get(str(_resolved(node['items'], whole).get('type')), 'tables')}"
    if kind == "string":
        least, most = node.get("minLength", 0), node.get("maxLength", TEXT_LIMIT)
        return f"a text of {least} to {most} characters"
    nouns = {"integer": "a whole number", "number": "a number", "boolean": "true or false"}
    return nouns[str(kind)] + _limits(node)


def _limits(node: Mapping[str, Any]) -> str:
    low = node.get("minimum", node.get("exclusiveMinimum"))
    high = node.get("maximum", node.get("exclusiveMaximum"))
    above = "above" if "exclusiveMinimum" in node else "of at least"
    if low is not None and high is not None:
        return f" from {_exact(low)} to {_exact(high)}"
    if low is not None:
        return f" {above} {_exact(low)}"
    return f" of at most {_exact(high)}" if high is not None else ""


def _exact(value: float) -> str:
    return f"{value:g}" if float(f"{value:g}") == value else str(value)
