"""TOML that strangers write: refused at once where the parser would take seconds or fail."""

import time
import tomllib
from pathlib import Path

import pytest

from finishline.rules.errors import BenchmarkError, RuleError
from finishline.rules.text import MOST_BYTES, parse_toml

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
def test_what_would_hold_up_the_parser_is_refused_with_its_place(name: str) -> None:
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
    ],
)
def test_texts_and_comments_may_hold_anything(content: bytes) -> None:
    assert parse_toml(content, file="x.toml") == tomllib.loads(content.decode())


@pytest.mark.parametrize("content", [b"x = ", b'x = "', b"x = '''", b"\xff = 1", b'"""' * 79_999])
def test_what_is_no_toml_is_refused(content: bytes) -> None:
    with pytest.raises(RuleError, match=r"x\.toml.* not TOML: .*expected a TOML file"):
        parse_toml(content, file="x.toml")


def test_every_definition_of_the_repository_is_within_bounds() -> None:
    for path in (CHECKOUT / "benchmarks").glob("*.toml"):
        content = path.read_bytes()
        assert parse_toml(content, file=path.name) == tomllib.loads(content.decode())


def test_nothing_else_parses_toml() -> None:
    found = [
        path.name
        for folder in ("finishline", "server", "worker", "reference_models")
        for path in (CHECKOUT / folder).rglob("*.py")
        if "import tomllib" in path.read_text()
    ]
    assert found == ["text.py"]
