"""A claim's system against the shape of what it rented, as the price book has it."""

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest

from rules.instance_shape import check_instance, is_same_kind
from rules.price_book import PriceEntry, read_price
from rules.system_price import PriceBook

CLOUD = {"provider": "cloud", "instance": "gpu.8", "region": "north", "count": 2}
DAY = date(2026, 3, 9)
# Two instances of eight accelerators, 192 vCPUs and 2,048 GiB each.
SYSTEM = {
    "accelerator": "NVIDIA H100 80GB HBM3", "accelerator_count": 16, "processor_count": 384,
    "memory_gib": 4030.5, "cloud": CLOUD,
}  # fmt: skip
SHAPE = {"accelerator": "H100", "accelerator_count": 8, "processor_count": 192, "memory_gib": 2048}


def entry(number: int, *, starts: int = 1, **others: Any) -> PriceEntry:
    row = {
        "provider": "cloud", "instance": "gpu.8", "region": "north", "usd_per_hour": 12.5,
        "effective_on": date(2026, 3, starts), "source_url": "https://cloud.example/prices",
    }  # fmt: skip
    return PriceEntry(number, read_price(row | others, file="test"))


@pytest.fixture
def told() -> Callable[..., list[tuple[str, str | None, str]]]:
    """The differences of a system with these changes from one whose instances have `shape`."""

    def differences(
        shape: dict[str, Any] | None = None, **changes: Any
    ) -> list[tuple[str, str | None, str]]:
        book = PriceBook([entry(3, **(SHAPE if shape is None else shape))])
        check = check_instance(SYSTEM | changes, book, on=DAY)
        assert check is not None
        return [(each.field, each.claimed, each.expected) for each in check.differences]

    return differences


def test_a_system_that_is_what_it_rented_agrees_in_every_figure() -> None:
    check = check_instance(SYSTEM, PriceBook([entry(3, **SHAPE)]), on=DAY)
    assert check is not None
    assert check.differences == check.problems(file="s.json") == []
    assert [each.field for each in check.compared] == [
        "accelerator", "accelerator_count", "processor_count", "memory_gib",
    ]  # fmt: skip
    assert check.in_words.startswith("as price 3 says: accelerator, number of accelerators")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"accelerator": "NVIDIA A100"}, ("accelerator", "NVIDIA A100", "H100")),
        ({"accelerator_count": 8}, ("accelerator_count", "8", "16")),
        ({"accelerator_count": None}, ("accelerator_count", "0", "16")),
        ({"processor_count": 192}, ("processor_count", "192", "384")),
        ({"memory_gib": 3686.0}, ("memory_gib", "3686", "4096 within 10 %")),
        ({"memory_gib": 4506.0}, ("memory_gib", "4506", "4096 within 10 %")),
    ],
)
def test_what_differs_is_told_with_both_figures(
    told: Callable[..., Any], changes: dict[str, Any], expected: tuple[str, str, str]
) -> None:
    assert told(**changes) == [expected]


def test_memory_within_a_tenth_and_what_is_not_stated_contradict_nothing(
    told: Callable[..., Any],
) -> None:
    for memory_gib in (3687.0, 4096.0, 4505.0, None):
        assert told(memory_gib=memory_gib) == []
    assert told(processor_count=None, accelerator=None) == []
    assert told({"memory_gib": 2048}, accelerator_count=1, processor_count=1) == []


def test_an_instance_without_accelerators_has_none_whatever_it_is_called(
    told: Callable[..., Any],
) -> None:
    none = {"accelerator_count": 0}
    assert told(none, accelerator=None, accelerator_count=0) == []
    assert told(none, accelerator="N/A", accelerator_count=0) == []
    assert told(none, accelerator_count=0) == [("accelerator", SYSTEM["accelerator"], "none")]


