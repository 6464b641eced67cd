"""The canonical text of a value, and reading JSON that can be read in one way only."""

import hashlib

import pytest

from finishline.rules.errors import RuleError
from finishline.rules.proof.hash_chain import canonical, read_json, sha256_of


def test_keys_are_sorted_and_nothing_is_between_them() -> None:
    value = {"b": [1, 2.5, None, True], "a": {"ü": "x y", "B": 1e-7}}

    assert canonical(value) == '{"a":{"B":1e-07,"ü":"x y"},"b":[1,2.5,null,true]}'.encode()


def test_the_hash_is_that_of_the_canonical_text() -> None:
    assert sha256_of({"b": 1, "a": 2}) == hashlib.sha256(b'{"a":2,"b":1}').hexdigest()
    assert sha256_of({"a": 2, "b": 1}) == sha256_of({"b": 1, "a": 2})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, "\ud800"])
def test_what_json_cannot_say_is_refused(value: object) -> None:
    with pytest.raises(RuleError, match="no canonical JSON"):
        canonical({"x": value})


def test_a_document_comes_back_as_it_was_written() -> None:
    value = {"a": [0.1, 1e300, 2**70, -0.0, "\u2028"]}

    assert read_json(canonical(value), file="x.json") == value


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1, "a": 2}', "given twice"),
        (b'{"a": {"b": 1, "b": 1}}', "given twice"),
        (b'{"a": NaN}', "NaN is no JSON"),
        (b'{"a": -Infinity}', "-Infinity is no JSON"),
        (b"[1]", "not a JSON object"),
        (b"{", "not JSON"),
        (b'{"a": "\xff"}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_json_that_is_none_or_ambiguous_is_refused_with_the_file(
    content: bytes, message: str
) -> None:
    with pytest.raises(RuleError, match=message) as refused:
        read_json(content, file="proof.json")
    assert refused.value.file == "proof.json"
