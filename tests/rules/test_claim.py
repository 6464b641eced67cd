"""Claims, and their configurations."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from finishline.rules.errors import ClaimError, LogFormatError, RuleError
from finishline.rules.submissions.claim import (
    CLAIM_LIMIT_BYTES,
    Claim,
    System,
    Tuning,
    read_claim,
    read_json_object,
)
from finishline.rules.submissions.settings import configuration_of

Change = Callable[[dict[str, Any]], None]


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
    """Reads a claim from JSON text or from what becomes JSON."""

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


def test_a_byte_order_mark_is_no_error(read):
    assert read(b"\xef\xbb\xbf" + json.dumps(good()).encode()).benchmark_id == "digits"


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


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("benchmark", ...),
        ("benchmark", "mnist"),
        ("benchmark", "../digits"),
        ("benchmark", ["digits"]),
        ("division", ...),
        ("division", "half-open"),
        ("division", None),
        ("model", ""),
        ("model", 5),
        ("framework", "x" * 5000),
        ("framework", "torch\x07"),
        ("system", ...),
        ("system", "a laptop"),
        ("system.name", ...),
        ("system.hardware_class", " "),
        ("system.processor", None),
        ("system.processor_count", 0),
        ("system.processor_count", 2.5),
        ("system.memory_gib", -1),
        ("system.memory_gib", "16 GiB"),
        ("system.accelerator_count", -1),
        ("system.price_usd_per_hour", -0.01),
        ("system.price_usd_per_hour", 0),
        ("system.hardware_class", "GPU, any"),
        ("system.price_usd_per_hour", "free"),
        ("system.colour", "red"),
        ("hyperparameters", [64]),
        ("hyperparameters.batch_size", "64"),
        ("hyperparameters.batch_size", 64.5),
        ("hyperparameters.batch_size", 8),
        ("hyperparameters.batch_size", 512),
        ("hyperparameters.momentum", 0.95),  # closed: the reference's value and no other
        ("hyperparameters.dropout", 0.1),
        ("runs", ...),
        ("runs", []),
        ("runs", "run_0.log"),
        ("runs", ["a.log", 7]),
        ("runs", ["a.log", "b.log", "a.log"]),
        ("runs", [f"{i}.log" for i in range(101)]),
        ("code_url", "javascript:alert(1)"),
        ("notes", 5),
        ("verified", True),
    ],
)
def test_a_wrong_claim_names_file_field_and_what_was_expected(read, field, value):
    table = good()
    put(field, value)(table)

    with pytest.raises(RuleError) as caught:
        read(table)

    error = caught.value.problems[0]
    assert (error.file, error.field) == ("submission.json", field)
    assert error.expected
    assert len(str(error)) < 400


def test_every_wrong_field_of_a_claim_is_told_at_once(read):
    table = good()
    wrong = {
        "hyperparameters.batch_size": 3,
        "hyperparameters.batchsize": 64,
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

    assert {each.field for each in caught.value.problems} == set(wrong)
    assert len(caught.value.problems) == len(wrong)
    assert all(each.file and each.expected for each in caught.value.problems)


def test_a_name_of_any_length_is_told_in_a_line(read):
    table = good()
    put("hyperparameters." + "a" * 5000, 1)(table)

    with pytest.raises(ClaimError, match="unknown hyperparameter") as caught:
        read(table)

    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("modle", "model: missing (did you mean 'model' where it says 'modle'?)"),
        ("system.memory_gb", "system.memory_gb: unknown field (did you mean 'memory_gib'?)"),
        (
            "hyperparameters.batchsize",
            "hyperparameters.batchsize: unknown hyperparameter (did you mean 'batch_size'?)",
        ),
    ],
)
def test_of_a_misspelt_field_the_one_that_was_meant_is_named(read, field, said):
    table = good()
    if field == "modle":
        del table["model"]
    put(field, 1 if field != "modle" else "net")(table)

    with pytest.raises(ClaimError) as caught:
        read(table)

    assert str(caught.value).startswith(f"submission.json, field {said}; expected ")


def test_a_misspelt_benchmark_is_told_which_was_meant(read):
    with pytest.raises(ClaimError) as caught:
        read(good() | {"benchmark": "digit"})

    assert caught.value.message == "unknown benchmark 'digit' (did you mean 'digits'?)"


def test_an_unknown_benchmark_is_told_the_known_ones(read):
    with pytest.raises(ClaimError) as caught:
        read(good() | {"benchmark": "mnist"})

    assert caught.value.expected == "cifar10 or digits"


def test_a_division_the_benchmark_lacks_is_refused(read):
    with pytest.raises(ClaimError) as caught:
        read(good() | {"benchmark": "cifar10", "hyperparameters": {}})

    assert (caught.value.field, caught.value.expected) == ("division", "open")


def test_closed_may_repeat_what_it_may_not_change(read):
    claim = read(good() | {"hyperparameters": {"momentum": 0.9}})

    assert claim.hyperparameters == {"momentum": 0.9}


def test_open_may_set_any_number_and_known_ones_within_their_limits(read):
    claim = read(good() | {"division": "open", "hyperparameters": {"momentum": 0.5, "dropout": 1}})
    assert claim.hyperparameters == {"momentum": 0.5, "dropout": 1.0}

    with pytest.raises(ClaimError, match="momentum"):
        read(good() | {"division": "open", "hyperparameters": {"momentum": 1.5}})
    for name in ("", "rate\u202e", "a" * 101):
        with pytest.raises(ClaimError, match="1 to 100 printable characters"):
            read(good() | {"division": "open", "hyperparameters": {name: 1}})
    many = {f"layer_{number}": 1 for number in range(201)}
    with pytest.raises(ClaimError, match="layer_200: too many settings; expected at most 200"):
        read(good() | {"division": "open", "hyperparameters": many})


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", 1),
        (b'{"a": 1,\n "b": }', 2),
        (b'{"a": NaN}', 1),
        (b'{"a": Infinity}', 1),
        (b"[1]", 1),
        (b'"text"', 1),
        (b"\xff\xfe{}", 1),
        (b"[" * 100_000, None),
    ],
)
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


def test_a_claim_may_state_its_precision(read):
    assert read(good()).precision is None
    assert read(good() | {"precision": "bf16"}).precision == "bf16"


@pytest.mark.parametrize("precision", ["float32", "", 32, "FP32"])
def test_an_unknown_precision_is_refused_with_those_there_are(read, precision):
    with pytest.raises(ClaimError) as refused:
        read(good() | {"precision": precision})
    assert refused.value.field == "precision"


def test_a_claim_says_whose_code_trained_and_what_the_tuning_took(read):
    assert (read(good()).trained_with, read(good()).tuning) == ("own", None)

    claim = read(good() | {"trained_with": "reference", "tuning": {"trials": 40, "seconds": 3600}})

    assert claim.trained_with == "reference"
    assert claim.tuning == Tuning(trials=40, seconds=3600.0)


@pytest.mark.parametrize(
    ("change", "field", "expected"),
    [
        ({"trained_with": "mine"}, "trained_with", "reference or own"),
        ({"trained_with": 1}, "trained_with", "a text of 1 to 4000 characters"),
        ({"tuning": 40}, "tuning", "a JSON object"),
        ({"tuning": {"trials": 40}}, "tuning.seconds", "a number from 0 to 1e+12"),
        ({"tuning": {"trials": 2.5, "seconds": 1}}, "tuning.trials", "a whole number from 0"),
        ({"tuning": {"trials": -1, "seconds": 1}}, "tuning.trials", "a whole number from 0"),
        ({"tuning": {"trials": 1, "seconds": 1, "gpus": 8}}, "tuning.gpus", "one of"),
    ],
)
def test_a_wrong_word_on_the_training_names_field_and_what_was_expected(
    read, change, field, expected
):
    with pytest.raises(ClaimError) as caught:
        read(good() | change)
    assert caught.value.field == field
    assert (caught.value.expected or "").startswith(expected)


def test_no_reference_takes_a_setting_that_it_does_not_know(read):
    own = good() | {"division": "open", "hyperparameters": {"layers": 12}}
    assert read(own).hyperparameters == {"layers": 12.0}

    with pytest.raises(ClaimError) as caught:
        read(own | {"trained_with": "reference"})

    assert caught.value.field == "hyperparameters.layers"
    assert "trained_with" in (caught.value.expected or "")


CLAIM = Claim(
    benchmark_id="digits",
    division="closed",
    model="reference",
    framework="torch",
    system=System(name="box", hardware_class="cpu-2", processor="some"),
    run_files=("a.log",),
)


def test_defaults_written_out_are_the_same_configuration(digits):
    written = replace(
        CLAIM, model="mine", hyperparameters={n: float(v) for n, v in digits.defaults().items()}
    )
    key = configuration_of(digits, CLAIM).sha256
    assert configuration_of(digits, written).sha256 == key
    assert len(key) == 64


@pytest.mark.parametrize(
    "other",
    [
        {"division": "open"},
        {"hyperparameters": {"batch_size": 128}},
        {"system": System(name="box", hardware_class="cpu-4", processor="some")},
    ],
)
def test_another_division_class_or_setting_is_another(digits, other):
    changed = replace(CLAIM, **other)
    assert configuration_of(digits, changed).sha256 != configuration_of(digits, CLAIM).sha256


def test_zero_with_a_minus_is_the_same_configuration(digits):
    zero, minus = (replace(CLAIM, hyperparameters={"momentum": each}) for each in (0.0, -0.0))
    assert configuration_of(digits, minus).sha256 == configuration_of(digits, zero).sha256


def test_a_claim_has_each_key_once_at_every_level():
    assert read_json_object(b'{"a": 1, "b": {"a": 2}}', file="s.json") == {"a": 1, "b": {"a": 2}}
    for twice in (b'{"model": "a", "model": "b"}', b'{"model": "a", "mode\\u006c": "b"}'):
        with pytest.raises(LogFormatError, match="field model: a key that appears 2 times"):
            read_json_object(twice, file="s.json")
    with pytest.raises(LogFormatError, match="at most 32 levels"):
        read_json_object(b'{"a":' + b"[" * 900 + b"]" * 900 + b"}", file="s.json")
