import math
from collections.abc import Callable
from typing import Any

import pytest

from finishline.rules.errors import BenchmarkError, RuleError
from finishline.rules.fields import Fields

Read = Callable[[Fields], Any]


def fields(table: object) -> Fields:
    return Fields(table, file="digits.toml", error=BenchmarkError, path="runs")


GETTERS: list[tuple[Read, str]] = [
    (lambda f: f.text("x"), "a text of 1 to 4000 characters"),
    (lambda f: f.choice("x", ("closed", "open")), "a text of 1 to 4000 characters"),
    (lambda f: f.number("x"), "a number"),
    (lambda f: f.number("x", minimum=0.0), "a number of at least 0"),
    (lambda f: f.number("x", maximum=5.0), "a number of at most 5"),
    (lambda f: f.number("x", minimum=0.5, maximum=5.0), "a number from 0.5 to 5"),
    (lambda f: f.integer("x"), "a whole number"),
    (lambda f: f.integer("x", minimum=1, maximum=9), "a whole number from 1 to 9"),
    (lambda f: f.texts("x"), "a list of texts"),
    (lambda f: f.numbers("x"), "a list of numbers"),
    (lambda f: f.table("x"), "a table"),
]


@pytest.mark.parametrize("table", [{}, {"x": None}])
@pytest.mark.parametrize(("read", "expected"), GETTERS)
def test_a_missing_or_null_field_names_file_field_and_what_was_expected(
    read: Read, expected: str, table: dict[str, None]
) -> None:
    with pytest.raises(BenchmarkError) as caught:
        read(fields(table))

    error = caught.value
    assert (error.file, error.field, error.expected) == ("digits.toml", "runs.x", expected)
    assert error.message == "missing"


WRONG: list[Any] = [
    (lambda f: f.text("x"), 5, "number 5"),
    (lambda f: f.text("x"), "", "text ''"),
    (lambda f: f.text("x"), " \n ", "text"),
    (lambda f: f.text("x"), "a" * 4001, "..."),
    (lambda f: f.text("x"), "a\x1b[31m", "control characters"),
    (lambda f: f.text("x"), "a\x00", "control characters"),
    (lambda f: f.text("x"), "a\x9b31m", "control characters"),
    (lambda f: f.text("x"), "0.1 s \u202e model", "control characters"),
    (lambda f: f.text("x"), "\u2066model", "control characters"),
    (lambda f: f.text("x"), "a\u2028b", "control characters"),
    (lambda f: f.optional_text("x"), [], "list []"),
    (lambda f: f.choice("x", ("closed", "open")), "half", "unknown value 'half'"),
    (lambda f: f.number("x"), "0.9", "text '0.9'"),
    (lambda f: f.number("x"), True, "true/false True"),
    (lambda f: f.number("x"), math.nan, "got nan"),
    (lambda f: f.number("x"), math.inf, "got inf"),
    (lambda f: f.number("x"), 10**400, "got 1000"),
    pytest.param(
        lambda f: f.number("x"), 10**5000, "thousands of digits", id="more digits than are shown"
    ),
    (lambda f: f.number("x", minimum=1.0), 0.999, "got 0.999"),
    (lambda f: f.optional_number("x", maximum=1.0), 1.001, "got 1.001"),
    (lambda f: f.integer("x"), 1.0, "number 1.0"),
    (lambda f: f.integer("x"), False, "true/false False"),
    (lambda f: f.integer("x", minimum=1), 0, "got 0"),
    (lambda f: f.optional_integer("x", maximum=9), 10, "got 10"),
    (lambda f: f.boolean("x", default=False), 1, "number 1"),
    (lambda f: f.boolean("x", default=False), "true", "text 'true'"),
    (lambda f: f.texts("x"), [], "list []"),
    (lambda f: f.texts("x"), ["a", 1], "list ['a', 1]"),
    (lambda f: f.texts("x"), "abc", "text 'abc'"),
    (lambda f: f.numbers("x"), [], "list []"),
    (lambda f: f.numbers("x"), [1.0, math.nan], "list [1.0, nan]"),
    (lambda f: f.numbers("x"), [1.0, 10**400], "list [1.0, 1000"),
    (lambda f: f.numbers("x"), [True], "list [True]"),
    (lambda f: f.table("x"), [], "list instead of a table"),
    (lambda f: f.optional_table("x"), "", "text instead of a table"),
    (lambda f: f.tables("x"), {"a": 1}, "dict {'a': 1}"),
]


