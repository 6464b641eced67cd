"""Tables of files as models: a wrong value names its file, its field and what was expected."""

import re
from collections.abc import Iterator, Mapping
from datetime import date
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints, ValidationError

from finishline.rules.errors import RuleError, joined
from finishline.rules.fields import TEXT_LIMIT, fault_in_text
from finishline.rules.text import did_you_mean, near_miss, shown

MOST_PROBLEMS = 50  # A stranger's table may have any number of wrong fields.
A_TEXT = f"a text of 1 to {TEXT_LIMIT} characters"
SHOULD = re.compile(r"\w+ should (be|have) ")  # As errors of pydantic begin.


def _printable(value: object) -> object:
    if isinstance(value, str) and (fault := fault_in_text(value)):
        raise ValueError(f"{fault}; expected printable text")
    return value


def read_day(value: object) -> object:
    """A date of TOML or a text as 2026-11-21. Raises ValueError."""
    if type(value) is date:
        return value
    try:
        return date.fromisoformat(value if isinstance(value, str) else "")
    except ValueError:
        raise ValueError("no day; expected one like 2026-11-21") from None


Day = Annotated[date, BeforeValidator(read_day)]
Printable = Annotated[str, BeforeValidator(_printable)]
Text = Annotated[
    Printable,
    StringConstraints(min_length=1, max_length=TEXT_LIMIT, strip_whitespace=True),
]


class Table(BaseModel):
    """One table of a file. The description of a field, or its error, says what is expected."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @classmethod
    def read(
        cls,
        table: Mapping[str, Any],
        *,
        file: str,
        line: int | None = None,
        path: str = "",
        error: type[RuleError] = RuleError,
    ) -> Self:
        """Read a table. Raises one RuleError with the first 50 problems, each with its field.

        `line` or `path` is the place of the table in its file.
        """
        try:
            return cls.model_validate(table)
        except ValidationError as invalid:
            problems = [
                error(message, file=file, line=line, field=field, expected=expected)
                for field, message, expected in cls._problems(invalid, path)
            ]
            raise joined(problems) from invalid

    @classmethod
    def _problems(
        cls, invalid: ValidationError, place: str
    ) -> Iterator[tuple[str, str, str | None]]:
        """The field of each problem, the fault and the expected value."""
        known = {each.alias or name: each for name, each in cls.model_fields.items()}
        hinted: set[str | None] = set()
        for each in invalid.errors()[:MOST_PROBLEMS]:
            path = [str(step) for step in each["loc"] if step != "[key]"]
            name, kind = path[0], each["type"]
            expected = known[name].description if name in known else None
            if kind in ("missing", "string_type", "string_too_short") and (
                len(path) > 1 or known[name].annotation is str
            ):
                expected = A_TEXT
            if kind == "missing":
                message, expected = "missing", expected or "a value"
                others = [other for other in each["input"] if other not in known]
                written = near_miss(name, others[:MOST_PROBLEMS])
                if written is not None:
                    hinted.add(written)
                    message += f" (did you mean {name!r} where it says {written!r}?)"
            elif kind == "extra_forbidden":
                if name in hinted:
                    continue
                message = f"unknown field{did_you_mean(name, known)}"
                expected = f"one of {', '.join(sorted(known))}"
            elif kind == "too_long" and not isinstance(each["input"], str):
                message, expected = f"too many {name}", f"at most {each['ctx']['max_length']}"
            elif kind == "value_error":
                message, _, expected = str(each["ctx"]["error"]).partition("; expected ")
            else:
                message = f"got {shown(each['input'])}"
                expected = expected or SHOULD.sub("", each["msg"])
            yield ".".join([place, *path] if place else path), message, expected
