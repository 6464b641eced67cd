"""A board: its links, its pages, its families and the range of its target."""

from urllib.parse import parse_qs

import pytest

from web.board_table import (
    Pages,
    asks_what_if,
    board_address,
    board_query,
    board_tabs,
    is_filtered,
    pages_of,
    sort_link,
    sort_state,
    target_range,
)
from web.home_words import families, short_title, shown_families

FILTERS = {"division": "open", "q": "a&b=c", "sort": "cost", "order": "asc", "cursor": "x"}


def test_sorting_keeps_the_filters():
    query = parse_qs(sort_link(FILTERS, "tta").removeprefix("?"))
    assert query == {"division": ["open"], "q": ["a&b=c"], "sort": ["tta"], "order": ["asc"]}
    assert "order=desc" in sort_link(FILTERS, "cost")
    assert "order=asc" in sort_link(FILTERS | {"order": "desc"}, "cost")
    assert "order=desc" in sort_link({}, "rank")  # Nobody sorted it, so it stands by rank.
    assert sort_state({}, "rank") == "ascending"
    assert sort_state(FILTERS, "cost") == "ascending"
    assert sort_state(FILTERS | {"order": "desc"}, "cost") == "descending"
    assert sort_state(FILTERS, "model") == "none"


def test_links_have_what_was_chosen():
    assert board_query({"division": None, "q": "", "metric": "cost"}) == "metric=cost"
    assert board_query({"target": 95.0, "price": 2.5}) == "target=95&price=2.5"


def test_filters_narrow_a_board():
    assert not is_filtered({"sort": "model", "q": "", "division": None})
    assert is_filtered({"status": "verified"})
    assert is_filtered({"hardware_class": "8-h100"})
    assert asks_what_if({"price": 2.5})
    assert not is_filtered({"price": 2.5})


def test_divisions_and_kinds_have_tabs():
    both, filters = ("train", "inference"), {"q": "a", "division": "open", "framework": "f"}
    alone, two = {"divisions": ["open"]}, {"divisions": ["open", "closed"]}
    assert board_tabs(alone, {}, ["train"], "train") == [("Leaderboard", "?", True)]
    assert [words for words, _, _ in board_tabs(alone, {}, both, "train")] == [
        "Training", "Inference",
    ]  # fmt: skip
    assert board_tabs(two, filters, both, "train") == [
        ("Closed", "?division=closed&framework=f&q=a", False),
        ("Open", "?division=open&framework=f&q=a", True),
        ("Inference, closed", "?metric=latency&division=closed&q=a", False),
        ("Inference, open", "?metric=latency&division=open&q=a", False),
    ]


def test_archive_has_a_tab():
    cifar10 = {
        "id": "cifar10",
        "divisions": ["open"],
        "clock": "dawnbench",
        "round": "archive",
        "published": [("inference", "open"), ("train", "open")],
    }
    filters = {"division": "open", "round": "archive"}
    assert board_tabs(cifar10, filters, ("train", "inference"), "train") == [
        ("Open", "?division=open&round=open", False),
        ("DAWNBench 2017–2020", "?division=open&round=archive", True),
        ("Inference", "?metric=latency&division=open&round=open", False),
        (
            "Inference, DAWNBench 2017–2020",
            "?metric=latency&division=open&round=archive",
            False,
        ),
    ]
    row = {"benchmark": "cifar10", "division": "open", "evidence": "published"}
    assert board_address(row) == "/benchmarks/cifar10?division=open&round=archive"


def board(*, entries, total, first):
    return {"entries": [{}] * entries, "total": total, "first": first}


def test_pages_lead_to_each_other():
    middle = pages_of(board(entries=25, total=1250, first=26), {})
    assert middle == Pages(shown=2, last=50, first_entry=26, last_entry=50)
    last = pages_of(board(entries=5, total=25, first=21), {"limit": 10})
    assert last == Pages(shown=3, last=3, first_entry=21, last_entry=25)
    only = pages_of(board(entries=3, total=3, first=1), {})
    assert only == Pages(shown=1, last=1, first_entry=1, last_entry=3)
    beyond = pages_of(board(entries=0, total=25, first=None), {"limit": 10, "page": 9})
    assert beyond == Pages(shown=4, last=3, first_entry=0, last_entry=0)
    for refused in ("abc", "0", "-3", "1.5"):
        assert pages_of(board(entries=0, total=25, first=None), {"limit": refused}).last >= 1


def benchmark(benchmark_id, title="Some", submissions=0):
    return {
        "id": benchmark_id,
        "title": title,
        "task": "a task",
        "submissions": submissions,
        "inference_submissions": 0,
        "records": [],
        "target": {
            "metric": "top1Accuracy",
            "value": 1,
            "unit": "percent",
            "direction": "higher",
            "also": [],
        },
    }


LISTED = [
    benchmark("cifar10", "CIFAR-10"),
    benchmark("digits", "Digits", submissions=2),
    benchmark("mlperf-v0.5-ncf", "NCF (MLPerf v0.5)"),
    benchmark("mlperf-v10.0-bert", "BERT (MLPerf v10.0)"),
    benchmark("mlperf-v5.1-flux1", "FLUX.1 (MLPerf v5.1)"),
    benchmark("mlperf-v5.1-rgat", "R-GAT (MLPerf v5.1)", submissions=1),
]


def test_newest_round_follows_our_own():
    assert [family.name for family in families(LISTED)] == [
        "This server's benchmarks",
        "MLPerf v10.0",
        "MLPerf v5.1",
        "MLPerf v0.5",
    ]


def test_boards_with_submissions_come_first():
    own, _, newest, _ = families(LISTED)

    assert [b["id"] for b in own.rows] == ["digits", "cifar10"]
    assert own.waiting == ()
    assert [b["id"] for b in newest.rows] == ["mlperf-v5.1-rgat"]
    assert [b["id"] for b in newest.waiting] == ["mlperf-v5.1-flux1"]


def test_title_leaves_out_its_family():
    assert short_title(LISTED[4]) == "FLUX.1"
    assert short_title(benchmark("digits", "Digits (small)")) == "Digits (small)"


def test_home_shows_the_newest_used_round():
    def shown(chosen):
        return [family.round_id for family in shown_families(LISTED, chosen)]

    assert shown(None) == shown("v0.5") == shown("v10.0") == shown("x") == ["open", "v5.1"]
    assert shown("all") == ["open", "v10.0", "v5.1", "v0.5"]


def target(value, unit="percent", direction="higher"):
    return {"metric": "m", "value": value, "unit": unit, "direction": direction}


def test_slider_ends_at_the_best_run():
    assert target_range(target(94.0), (90.0, 96.0)) == (86.0, 96.0, 0.1)
    loss = target_range(target(0.925, "nats/token", "lower"), (0.915, 0.95))
    assert loss == (0.915, 0.965, 0.0005)


@pytest.mark.parametrize("qualities", [None, (10.0, 20.0)])
def test_range_holds_the_target(qualities):
    low, high, step = target_range(target(99.5), qualities)
    assert low < 99.5 <= high <= 100.0
    assert step > 0


def test_target_of_zero_has_a_range():
    low, high, _ = target_range(target(0.0, "loss", "lower"), None)
    assert 0.0 <= low <= high
