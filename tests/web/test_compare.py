"""Submissions side by side: what differs in words, and sentences on who is faster."""

from collections.abc import Callable
from typing import Any

from web.compare import (
    against,
    compare_link,
    comparison_groups,
    only_differences,
    pair_sentence,
    probability,
)

Make = dict[str, Callable[..., Any]]


def pair(**changes: Any) -> dict[str, Any]:
    return {
        "first": "a",
        "second": "b",
        "ratio": 0.8,
        "ratio_low": 0.75,
        "ratio_high": 0.9,
        "p_value": 0.001,
        "p_adjusted": 0.003,
        "p_faster": 0.9995,
        "p_one_run_faster": 0.96,
        "runs_needed": 4,
        "told_apart": True,
    } | changes


SINGLE = {"ratio_low": None, "ratio_high": None, "p_value": None, "p_adjusted": None,
          "p_faster": None, "runs_needed": None, "told_apart": False}  # fmt: skip


def said(of: dict[str, Any], pairs: int = 3, runs: int = 3) -> str:
    compared = [{"submission_id": each, "run_seconds": [1.0] * runs} for each in "ab"]
    comparison = {"submissions": compared, "pairs": [of] * pairs}
    return pair_sentence(of, comparison).replace("\u00a0", " ")


def test_a_gap_beyond_chance_is_said_with_its_interval_and_its_p_value() -> None:
    assert said(pair()) == (
        "A is significantly faster than B (p = 0.003, by Holm over 3 pairs): A takes 0.800 times "
        "as long as B (95 % interval 0.750 to 0.900). A run of A beats a run of B in 96 % of all "
        "pairs of runs."
    )
    slower = pair(ratio=1.25, ratio_low=1.1, ratio_high=1.4, p_one_run_faster=0.1, p_adjusted=1e-9)
    words = said(slower, pairs=1)
    assert words.startswith("B is significantly faster than A (p < 0.0001): A takes 1.25 times")
    assert "A run of B beats a run of A in 90 %" in words


def test_a_gap_within_chance_says_how_many_runs_would_tell() -> None:
    words = said(pair(told_apart=False, p_adjusted=0.3, runs_needed=1200))
    assert words.startswith("A and B are a statistical tie (p = 0.3")
    assert words.endswith("A gap of this size needs 1,200 runs on each side to show.")
    # Runs that are there already cannot be what is missing: more pairs are tested at once.
    words = said(pair(told_apart=False, p_adjusted=0.1, runs_needed=3), runs=3)
    assert words.endswith("which may be chance.")


def test_a_single_run_and_no_run_tell_nothing() -> None:
    assert "a single run has no spread" in said(pair(**SINGLE))
    assert "no run that reached the target" in said(pair(**SINGLE, ratio=None))


def test_a_pair_is_seen_from_either_side() -> None:
    pairs = [pair()]
    seen = against(pairs, "b", "a")

    assert seen is not None
    assert (seen.ratio, seen.ratio_low, seen.ratio_high) == (1.25, 1 / 0.9, 1 / 0.75)
    assert seen.p_faster is not None
    assert abs(seen.p_faster - 0.0005) < 1e-12
    assert against(pairs, "a", "a") is None


def test_a_confidence_never_reads_as_certainty() -> None:
    assert [probability(p) for p in (None, 0.9999, 0.5, 0.0)] == [
        "–",
        "> 0.999",
        "0.500",
        "< 0.001",
    ]


def test_rows_say_whether_they_differ_and_by_how_much(make: Make) -> None:
    one = make["submission"](id="a")
    system = make["system"](accelerator="H200", accelerator_count=8)
    settings = {"batch_size": 128, "warmup": 0.3}
    other = make["submission"](id="b", system=system, hyperparameters=settings)
    for each in (one, other):
        each |= {"precision": None, "precision_measured": None}

    groups = comparison_groups([one, other], make["benchmark"]()["target"], {"a": 1, "b": 2})
    rows = {row.name: row for group in groups for row in group.rows}

    assert [group.title for group in groups] == [
        "Result", "System", "Hyperparameters", "Submission",
    ]  # fmt: skip
    assert rows["batch_size"].differs
    assert rows["batch_size"].cells[1].text == "128"
    assert rows["batch_size"].cells[1].note == "2.00 × A"
    assert [cell.text for cell in rows["learning_rate"].cells] == ["0.02", "–"]
    assert not rows["Processor"].differs
    assert rows["Rank in its division"].cells[1].note is None
    assert "Precision claimed" not in rows
    left = {row.name for group in only_differences(groups) for row in group.rows}
    assert {"Accelerator", "Accelerators", "warmup", "batch_size"} <= left
    assert "Processor" not in left


def test_inference_entries_are_compared_by_what_they_state(make: Make) -> None:
    entry = make["inference_submission"](id="a")
    groups = comparison_groups([entry, entry], make["benchmark"]()["target"], {})
    names = [row.name for row in groups[0].rows]
    assert names == ["Latency of one item", "Cost of 10,000 items", "Quality", "Evidence"]


def test_the_address_of_a_comparison_has_its_ids_in_one() -> None:
    assert compare_link(["a", "b"], rows="different") == "/compare?ids=a,b&rows=different"
    assert compare_link(["&x"]) == "/compare?ids=%26x"
