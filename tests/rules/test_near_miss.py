import pytest

from finishline.rules.text import did_you_mean, near_miss

KNOWN = ("name", "min_runs", "max_runs", "hardware_class", "reference_runs", "count")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("nmae", "name"),
        ("cuont", "count"),
        ("hardwareClass", "hardware_class"),
        ("hardware-class", "hardware_class"),
        ("reference_run", "reference_runs"),
        ("Min_Runs", "min_runs"),
        ("mx_runs", "max_runs"),
        ("coumt", "count"),  # four of five letters: just alike
    ],
)
def test_a_misspelt_name_is_told_apart_from_its_neighbours(written: str, meant: str) -> None:
    assert near_miss(written, KNOWN) == meant
    assert did_you_mean(written, KNOWN) == f" (did you mean {meant!r}?)"


@pytest.mark.parametrize("written", ["temperature", "runs", "", "x", "price"])
def test_a_name_like_none_of_them_is_no_guess(written: str) -> None:
    assert near_miss(written, KNOWN) is None
    assert did_you_mean(written, KNOWN) == ""


def test_names_that_differ_as_min_runs_from_max_runs_are_two_names() -> None:
    assert near_miss("min_runs", ["max_runs"]) is None
    assert near_miss("processor", ["processor_count"]) is None


def test_of_a_strangers_table_only_so_many_names_of_some_length_are_compared() -> None:
    filler = [f"field_{number}" for number in range(200)]

    assert near_miss("naem", [*filler[1:], "name"]) == "name"
    assert near_miss("naem", [*filler, "name"]) is None
    assert near_miss("a" * 101, ["a" * 101]) is None
    assert near_miss("a" * 101, ["a" * 100]) is None
    assert near_miss("a" * 100, ["a" * 101]) is None