@pytest.mark.parametrize(("read", "value", "message"), WRONG)
def test_a_wrong_value_is_shown_with_its_file_and_field(
    read: Read, value: Any, message: str
) -> None:
    with pytest.raises(BenchmarkError) as caught:
        read(fields({"x": value}))

    error = caught.value
    assert (error.file, error.field) == ("digits.toml", "runs.x")
    assert message in error.message
    assert error.expected
    assert len(error.message) < 200, "a long value is cut short"


def test_good_values_come_back_typed() -> None:
    table = {
        "text": " open ",
        "number": 3,
        "integer": 3,
        "boolean": True,
        "texts": ["a"],
        "numbers": [1, 2.5],
        "table": {"a": 1},
        "tables": [{"a": 1}, {"a": 2}],
    }
    read = fields(table)

    assert read.text("text") == "open"
    assert read.choice("text", ("closed", "open")) == "open"
    assert isinstance(read.number("number"), float)
    assert read.integer("integer", minimum=3, maximum=3) == 3
    assert read.boolean("boolean", default=False) is True
    assert read.texts("texts") == ("a",)
    assert read.numbers("numbers") == (1.0, 2.5)
    assert read.table("table").integer("a") == 1
    assert [item.integer("a") for item in read.tables("tables")] == [1, 2]
    read.refuse_unknown()


def test_absent_optional_fields_are_none_or_their_default() -> None:
    read = fields({"null": None})

    assert read.optional_text("null") is None
    assert read.optional_number("absent") is None
    assert read.optional_integer("absent") is None
    assert read.optional_table("absent") is None
    assert read.tables("absent") == []
    assert read.text("absent", default="closed") == "closed"
    assert read.boolean("absent", default=True) is True


def test_fields_in_nested_tables_have_dotted_names() -> None:
    read = Fields({"runs": [{}, {"system": {"price": "x"}}]}, file="a.json")

    with pytest.raises(RuleError) as caught:
        read.tables("runs")[1].table("system").number("price")

    assert caught.value.field == "runs[1].system.price"


def test_an_unknown_field_is_refused_with_the_known_ones() -> None:
    read = fields({"count": 1, "cuont": 1})
    read.integer("count")

    with pytest.raises(BenchmarkError) as caught:
        read.refuse_unknown()

    assert (caught.value.field, caught.value.expected) == ("runs.cuont", "one of count")


def test_a_field_that_was_read_is_no_misspelt_one() -> None:
    read = fields({"counts": 1, "cuont": 1})
    read.integer("counts")

    with pytest.raises(BenchmarkError) as caught:
        read.integer("count")

    assert caught.value.message == "missing (did you mean 'count' where it says 'cuont'?)"
    read.raw("cuont")
    with pytest.raises(BenchmarkError) as again:
        read.integer("count")
    assert again.value.message == "missing"


def test_fields_that_were_listed_count_as_known() -> None:
    read = fields({"a": 1, "b": 2})

    assert dict(read.items()) == {"a": 1, "b": 2}
    read.refuse_unknown()


@pytest.mark.parametrize("value", [None, [], "a", 1, True])
def test_what_is_no_table_is_refused(value: object) -> None:
    with pytest.raises(BenchmarkError, match="instead of a table") as caught:
        fields(value)

    assert caught.value.field == "runs"
