import json
from collections.abc import Callable
from typing import Any

import pytest

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import ClaimError
from finishline.rules.submissions.claim import (
    CLAIM_LIMIT_BYTES,
    Claim,
    System,
    Tuning,
    read_claim,
    read_json_object,
)

Change = Callable[[dict[str, Any]], None]


def good() -> dict[str, Any]:
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
def read(digits: Benchmark, cifar10: Benchmark) -> Callable[[object], Claim]:
    """Reads a claim from JSON text or from what becomes JSON."""

    def read_it(content: object) -> Claim:
        text = content if isinstance(content, bytes) else json.dumps(content).encode()
        known = {"digits": digits, "cifar10": cifar10}
        return read_claim(text, file="submission.json", benchmarks=known)

    return read_it


def test_a_claim_is_read_whole(read: Callable[[object], Claim]) -> None:
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


def test_a_byte_order_mark_is_no_error(read: Callable[[object], Claim]) -> None:
    assert read(b"\xef\xbb\xbf" + json.dumps(good()).encode()).benchmark_id == "digits"


def put(field: str, value: Any) -> Change:
    """Sets a dotted field; removes it for Ellipsis."""

    def change(table: dict[str, Any]) -> None:
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
def test_a_wrong_claim_names_file_field_and_what_was_expected(
    read: Callable[[object], Claim], field: str, value: Any
) -> None:
    table = good()
    put(field, value)(table)

    with pytest.raises(ClaimError) as caught:
        read(table)

    error = caught.value
    assert (error.file, error.field) == ("submission.json", field)
    assert error.expected
    assert len(str(error)) < 400


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
def test_of_a_misspelt_field_the_one_that_was_meant_is_named(
    read: Callable[[object], Claim], field: str, said: str
) -> None:
    table = good()
    if field == "modle":
        del table["model"]
    put(field, 1 if field != "modle" else "net")(table)

    with pytest.raises(ClaimError) as caught:
        read(table)

    assert str(caught.value).startswith(f"submission.json, field {said}; expected ")


def test_a_misspelt_benchmark_is_told_which_was_meant(read: Callable[[object], Claim]) -> None:
    with pytest.raises(ClaimError) as caught:
        read(good() | {"benchmark": "digit"})

    assert caught.value.message == "unknown benchmark 'digit' (did you mean 'digits'?)"


def test_an_unknown_benchmark_is_told_the_known_ones(read: Callable[[object], Claim]) -> None:
    with pytest.raises(ClaimError) as caught:
        read(good() | {"benchmark": "mnist"})

    assert caught.value.expected == "cifar10 or digits"


def test_a_division_the_benchmark_lacks_is_refused(read: Callable[[object], Claim]) -> None:
    with pytest.raises(ClaimError) as caught:
        read(good() | {"benchmark": "cifar10", "hyperparameters": {}})

    assert (caught.value.field, caught.value.expected) == ("division", "open")


def test_closed_may_repeat_what_it_may_not_change(read: Callable[[object], Claim]) -> None:
    claim = read(good() | {"hyperparameters": {"momentum": 0.9}})

    assert claim.hyperparameters == {"momentum": 0.9}


def test_open_may_set_any_number_and_known_ones_within_their_limits(
    read: Callable[[object], Claim],
) -> None:
    claim = read(good() | {"division": "open", "hyperparameters": {"momentum": 0.5, "dropout": 1}})
    assert claim.hyperparameters == {"momentum": 0.5, "dropout": 1.0}

    with pytest.raises(ClaimError, match="momentum"):
        read(good() | {"division": "open", "hyperparameters": {"momentum": 1.5}})


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
def test_what_is_no_json_object_names_file_and_line(content: bytes, line: int | None) -> None:
    with pytest.raises(ClaimError) as caught:
        read_json_object(content, file="submission.json")

    assert (caught.value.file, caught.value.expected) == ("submission.json", "a JSON object")
    assert line is None or caught.value.line == line


def test_a_json_of_more_than_its_limit_is_not_even_parsed() -> None:
    padded = b"{}" + b" " * (CLAIM_LIMIT_BYTES - 2)
    assert read_json_object(padded, file="a.json") == {}

    with pytest.raises(ClaimError, match="bytes"):
        read_json_object(padded + b" ", file="a.json")


def test_a_claim_may_state_its_precision(read: Callable[[object], Claim]) -> None:
    assert read(good()).precision is None
    assert read(good() | {"precision": "bf16"}).precision == "bf16"


@pytest.mark.parametrize("precision", ["float32", "", 32, "FP32"])
def test_an_unknown_precision_is_refused_with_those_there_are(
    read: Callable[[object], Claim], precision: object
) -> None:
    with pytest.raises(ClaimError) as refused:
        read(good() | {"precision": precision})
    assert refused.value.field == "precision"


def test_a_claim_says_whose_code_trained_and_what_the_tuning_took(
    read: Callable[[object], Claim],
) -> None:
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
    read: Callable[[object], Claim], change: dict[str, Any], field: str, expected: str
) -> None:
    with pytest.raises(ClaimError) as caught:
        read(good() | change)
    assert caught.value.field == field
    assert (caught.value.expected or "").startswith(expected)


def test_no_reference_takes_a_setting_that_it_does_not_know(
    read: Callable[[object], Claim],
) -> None:
    own = good() | {"division": "open", "hyperparameters": {"layers": 12}}
    assert read(own).hyperparameters == {"layers": 12.0}

    with pytest.raises(ClaimError) as caught:
        read(own | {"trained_with": "reference"})

    assert caught.value.field == "hyperparameters.layers"
    assert "trained_with" in (caught.value.expected or "")
