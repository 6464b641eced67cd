"""Known archives: the commits whose results may be numbered."""

import re

import pytest

from finishline.rules.archive.sources import COMMIT, KNOWN_SOURCES, find_source, source_name

V51 = "4da2d1cd71eb30c855dad12712480ae5ac90dd89"


def test_a_known_commit_names_its_archive() -> None:
    source = find_source("mlperf-v5.1-llama31_8b", V51)
    assert source is not None
    assert (source.name, source.url.rpartition("/")[2]) == (
        "MLPerf Training v5.1",
        "training_results_v5.1",
    )
    assert source_name(V51) == "MLPerf Training v5.1"


@pytest.mark.parametrize(
    ("benchmark_id", "commit"),
    [
        ("mlperf-v5.1-llama31_8b", None),
        ("mlperf-v5.1-llama31_8b", V51[:39] + "0"),
        ("mlperf-v5.0-bert", V51),
        ("mlperf-v5x1-bert", V51),
        ("digits", V51),
    ],
)
def test_an_archive_is_known_by_its_own_commit_for_its_own_benchmarks(
    benchmark_id: str, commit: str | None
) -> None:
    assert find_source(benchmark_id, commit) is None


def test_every_source_has_whole_commits_and_a_link() -> None:
    commits = [commit for source in KNOWN_SOURCES for commit in source.commits]
    assert all(COMMIT.fullmatch(commit) for commit in commits)
    assert len(set(commits)) == len(commits)
    assert all(source.url.startswith("https://github.com/") for source in KNOWN_SOURCES)
    assert all(re.compile(source.benchmarks) for source in KNOWN_SOURCES)
