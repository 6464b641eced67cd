"""Why a query gives no board, in the words of the form it was asked with."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from finishline.rules.errors import RuleError
from server.boards.service import BoardQuery
from server.errors import ConflictError, ContentError, ServerError

Problem = dict[str, Any]
# What reading a query, or a board by it, may raise.
REFUSALS = (ValidationError, RuleError, ConflictError, ContentError)
LABELS = {
    "metric": "Ranked by",
    "q": "Text",
    "hardware_class": "Hardware class",
    "date_from": "From",
    "date_to": "To",
    "price": "Your price",
    "prices_on": "Prices of",
}
EXPECTED = {
    "float_parsing": "a number",
    "finite_number": "a number that is not infinite",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
}


def problems_of(
    error: ValidationError | RuleError | ServerError, typed: Mapping[str, str]
) -> list[Problem]:
    """What is wrong with a query as it was typed, by what was raised."""
    if isinstance(error, ValidationError):
        return [_of_field(item, typed) for item in error.errors()]
    return _of_rule(error, typed) if isinstance(error, RuleError) else _of_cursor(error, typed)


def query_instead(typed: Mapping[str, str], problems: Sequence[Problem]) -> BoardQuery:
    """A query of the same kind of board as the one refused, where that much of it is right."""
    metric = typed.get("metric")
    is_refused = any(problem["name"] == "metric" for problem in problems)
    return BoardQuery.model_validate({"metric": metric} if metric and not is_refused else {})


def _of_rule(error: RuleError, typed: Mapping[str, str]) -> list[Problem]:
    """What the benchmark's rules do not allow, such as a target that its metric cannot have."""
    return [
        _problem(
            (problem.field or "").removeprefix("query."),
            typed,
            f"expected {problem.expected}" if problem.expected else problem.message,
        )
        for problem in error.problems
    ]


def _of_cursor(error: ServerError, typed: Mapping[str, str]) -> list[Problem]:
    """A place in a board that is none, or none any more."""
    return [_problem("cursor", typed, error.detail)]


def _of_field(item: ErrorDetails, typed: Mapping[str, str]) -> Problem:
    name = str(item["loc"][0]) if item["loc"] else "query"
    return _problem(name, typed, _sentence(item))


def _sentence(item: ErrorDetails) -> str:
    kind, limits = item["type"], item.get("ctx", {})
    if kind == "extra_forbidden":
        return "no board can be filtered by that"
    if kind == "literal_error":
        return f"expected {limits['expected']}"
    if kind in EXPECTED:
        return f"expected {EXPECTED[kind]}"
    return item["msg"].replace("Input should be", "expected", 1)


def _problem(name: str, typed: Mapping[str, str], message: str) -> Problem:
    label = LABELS.get(name, name.replace("_", " ").capitalize())
    return {"name": name, "label": label, "typed": typed.get(name), "message": message}
