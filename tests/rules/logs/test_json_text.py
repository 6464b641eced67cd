"""JSON of strangers: what is no JSON, what is too deep, what is there twice."""

import pytest

from finishline.rules.errors import LogFormatError
from finishline.rules.logs.text import MAX_DEPTH, parse_json, refuse_repeated_keys


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


@pytest.mark.parametrize(
    "text", [b"NaN", b"[Infinity]", b'{"a": -Infinity}', b"1e999", b"{oops", b"{} x", b"", b"\x00"]
)
def test_what_is_no_json_is_refused_with_its_line(text: bytes) -> None:
    with pytest.raises(LogFormatError, match="broken JSON") as caught:
        parse_json(text, file="f", line=7)
    assert (caught.value.file, caught.value.line) == ("f", 7)


def test_a_whole_file_names_the_line_that_is_broken() -> None:
    with pytest.raises(LogFormatError, match="f line 3:"):
        parse_json(b'{\n "a": 1,\n "b": oops\n}', file="f")


def test_bytes_that_are_not_utf8_are_replaced() -> None:
    assert parse_json(b'{"a": "caf\xe9"}', file="f") == {"a": "caf\ufffd"}


def test_nesting_is_allowed_to_the_limit_and_no_further() -> None:
    parse_json(nested(MAX_DEPTH), file="f")
    for levels in (MAX_DEPTH + 1, 900, 100_000):
        with pytest.raises(LogFormatError):
            parse_json(nested(levels), file="f")


def test_brackets_side_by_side_are_not_deep() -> None:
    parse_json(b"[" + b"[],{}," * 500 + b"[]]", file="f")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (b'{"key": 1, "value": 2, "key": 3}', "key"),
        (b'{"key": 1, "\\u006bey": 3}', "key"),
        (b'{"a": {"status": 1, "b": "x\\"", "status" : 2}}', "status"),
        (b'[{"a": ":", ":": 1, "a": 2}]', "a"),
        (b'{"v": "\xff", "v": 1}', "v"),
    ],
)
def test_a_key_twice_in_one_object_is_refused(text: bytes, key: str) -> None:
    with pytest.raises(LogFormatError, match="2 times") as caught:
        refuse_repeated_keys(text, file="f", line=4)
    assert (caught.value.field, caught.value.line) == (key, 4)


@pytest.mark.parametrize(
    "text",
    [
        b'{"key": {"key": 1}, "value": [{"key": 1}, {"key": 2}]}',
        b'{"key": "\\"key\\": 1", "b": "key"}',
        b'{"n": 123456789012345678901234567890}',
        b"[]",
    ],
)
def test_the_same_key_in_two_objects_is_fine(text: bytes) -> None:
    refuse_repeated_keys(text, file="f")
