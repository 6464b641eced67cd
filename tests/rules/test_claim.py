"""Claims, and their configurations."""

import json
from dataclasses import replace

import pytest

from finishline.rules.canonical import sha256_of
from finishline.rules.errors import ClaimError, LogFormatError, RuleError
from finishline.rules.submissions.claim import (
    CLAIM_LIMIT_BYTES,
    Claim,
    System,
    Tuning,
    read_claim,
    read_json_object,
    trained_settings,
)
from server.base.standing import configuration_of


def good():
    return {
        "benchmark": "digits",
        "division": "closed",
        "model": "the reference",
        "framework": "torch 2.13.0",
        "system": {"name": "laptop", "hardware_class": "cpu-x86_64", "processor": "any"},
        "hyperparameters": {"batch_size": 64},
        "runs": ["run_0.log", "run_1.log", "run_2.log"],
    }


@pytest.fixture
def read(digits, cifar10):
    def read_it(content):
        text = content if isinstance(content, bytes) else json.dumps(content).encode()
        known = {"digits": digits, "cifar10": cifar10}
        return read_claim(text, file="submission.json", benchmarks=known)

    return read_it


def test_a_claim_is_read_whole(read):
    table = good()
    table["system"] |= {
        "accelerator_count": 0,
        "price_usd_per_hour": 1.5,
        "price_source": "a price list",
        "memory_gib": None,
    }
    table |= {"code_url": "https://example.org/code", "notes": " first try "}

    claim = read(table)

    assert claim == Claim(
        benchmark_id="digits",
        division="closed",
        model="the reference",
        framework="torch 2.13.0",
        system=System(
            "laptop", "cpu-x86_64", "any", price_usd_per_hour=1.5, price_source="a price list"
        ),
        run_files=("run_0.log", "run_1.log", "run_2.log"),
        hyperparameters={"batch_size": 64.0},
        code_url="https://example.org/code",
        notes="first try",
    )


def put(field, value):
    """Sets a dotted field; removes it for Ellipsis."""

    def change(table):
        *parents, name = field.split(".")
        for parent in parents:
            table = table[parent]
        if value is ...:
            del table[name]
        else:
            table[name] = value

    return change


A_WHOLE_NUMBER = "a whole number from 0"


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        *((name, ..., "") for name in ("benchmark", "division", "system", "system.name", "runs")),
        ("benchmark", "../digits", "cifar10 or digits"), ("benchmark", ["digits"], ""),
        ("benchmark", "mnist", "cifar10 or digits"), ("division", None, ""), ("model", 5, ""),
        ("framework", "x" * 5000, ""), ("framework", "torch\x07", ""), ("system", "a laptop", ""),
        ("system.hardware_class", " ", ""), ("system.processor", None, ""),
        ("system.processor_count", 0, ""), ("system.processor_count", 2.5, ""),
        ("system.memory_gib", -1, ""), ("system.memory_gib", "16 GiB", ""),
        ("system.accelerator_count", -1, ""), ("system.price_usd_per_hour", 0, ""),
        ("system.price_usd_per_hour", "free", ""), ("system.colour", "red", ""),
        ("hyperparameters", [64], ""), ("hyperparameters.batch_size", "64", ""),
        ("hyperparameters.batch_size", 64.5, ""), ("hyperparameters.batch_size", 8, ""),
        ("hyperparameters.momentum", 0.95, "0.9"),  # Closed: the reference's value alone.
        ("hyperparameters.dropout", 0.1, ""), ("runs", [], ""), ("runs", "run_0.log", ""),
        ("runs", ["a.log", 7], ""), ("runs", [f"{i}.log" for i in range(101)], ""),
        ("notes", 5, ""), *(("precision", each, "") for each in ("float32", "", 32, "FP32")),
        ("trained_with", "mine", "reference or own"),
        ("trained_with", 1, "reference or own"), ("tuning", 40, "a table"),
        ("tuning.trials", 2.5, A_WHOLE_NUMBER), ("tuning.trials", -1, A_WHOLE_NUMBER),
        ("tuning.seconds", ..., "a number from 0 to 1e+12"), ("tuning.gpus", 8, "one of"),
    ],
)  # fmt: skip
def test_a_wrong_claim_names_file_field_and_what_was_expected(read, field, value, expected):
    table = good() | {"tuning": {"trials": 40, "seconds": 1}}
    put(field, value)(table)

    with pytest.raises(RuleError) as caught:
        read(table)

    error = caught.value.problems[0]
    assert (error.file, error.field) == ("submission.json", field)
    assert error.expected
    assert error.expected.startswith(expected)
    assert len(str(error)) < 400


