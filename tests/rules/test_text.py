"""Texts and tables that strangers write: names, TOML, fields and errors."""

import math
import time
import tomllib
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pytest
from annotated_types import Ge, Le, MinLen

from finishline.cli.commands.lists import read_class, read_prices
from finishline.cli.errors import CliError
from finishline.client.errors import Refused
from finishline.client.files import find_submission_files
from finishline.rules.canonical import read_json
from finishline.rules.errors import (
    BenchmarkError,
    ClaimError,
    LogFormatError,
    RuleError,
    SubmissionError,
)
from finishline.rules.logs.dawnbench import parse_entry
from finishline.rules.logs.source import read_csv, read_trainer_state
from finishline.rules.logs.text import parse_json
from finishline.rules.submissions.claim import read_claim
from finishline.rules.table import FieldError, Text, read_table
from finishline.rules.text import MOST_BYTES, count_text, did_you_mean, near_miss, parse_toml
from server.people.accounts import GROUPS, fault_in, skeletons
from web.formats import device_time


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("paypal", "ρɑуραӏ"), ("scope", "ѕсоре"), ("Circle", "Сігсӏе"), ("google", "ցoօɡle"),
        ("alice", "Alice"), ("alice", "a1ice"), ("alice", "aIice"), ("Bob", "BОB"), ("bob", "b0b"),
        ("modal", "rnodal"), ("ada", "ａｄａ"), ("ada", "𝐚𝐝𝐚"), ("кот", "κοτ"),
        ("Straße", "STRASSE"),
        ("José", "Jose\u0301"), ("José", "Jоsе\u0301"), ("Example Labs", "EXAMPLE LABS"),
    ],
)  # fmt: skip
def test_names_of_one_shape_look_alike(one, other):
    assert not skeletons(one).isdisjoint(skeletons(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [("alice", "alicia"), ("ali", "all"), ("José", "Jose"), ("gpu-1", "gpu-2"), ("мир", "mip"),
     ("Example Labs", "Example Lab"), ("李", "王")],
)  # fmt: skip
def test_names_that_differ_do_not(one, other):
    assert skeletons(one).isdisjoint(skeletons(other))


def test_each_letter_has_one_prototype_which_is_none_of_the_others():
    groups = GROUPS.split()
    others = [letter for group in groups for letter in group[1:]]
    assert len(others) == len(set(others))
    assert not {group[0] for group in groups} & set(others)
    assert all(unicodedata.normalize("NFKC", letter) == letter for letter in others)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        (" ada", "space"), ("ada ", "space"), ("", "empty"), ("ad\u202ea", "direction"),
        ("ad\u2066a", "direction"), ("ad\u200ba", "invisible"), ("a\u3164", "invisible"),
        ("ａda", "'ada'"), ("Jose\u0301", "'José'"), ("\u2460", "'1'"),
    ],
)  # fmt: skip
def test_a_new_name_has_one_plain_form(name, fault):
    assert fault in (fault_in(name) or "")


@pytest.mark.parametrize("name", ["ada", "Example Labs", "José", "李 雷", "Юрий", "o.k-2_b@c"])
def test_names_of_any_script_are_fine(name):
    assert fault_in(name) is None


KNOWN = ("name", "min_runs", "max_runs", "hardware_class", "reference_runs", "count")


FILLER = [f"field_{number}" for number in range(200)]


