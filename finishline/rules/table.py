"""Tables of files as models: a wrong value names its file, its field and what was expected."""

from collections.abc import Iterator
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints, ValidationError

from finishline.rules.errors import RuleError, joined
from finishline.rules.fields import MISLEADING, TEXT_LIMIT
from finishline.rules.text import did_you_mean, near_miss, shown

MOST_PROBLEMS = 50  # A stranger's table may have any number of wrong fields.
A_TEXT = f"a text of 1 to {TEXT_LIMIT} characters"


def _printable(value: object) -> object:
    if isinstance(value, str) and MISLEADING.search(value):
        raise ValueError("control characters in a text")
    return value


Text = Annotated[
    str,
    StringConstraints(min_length=1, max_length=TEXT_LIMIT, strip_whitespace=True),
    BeforeValidator(_printable),
]


class Table(BaseModel):
    """One table of a TOML document. A field's description says what is expected there."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @classmethod
    def read(cls, table: dict[str, Any], *, file: str, error: type[RuleError] = RuleError) -> Self:
        """Read a table. Raises one RuleError with the first 50 problems, each with its field."""
        try:
            return cls.model_validate(table)
        except ValidationError as invalid:
            raise joined(list(cls._problems(invalid, file=file, error=error))) from invalid

    @classmethod
    def _problems(
        cls, invalid: ValidationError, *, file: str, error: type[RuleError]
    ) -> Iterator[RuleError]:
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
                message = "missing"
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
                message, expected = str(each["ctx"]["error"]), "printable text"
            else:
                message = f"got {shown(each['input'])}"
            yield error(message, file=file, field=".".join(path), expected=expected)