def test_every_wrong_field_of_a_claim_is_told_at_once(read):
    table = good()
    wrong = {
        "hyperparameters.batch_size": 3,
        "hyperparameters.batchsize": 64,
        "hyperparameters." + "a" * 5000: 1,
        "model": "",
        "system.hardware_class": "A 100",
        "system.processor": 7,
        "system.colour": "red",
        "runs": "run1.log",
        "surprise": 1,
    }
    for field, value in wrong.items():
        put(field, value)(table)

    with pytest.raises(RuleError) as caught:
        read(table)

    told = {each.field: each for each in caught.value.problems}
    assert len(told) == len(caught.value.problems) == len(wrong)
    assert all(each.file and each.expected for each in caught.value.problems)
    assert all(len(each.message) < 1_000 for each in caught.value.problems)


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"model": ..., "modle": "net"}, "model", "'model' where it says 'modle'"),
        ({"system.memory_gb": 1}, "system.memory_gb", "did you mean 'memory_gib'"),
        ({"hyperparameters.batchsize": 1}, "hyperparameters.batchsize", "mean 'batch_size'"),
        ({"benchmark": "digit"}, "benchmark", "did you mean 'digits'"),
    ],
)
def test_of_a_misspelt_field_the_one_that_was_meant_is_named(read, changes, field, message):
    table = good()
    for name, value in changes.items():
        put(name, value)(table)

    with pytest.raises(ClaimError) as caught:
        read(table)

    assert caught.value.field == field
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("division", "settings"),
    [
        ("closed", {"momentum": 0.9}),  # What the reference has may be repeated.
        ("open", {"momentum": 0.5, "dropout": 1.0}),
        ("open", {"layers": 12.0}),
    ],
)
def test_settings_that_a_division_allows_are_read(read, division, settings):
    claim = read(good() | {"division": division, "hyperparameters": settings})
    assert claim.hyperparameters == settings


def test_open_has_limits_too(read):
    opened = good() | {"division": "open"}
    with pytest.raises(ClaimError, match=r"field division: .*expected open"):
        read(good() | {"benchmark": "cifar10", "hyperparameters": {}})
    with pytest.raises(ClaimError, match="momentum"):
        read(opened | {"hyperparameters": {"momentum": 1.5}})
    for name in ("", "rate\u202e", "a" * 101):
        with pytest.raises(ClaimError, match="1 to 100 printable characters"):
            read(opened | {"hyperparameters": {name: 1}})
    many = {f"layer_{number}": 1 for number in range(201)}
    with pytest.raises(ClaimError, match="layer_200: too many settings; expected at most 200"):
        read(opened | {"hyperparameters": many})
    # No reference takes a setting that it does not know.
    with pytest.raises(ClaimError) as caught:
        read(opened | {"hyperparameters": {"layers": 12}, "trained_with": "reference"})
    assert caught.value.field == "hyperparameters.layers"
    assert "trained_with" in caught.value.expected


@pytest.mark.parametrize(
    ("content", "line"),
    [(b"", 1), (b'{"a": 1,\n "b": }', 2), (b'{"a": NaN}', 1), (b'{"a": Infinity}', 1), (b"[1]", 1),
     (b'"text"', 1), (b"\xff\xfd{}", 1), (b"[" * 100_000, None)],
)  # fmt: skip
def test_what_is_no_json_object_names_file_and_line(content, line):
    with pytest.raises(ClaimError) as caught:
        read_json_object(content, file="submission.json")

    assert (caught.value.file, caught.value.expected) == ("submission.json", "a JSON object")
    assert line is None or caught.value.line == line


def test_a_json_of_more_than_its_limit_is_not_even_parsed():
    padded = b"{}" + b" " * (CLAIM_LIMIT_BYTES - 2)
    assert read_json_object(padded, file="a.json") == {}
    with pytest.raises(ClaimError, match="bytes"):
        read_json_object(padded + b" ", file="a.json")


def test_a_claim_says_how_it_was_trained(read):
    plain = read(good())
    assert (plain.precision, plain.trained_with, plain.tuning) == (None, "own", None)

    tuning = {"trials": 40, "seconds": 3600}
    claim = read(good() | {"precision": "bf16", "trained_with": "reference", "tuning": tuning})
    assert (claim.precision, claim.trained_with) == ("bf16", "reference")
    assert claim.tuning == Tuning(trials=40, seconds=3600.0)


CLAIM = Claim(
    benchmark_id="digits",
    division="closed",
    model="reference",
    framework="torch",
    system=System(name="box", hardware_class="cpu-2", processor="some"),
    run_files=("a.log",),
)


def key_of(benchmark, claim):
    return sha256_of(configuration_of(benchmark, claim))


@pytest.mark.parametrize(
    ("name", "one", "other", "trained"),
    [
        ("momentum", 0.0, -0.0, [0.0]),
        ("momentum", 0.8004, 0.8, [0.8]),
        ("momentum", 0.801, 0.8, [0.801, 0.8]),
        ("batch_size", 2001, 2000, [2001, 2000]),
        ("batch_size", 1025, 1024.0, [1025, 1024]),
    ],
)
def test_settings_are_compared_as_they_are_trained(cifar10, name, one, other, trained):
    claims = [replace(CLAIM, hyperparameters={name: each}) for each in (one, other)]
    found = dict.fromkeys(trained_settings(cifar10, each)[name] for each in claims)
    assert list(found) == trained
    assert len({key_of(cifar10, each) for each in claims}) == len(trained)
    for other in ({"division": "open"}, {"system": replace(CLAIM.system, hardware_class="cpu-4")}):
        assert key_of(cifar10, replace(claims[0], **other)) != key_of(cifar10, claims[0])


def test_a_claim_has_each_key_once_at_every_level():
    assert read_json_object(b'{"a": 1, "b": {"a": 2}}', file="s.json") == {"a": 1, "b": {"a": 2}}
    for twice in (b'{"model": "a", "model": "b"}', b'{"model": "a", "mode\\u006c": "b"}'):
        with pytest.raises(LogFormatError, match="field model: a key that appears 2 times"):
            read_json_object(twice, file="s.json")
    with pytest.raises(LogFormatError, match="at most 32 levels"):
        read_json_object(b'{"a":' + b"[" * 900 + b"]" * 900 + b"}", file="s.json")
