from typing import Any

from web.home_words import families, short_title
from web.render import render


def benchmark(benchmark_id: str, title: str = "Some", submissions: int = 0) -> dict[str, Any]:
    return {
        "id": benchmark_id,
        "title": title,
        "task": "a task",
        "submissions": submissions,
        "inference_submissions": 0,
        "records": [],
        "target": {"metric": "top1Accuracy", "value": 1, "unit": "percent", "direction": "higher"},
    }


LISTED = [
    benchmark("cifar10", "CIFAR-10"),
    benchmark("digits", "Digits", submissions=2),
    benchmark("mlperf-v0.5-ncf", "NCF (MLPerf v0.5)"),
    benchmark("mlperf-v10.0-bert", "BERT (MLPerf v10.0)"),
    benchmark("mlperf-v5.1-flux1", "FLUX.1 (MLPerf v5.1)"),
    benchmark("mlperf-v5.1-rgat", "R-GAT (MLPerf v5.1)", submissions=1),
]


def test_our_own_come_first_and_then_the_newest_round() -> None:
    assert [family.name for family in families(LISTED)] == [
        "Open to everyone",
        "MLPerf Training v10.0",
        "MLPerf Training v5.1",
        "MLPerf Training v0.5",
    ]


def test_boards_with_submissions_stand_first() -> None:
    own, _, newest, _ = families(LISTED)

    assert [b["id"] for b in own.cards] == ["digits", "cifar10"]
    assert own.waiting == ()
    assert [b["id"] for b in newest.cards] == ["mlperf-v5.1-rgat"]
    assert [b["id"] for b in newest.waiting] == ["mlperf-v5.1-flux1"]


def test_a_title_leaves_out_the_name_of_its_family() -> None:
    assert short_title(LISTED[4]) == "FLUX.1"
    assert short_title(benchmark("digits", "Digits (small)")) == "Digits (small)"


def test_the_home_page_links_every_benchmark_once() -> None:
    page = render("home.html", benchmarks=LISTED, live=[], live_count=0, verdicts=[])

    for listed in LISTED:
        assert page.count(f'href="/benchmarks/{listed["id"]}"') == 1
    assert page.count('<li class="card">') == 3