@pytest.mark.parametrize(
    ("written", "known", "meant"),
    [
        ("nmae", KNOWN, "name"),
        ("cuont", KNOWN, "count"),
        ("hardwareClass", KNOWN, "hardware_class"),
        ("hardware-class", KNOWN, "hardware_class"),
        ("reference_run", KNOWN, "reference_runs"),
        ("Min_Runs", KNOWN, "min_runs"),
        ("mx_runs", KNOWN, "max_runs"),
        ("coumt", KNOWN, "count"),  # four of five letters: just alike
        *((written, KNOWN, None) for written in ("temperature", "runs", "", "x", "price")),
        ("min_runs", ["max_runs"], None),
        ("processor", ["processor_count"], None),
        # Of a stranger's table only so many names of some length are compared.
        ("naem", [*FILLER[1:], "name"], "name"),
        ("naem", [*FILLER, "name"], None),
        ("a" * 101, ["a" * 101], None),
        ("a" * 101, ["a" * 100], None),
        ("a" * 100, ["a" * 101], None),
    ],
)
def test_a_misspelt_name_is_told_apart_from_its_neighbours(written, known, meant):
    assert near_miss(written, known) == meant
    assert did_you_mean(written, known) == (f" (did you mean {meant!r}?)" if meant else "")


@pytest.mark.parametrize(
    ("shown", "wanted"),
    [
        (count_text(0, "run"), "0 runs"),
        (count_text(1, "run"), "1 run"),
        (count_text(1688, "run"), "1,688 runs"),
        (count_text(1, "was", "were"), "1 was"),
        (count_text(2, "was", "were"), "2 were"),
        (device_time(0.31), "0.31 device seconds"),
        (device_time(1), "1 device second"),
        (device_time(63.2), "63 device seconds"),
        (device_time(3600), "3,600 device seconds (1 hour)"),
        (device_time(359_997.4), "359,997 device seconds (100 hours)"),
    ],
)
def test_one_of_something_is_told_apart_from_several(shown, wanted):
    assert shown == wanted


