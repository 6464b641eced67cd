"""The hash chain of the audit log, and the canonical texts of it and of proofs."""

import hashlib
import json

import pytest

from finishline.rules.canonical import canonical, read_json, sha256_of
from finishline.rules.errors import RuleError
from finishline.rules.proof.hash_chain import (
    FIRST_PREVIOUS,
    Chain,
    Head,
    check_chain,
    has_head,
    record_sha256,
)


def make_records(count):
    """A log hashed here without the rules: sorted, compact JSON of all but the hash."""
    records = []
    previous = "0" * 64
    for number in range(1, count + 1):
        record = {
            "id": number, "at": f"2026-01-01T00:00:0{number}+00:00", "actor_id": 1, "actor": "ö",
            "action": "token.create", "subject_kind": "token", "subject_id": str(number),
            "reason": None, "before": None, "after": {"x": 0.1}, "previous_sha256": previous,
        }  # fmt: skip
        text = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        previous = hashlib.sha256(text.encode()).hexdigest()
        records.append(record | {"sha256": previous})
    return records


def test_a_whole_log_has_no_problem_and_its_last_hash_as_head():
    records = make_records(4)
    chain = check_chain(records)

    assert (chain.records, chain.problems) == (4, ())
    assert (chain.head.id, chain.head.sha256) == (4, records[-1]["sha256"])
    assert check_chain([]) == Chain(Head(0, FIRST_PREVIOUS), 0, ())


def hashed_again(records):
    records[1]["actor"] = "eve"
    records[1]["sha256"] = record_sha256(records[1])


@pytest.mark.parametrize(
    ("change", "field"),
    [
        *(
            (lambda records, name=name, value=value: records[1].update({name: value}),
             "record 2.sha256")
            for name, value in (
                ("actor", "eve"), ("action", "x"), ("reason", "x"), ("after", {"x": 0.2}),
                ("at", "x"), ("actor_id", 2), ("subject_id", "9"), ("subject_kind", "x"),
                ("before", {}),
            )
        ),
        (lambda records: records[1].update(after={"x": float("nan")}), None),
        # A record that was changed and hashed again breaks the next one.
        (hashed_again, "record 3.previous_sha256"),
        (lambda records: records.pop(2), "record 3.id"),
        (lambda records: records[0].pop("reason"), "record 1.reason"),
    ],
)  # fmt: skip
def test_a_changed_field_is_found_at_its_record(change, field):
    records = make_records(4)
    change(records)
    problems = check_chain(records).problems
    assert problems[0].field == field


@pytest.mark.parametrize("after", [None, [], "x", {"records": 7}, {"records": {"1": 7}}])
def test_an_erasure_that_names_no_records_redacts_none(after):
    records = make_records(3)
    records[0]["actor"] = "erased"
    records[2] |= {"action": "user.erase", "after": after}
    records[2]["sha256"] = record_sha256(records[2])
    chain = check_chain(records)

    assert [problem.field for problem in chain.problems] == ["record 1.sha256"]
    assert chain.redacted == 0


def test_a_log_that_was_cut_off_lacks_the_head_that_was_noted():
    records = make_records(4)

    assert check_chain(records[:3]).problems == ()
    assert has_head(records, records[-1]["sha256"])
    assert not has_head(records[:3], records[-1]["sha256"])


def test_keys_are_sorted_and_nothing_is_between_them():
    value = {"b": [64.0, 2.5, None, True], "a": {"ü": "x y", "B": 1e-7}}

    assert canonical(value) == '{"a":{"B":1e-7,"ü":"x y"},"b":[64,2.5,null,true]}'.encode()
    assert sha256_of({"b": 1, "a": 2}) == hashlib.sha256(b'{"a":2,"b":1}').hexdigest()


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), {1, 2}, "\ud800", 2**53, -(2**53), 10**400]
)
def test_what_json_cannot_say_is_refused(value):
    with pytest.raises(RuleError, match="no RFC 8785 form"):
        canonical({"x": value})


def test_no_two_numbers_have_one_hash():
    with pytest.raises(RuleError, match="9007199254740993 is a whole number beyond 90071992547409"):
        sha256_of([2**53 + 1])
    # As JavaScript's JSON.stringify writes them.
    numbers = [2**53 - 1, float(2**53), -float(2**70), float(2**60)]
    written = b"[9007199254740991,9007199254740992,-1.1805916207174113e+21,1152921504606847000]"
    assert canonical(numbers) == written


@pytest.mark.parametrize("around", [lambda value: [value], lambda value: {"x": value}])
def test_a_value_may_lie_99_levels_deep(around):
    value = 1
    for _ in range(99):
        value = around(value)

    assert json.loads(canonical(value)) == value
    with pytest.raises(RuleError, match="deeper than 100 levels"):
        canonical(around(value))


def test_a_document_comes_back_as_it_was_written():
    value = {"a": [0.1, 1e300, float(2**70), float(2**60), 1e16, -0.0, "\u2028"]}

    assert read_json(canonical(value), file="x.json") == value


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1, "a": 2}', "given twice"),
        (b'{"a": {"b": 1, "b": 1}}', "given twice"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b'{"a": -Infinity}', "-Infinity is not JSON"),
        (b'{"a": 9007199254740993}', "9007199254740993 is a whole number beyond 9007199254740991"),
        (b'{"a": 1%s}' % (b"0" * 400), "not JSON"),
        (b"[1]", "not a JSON object"),
        (b"{", "not JSON"),
        (b'{"a": "\xff"}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_ambiguous_json_is_refused(content, message):
    with pytest.raises(RuleError, match=message) as refused:
        read_json(content, file="proof.json")
    assert refused.value.file == "proof.json"