def test_a_problem_names_file_field_and_what_was_expected() -> None:
    book = PriceBook([entry(3, **SHAPE)])
    check = check_instance(SYSTEM | {"accelerator_count": 4, "memory_gib": 9.0}, book, on=DAY)
    assert check is not None
    problem, other = check.problems(file="s.json")
    assert str(problem) == (
        "s.json, field system.accelerator_count: got 4; expected 16, as 2 x gpu.8 of cloud by "
        "price 3 of the price book"
    )
    assert (other.field, other.code) == ("system.memory_gib", "instance_contradicts_claim")
    assert check.in_words == (
        "not what was rented by price 3: number of accelerators 4, expected 16; "
        "memory (GiB) 9, expected 4096 within 10 %"
    )


def test_what_nobody_knows_is_said_and_not_passed_over() -> None:
    assert check_instance(SYSTEM | {"cloud": None}, PriceBook([]), on=DAY) is None
    for book in ([], [entry(1)], [entry(1, instance="gpu.4", **SHAPE)],
                 [entry(1, starts=10, **SHAPE)]):  # fmt: skip
        check = check_instance(SYSTEM | {"accelerator_count": 1}, PriceBook(book), on=DAY)
        assert check is not None
        assert check.in_words == "not checked: the price book has no shape of cloud gpu.8"
        assert check.problems(file="s.json") == []
    silent = check_instance(
        SYSTEM | {"memory_gib": None}, PriceBook([entry(1, memory_gib=2048)]), on=DAY
    )
    assert silent is not None
    assert silent.in_words.startswith("not checked: the claim states nothing of what price 1 says")
    partly = check_instance(SYSTEM | {"memory_gib": None}, PriceBook([entry(1, **SHAPE)]), on=DAY)
    assert partly is not None
    assert partly.in_words.endswith("; not stated: memory (GiB)")
    for vague in ("NVIDIA GPU", "n/a"):
        check = check_instance(
            SYSTEM | {"accelerator": vague}, PriceBook([entry(1, **SHAPE)]), on=DAY
        )
        assert check is not None
        assert check.in_words.endswith("; not stated: accelerator")


def test_the_newest_shape_that_stands_is_of_the_region_if_it_can_be() -> None:
    name = ("cloud", "gpu.8", "north")

    def found(*book: PriceEntry) -> int | None:
        shape = PriceBook(book).find_shape(name, on=DAY)
        return shape.number if shape is not None else None

    assert found(entry(1, **SHAPE), entry(2, starts=5, **SHAPE)) == 2
    assert found(entry(2, **SHAPE), entry(1, **SHAPE)) == 2
    assert found(entry(1, **SHAPE), entry(2, starts=5)) == 1  # A price without a shape.
    assert found(entry(1, **SHAPE), entry(2, region="south", starts=5, **SHAPE)) == 1
    assert found(entry(1), entry(2, region="south", **SHAPE)) == 2
    assert found(entry(1), entry(2, pricing="spot", **SHAPE)) == 2
    assert found(entry(1, **SHAPE), entry(2, supersedes=1)) is None
    assert found(entry(1, provider="other", **SHAPE)) is None


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("NVIDIA H100 80GB HBM3", "H100 SXM5", True),
        ("8x NVIDIA A100-SXM4-40GB", "nvidia_a100", True),
        ("Tesla T4", "NVIDIA T4 GPU", True),
        ("Tesla V100-SXM2-16GB", "V100 SXM3 32GB", True),
        ("AMD Instinct MI300X OAM", "MI300X", True),
        ("TPUv3", "Google Cloud TPU v3", True),
        ("Gaudi 2", "Gaudi2", True),
        ("RTX A6000", "NVIDIA A6000", True),
        ("NVIDIA GPU", "H100", True),  # Tells nothing.
        ("H100 80GB", "A100 80GB", False),
        ("H200", "GH200 480GB", False),
        ("L40", "L40S", False),
        ("A10G", "A100", False),
        ("GeForce RTX 3090", "GeForce RTX 4090", False),
        ("TPU v5e", "TPU v5p", False),
        ("Radeon RX 6800XT", "RX 6900XT", False),
    ],
)
def test_names_of_one_accelerator_are_told_from_those_of_two(
    one: str, other: str, same: bool
) -> None:
    assert is_same_kind(one, other) is is_same_kind(other, one) is same