CHECKOUT = Path(__file__).parents[2]
HOSTILE = {
    "dots": (b"\n\n" + b"a." * 100_000 + b"a = 1", 3, "too many dots"),
    "dots with blanks": (b"a . " * 50_000 + b"a = 1", 1, "too many dots"),
    "dots of a header": (b"x = 1\n[" + b"a." * 100_000 + b"a]", 2, "too many dots"),
    "quoted dots": (b'"a".' * 50_000 + b"a = 1", 1, "too many dots"),
    "dots in a table": (b"x = { " + b"a." * 100_000 + b"a = 1 }", 1, "too many dots"),
    "lists": (b"x = " + b"[" * 100_000, 1, "nested too deeply"),
    "lists on lines": (b"x = " + b"[\n" * 100_000, 17, "nested too deeply"),
    "tables": (b"x = " + b"{a = " * 30_000, 1, "nested too deeply"),
    "digits": (b"y = 1\nx = " + b"9" * 200_000, 2, "a number of 200000 characters"),
    "negative": (b"x = -" + b"9" * 5_000, 1, "a number of 5001 characters"),
    "hexadecimal": (b"x = 0x" + b"f" * 200_000, 1, "a number of 200002 characters"),
    "exponent": (b"x = 1e" + b"9" * 200_000, 1, "a number of 200002 characters"),
    "after a text": (b'x = """a\\"""" # "\ny = ' + b"9" * 5_000, 2, "a number of 5000"),
    "name": (b"n" * 200_000 + b" = 1", 1, "a name of 200000 characters"),
    "length": (b"x = 1\n" * MOST_BYTES, None, "bytes"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_would_hold_up_the_parser_is_refused_with_its_place(name):
    content, line, message = HOSTILE[name]
    began = time.process_time()
    with pytest.raises(BenchmarkError, match=message) as caught:
        parse_toml(content, file="odd.toml", error=BenchmarkError)
    assert time.process_time() - began < 1.0
    assert (caught.value.file, caught.value.line) == ("odd.toml", line)
    assert caught.value.expected is not None


@pytest.mark.parametrize(
    "content",
    [
        b'x = "' + b"a." * 500 + b'" # ' + b"[" * 500 + b"9" * 500,
        b"x = '" + b"[" * 500 + b'\'\ny = """\n' + b"a.\n" * 500 + b'"""""\nz = 1',
        b"x = '''" + b"9" * 500 + b"' [[[[[[[[[[[[[[[[[[[[ '''''\ny = [" + b"1.5, " * 500 + b"]",
        b'x = "\\"' + b"{" * 500 + b'\\\\"\ny = 2030-01-02T03:04:05.678+01:00',
        b"x = [\n" + b"  [1.0, 2.0], # [[\n" * 500 + b"]\n" + b"[[t]]\na.b.c = -1.5e-3\n" * 500,
        *(path.read_bytes() for path in (CHECKOUT / "benchmarks").glob("*.toml")),
    ],
)
def test_texts_and_comments_may_hold_anything(content):
    assert parse_toml(content, file="x.toml") == tomllib.loads(content.decode())


READERS = {
    "TOML": lambda content, _: parse_toml(content, file="f"),
    "claim": lambda content, _: read_claim(content, file="f", benchmarks={}),
    "JSON": lambda content, _: parse_json(content, file="f"),
    "entry": lambda content, _: parse_entry(content, name="f"),
    "proof": lambda content, _: read_json(content, file="f"),
    "table": lambda content, _: read_csv(content, file="f"),
    "state": lambda content, _: read_trainer_state(content, file="f"),
    "prices": lambda _, path: read_prices(path),
    "class": lambda _, path: read_class(path),
    "submission": lambda _, path: find_submission_files(path),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32-le"])
def test_utf_16_is_named_by_every_reader(tmp_path, read, encoding):
    path = tmp_path / "f"
    path.write_bytes('{"name": "Zoë", "名": "値"}\n'.encode(encoding))
    with pytest.raises((RuleError, CliError, Refused)) as refused:
        read(path.read_bytes(), path)
    problems = getattr(refused.value, "problems", ()) or [refused.value]
    assert f"{encoding[:6].upper()}; save it as UTF-8" in str(problems[0])


def test_nothing_else_parses_toml():
    found = [
        path.name
        for folder in ("finishline", "server", "worker", "reference_models")
        for path in (CHECKOUT / folder).rglob("*.py")
        if "import tomllib" in path.read_text()
    ]
    # accelerators.py reads a table of the package itself.
    assert sorted(found) == ["accelerators.py", "text.py"]


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ({}, "wrong"),
        ({"file": "a.json"}, "a.json: wrong"),
        ({"field": "runs.count"}, "field runs.count: wrong"),
        ({"file": "a.json", "field": "runs"}, "a.json, field runs: wrong"),
        ({"file": "a.log", "line": 3, "field": "seed"}, "a.log line 3, field seed: wrong"),
        ({"line": 3}, "line 3: wrong"),
        ({"file": "e.tsv", "line": 17, "expected": "two"}, "e.tsv line 17: wrong; expected two"),
    ],
)
def test_an_error_says_where_what_and_what_was_expected(place, text):
    error = RuleError("wrong", **place)
    assert str(error) == text
    assert error.problems == [error]


def test_a_submission_error_keeps_every_problem_and_tells_the_first():
    problems = [
        ClaimError("first", file="submission.json", field="runs", expected="three"),
        LogFormatError("second", file="run_1.log", line=4),
    ]
    error = SubmissionError(problems)
    assert error.problems == problems
    assert str(error) == "submission.json, field runs: first (and 1 more); expected three"


@dataclass(frozen=True)
class Inner:
    a: int


@dataclass(frozen=True)
class Example:
    text: Text = "text"
    choice: Literal["closed", "open"] = "open"
    number: Annotated[float, Ge(0.5), Le(5)] = 1.0
    least: Annotated[float, Ge(0)] | None = None
    most: Annotated[float, Le(5)] | None = None
    count: Annotated[int, Ge(1), Le(9)] = 1
    switch: bool = False
    texts: Annotated[tuple[Text, ...], MinLen(1)] = ("a",)
    numbers: Annotated[tuple[float, ...], MinLen(1)] = (1.0,)
    inner: Inner = Inner(1)
    inners: tuple[Inner, ...] = ()

    def __post_init__(self):
        if self.count == 7:
            raise FieldError("seven", expected="another count", field="count")


def read(table, kind=Example):
    return read_table(kind, table, file="digits.toml", error=BenchmarkError, path="runs")


A_TEXT, A_NUMBER = "a text of 1 to 4000 characters", "a number from 0.5 to 5"
SWITCH, COUNT = "true or false", "a whole number from 1 to 9"
WRONG = [
    *(("text", each, "got", A_TEXT) for each in (5, "", " \n ", "a" * 4001, [])),
    *(
        ("text", f"a{each}", "control characters in a text", "printable text")
        for each in ("\x1b[31m", "\x00", "\x9b31m", "\u202e model", "\u2066model", "\u2028b")
    ),
    ("text", "a" + "\u0301" * 3, "more than 2 marks on a character", "printable text"),
    ("texts", ["a", "b\x85"], "control characters in a text", "printable text"),
    ("choice", "half", "unknown value 'half'", "closed or open"),
    *(("number", each, "got", A_NUMBER) for each in ("0.9", True, math.nan, math.inf, 0.499)),
    ("number", 10**400, "got 1000", A_NUMBER),
    ("least", -1, "got -1", "a number of at least 0"),
    ("most", 5.001, "got 5.001", "a number of at most 5"),
    *(("count", each, "got", COUNT) for each in (1.0, False, 0, 10)),
    ("count", 7, "seven", "another count"),
    *(("switch", each, "got", SWITCH) for each in (1, "true")),
    *(("texts", each, "got", "a list of texts") for each in ([], "abc")),
    ("texts", ["a", 1], "got 1", A_TEXT),
    ("numbers", [], "got []", "a list of numbers"),
    *(("numbers", [1.0, each], "got", "a number") for each in (math.nan, True)),
    *(("inner", each, "got", "a table") for each in ([], "a", 1, True)),
    ("inners", {"a": 1}, "got {'a': 1}", "a list of tables"),
]


@pytest.mark.parametrize(("field", "value", "message", "expected"), WRONG)
def test_a_wrong_value_is_shown_with_its_file_and_field(field, value, message, expected):
    with pytest.raises(BenchmarkError) as caught:
        read({field: value})

    error = caught.value
    assert (error.file, error.field, error.expected) == ("digits.toml", f"runs.{field}", expected)
    assert error.message.startswith(message)
    assert len(error.message) < 200, "a long value is cut short"


def test_good_values_come_back_typed():
    inners = [{"a": 1}, {"a": 2}]
    found = read({"text": " open ", "number": 3, "texts": ["a"], "inners": inners, "most": None})

    assert (found.text, found.choice, found.most) == ("open", "open", None)
    assert isinstance(found.number, float)
    assert (found.texts, found.inners) == (("a",), (Inner(1), Inner(2)))


def test_every_problem_of_a_table_is_told_at_once():
    with pytest.raises(RuleError) as caught:
        read({"inners": [{"a": 1}, {"b": 2}], "cuont": 1, "inner": {"a": None}, "count": "1"})

    told = {each.field: (each.message, each.expected) for each in caught.value.problems}
    assert told == {
        "runs.inners[1].a": ("missing", "a whole number"),
        "runs.inners[1].b": ("unknown field", "one of a"),
        "runs.inner.a": ("missing", "a whole number"),
        "runs.count": ("got '1'", COUNT),
        "runs.cuont": (
            "unknown field (did you mean 'count'?)", "one of " + ", ".join(sorted(vars(Example())))
        ),
    }  # fmt: skip


def test_of_a_missing_field_the_misspelt_one_is_told():
    with pytest.raises(BenchmarkError) as caught:
        read({"inner": {"A": 1}})
    assert caught.value.message == "missing (did you mean 'a' where it says 'A'?)"
