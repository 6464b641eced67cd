"""MLPerf system descriptions: what published files hold, and what is said about wrong ones."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finishline.rules.errors import RuleError
from finishline.rules.submissions.descriptions import (
    REQUIRED_FIELDS,
    SystemDescription,
    read_system,
)

GOOD: dict[str, Any] = dict.fromkeys(REQUIRED_FIELDS, "") | {
    "submitter": "EXAMPLE",
    "division": "closed",
    "status": "Available on-premise",
    "system_name": "One node",
    "number_of_nodes": "2",
    "host_processors_per_node": 2,
    "host_processor_core_count": "64",
    "host_processor_caches": "N/A",
    "accelerators_per_node": "8",
    "accelerator_model_name": "NVIDIA H100",
    "framework": "PyTorch",
    "other_software_stack": {"cuda_version": "12.8", "python": 3.11, "notes": ""},
}


def read(**changes: Any) -> SystemDescription:
    return read_system(json.dumps(GOOD | changes).encode(), file="one.json")


def codes(description: SystemDescription) -> list[tuple[str | None, str | None]]:
    return [(problem.code, problem.field) for problem in description.problems]


def test_a_good_file_is_read_with_numbers_as_text_and_text_as_numbers() -> None:
    system = read()

    assert (system.submitter, system.division, system.framework) == ("EXAMPLE", "closed", "PyTorch")
    assert (system.number_of_nodes, system.accelerators_per_node, system.accelerators) == (2, 8, 16)
    assert (system.host_processors_per_node, system.host_processor_core_count) == (2, 64)
    assert system.host_processor_vcpu_count is None, "an empty field is absent"
    assert "host_processor_caches" not in system.fields, "and so is N/A"
    assert system.fields["host_processors_per_node"] == "2"
    assert system.software == {"cuda_version": "12.8", "python": "3.11"}
    assert system.problems == ()


@pytest.mark.parametrize(
    ("stack", "software"),
    [
        ("Nemo 2.3.0, ROCm 7", {"": "Nemo 2.3.0, ROCm 7"}),
        ([{"cuda": "12"}, {"nccl": "2"}], {"cuda": "12", "nccl": "2"}),
        ("", {}),
        (None, {}),
        ([], {}),
    ],
)
def test_the_software_stack_is_a_table_a_list_of_tables_or_prose(
    stack: object, software: dict[str, str]
) -> None:
    system = read(other_software_stack=stack)

    assert (system.software, system.problems) == (software, ())


@pytest.mark.parametrize(
    ("changes", "code", "field"),
    [
        ({"division": "half"}, "unknown_value", "division"),
        ({"status": "soon"}, "unknown_value", "status"),
        ({"submitter": " "}, "empty_field", "submitter"),
        ({"submitter": "Unknown"}, "empty_field", "submitter"),
        ({"number_of_nodes": "two"}, "not_a_count", "number_of_nodes"),
        ({"number_of_nodes": 0}, "not_a_count", "number_of_nodes"),
        ({"accelerators_per_node": -8}, "not_a_count", "accelerators_per_node"),
        ({"accelerators_per_node": 7.5}, "not_a_count", "accelerators_per_node"),
        ({"accelerators_per_node": 10**12}, "not_a_count", "accelerators_per_node"),
        ({"cooling": ["air"]}, "wrong_type", "cooling"),
        ({"hw_notes": "x" * 5000}, "long_field", "hw_notes"),
        ({"other_software_stack": [1]}, "wrong_type", "other_software_stack"),
        ({"other_software_stack": {"a": {}}}, "wrong_type", "other_software_stack.a"),
    ],
)
def test_what_is_wrong_is_listed_and_the_rest_is_read(
    changes: dict[str, Any], code: str, field: str
) -> None:
    system = read(**changes)

    assert codes(system) == [(code, field)]
    assert system.problems[0].file == "one.json"
    assert system.problems[0].expected
    assert system.system_name == "One node"


def test_every_missing_field_is_listed() -> None:
    system = read_system(b"{}", file="one.json")

    assert codes(system) == [("missing_field", name) for name in REQUIRED_FIELDS]
    assert system.accelerators is None


def test_a_field_that_is_there_twice_is_listed() -> None:
    content = json.dumps(GOOD)[:-1] + ', "division": "open"}'
    system = read_system(content.encode(), file="one.json")

    assert codes(system) == [("repeated_field", "division")]


def test_control_characters_do_not_come_through() -> None:
    assert read(system_name="a\x1b[2Jb").system_name == "a [2Jb"


def test_a_byte_order_mark_is_passed_over() -> None:
    content = b"\xef\xbb\xbf" + json.dumps(GOOD).encode()

    assert read_system(content, file="one.json").problems == ()


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{", b'{"a": NaN}', b" " * 2**21, b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}"],
)
def test_what_is_no_json_object_is_refused(content: bytes) -> None:
    with pytest.raises(RuleError) as caught:
        read_system(content, file="one.json")
    assert caught.value.file == "one.json"


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(changes=st.dictionaries(st.sampled_from(REQUIRED_FIELDS) | st.text(), _JSON))
def test_any_json_object_gives_a_description_or_a_rule_error(changes: dict[str, Any]) -> None:
    try:
        system = read(**changes)
    except RuleError:
        return
    assert all(problem.code for problem in system.problems)


def test_every_published_description_is_read(archives: Path) -> None:
    """Expected: the figures the reference tools took from the same files."""
    root = archives / "mlperf"
    expected = json.loads((root / "expected_v51.json").read_text())
    for group in expected["groups"]:
        path = root / "v5.1" / group["org"] / "systems" / f"{group['system']}.json"
        system = read_system(path.read_bytes(), file=path.name)
        assert system.number_of_nodes == int(group["nodes"])
        assert system.accelerators_per_node == int(group["accelerators_per_node"])
        assert system.accelerator_model_name == group["accelerator"]
        assert system.status == group["availability"]
        assert system.division == group["division"]


def test_what_is_odd_about_the_published_descriptions(archives: Path) -> None:
    """One of 21 files has a field twice; nothing else is wrong with any."""
    paths = sorted((archives / "mlperf").glob("*/*/systems/*.json"))
    assert len(paths) == 21
    odd = {
        path.stem: codes(read_system(path.read_bytes(), file=path.name))
        for path in paths
        if read_system(path.read_bytes(), file=path.name).problems
    }
    assert odd == {"1xXE7745x8RTXPro6000-PCIe-96GB": [("repeated_field", "accelerator_frequency")]}
