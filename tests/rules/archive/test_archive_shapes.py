"""Speedruns and AlgoPerf: trees of the archives' shapes, and the archives where they are here.

The expected figures of the small trees are from scipy and numpy, by programs of their own. Set
FINISHLINE_NANOGPT to the `records` of modded-nanogpt at f411b3d3, and FINISHLINE_ALGOPERF to a
checkout of submissions_algorithms at 12c8e4ea.
"""

import os
import re
from pathlib import Path

import pytest
from scipy.stats import tmean, tstd, ttest_1samp

from finishline.cli.records import open_archive
from finishline.rules.archive.algoperf import score_algoperf
from finishline.rules.archive.nanogpt import find_folders, score_folder


def scores(root):
    archive = open_archive(root)
    return {each.id: score_folder(each, archive).record for each in find_folders(archive)}


def folder_of(name):
    given = os.environ.get(name)
    if not given:
        pytest.skip(f"{name} is not set: it names a folder of the archive")
    return Path(given)


def last_figures(text):
    """Loss, step and milliseconds of the last evaluation after the script, None without one."""
    found = re.findall(
        r"^step:(\d+)/\d+ val_loss:([\d.]+) train_time:(\d+)ms",
        text.rpartition("=" * 100)[2],
        re.MULTILINE,
    )
    return found[-1] if found else None


def test_published_speedruns_have_the_figures_of_scipy():
    records, compared = folder_of("FINISHLINE_NANOGPT"), 0
    found = scores(records)
    assert len(found) == 202
    counts = {
        track: [
            sum(each["ranked"] for name, each in found.items() if name.startswith(track)),
            sum(each["reached"] is True for name, each in found.items() if name.startswith(track)),
        ]
        for track in ("track_1", "track_2", "track_3")
    }
    assert counts == {"track_1": [67, 67], "track_2": [15, 2], "track_3": [0, 36]}
    for name, record in found.items():
        logs = [
            last_figures(each.read_text(errors="replace"))
            for each in sorted((records / name).iterdir())
            if each.suffix in (".txt", ".log")
        ]
        known = sorted({each for each in logs if each is not None})
        if len(known) != record["runs"] or len(known) < 2 or record["stop_step"] is None:
            continue
        losses, seconds = [float(each[1]) for each in known], [int(each[2]) / 1e3 for each in known]
        target = 2.92 if name.startswith("track_2") else 3.28
        expected = ttest_1samp(losses, target, alternative="less").pvalue
        assert record["p_value"] == pytest.approx(expected, rel=1e-9), name
        assert record["mean_seconds"] == pytest.approx(tmean(seconds), rel=1e-12)
        assert record["sd_loss"] == pytest.approx(tstd(losses), rel=1e-9)
        compared += 1
    assert compared >= 90


PUBLISHED = {
    "algoperf_v05/logs/external_tuning": {
        "shampoo_submission": 0.7784, "schedule_free_adamw": 0.7077, "generalized_adam": 0.6383,
        "cyclic_lr": 0.6301, "nadamp": 0.5909, "baseline": 0.5707, "amos": 0.4918,
        "caspr_adaptive": 0.4722, "lawa_queue": 0.3699, "lawa_ema": 0.3384,
        "schedule_free_prodigy": 0.0,
    },
    "algoperf_v05/logs/self_tuning": {
        "schedule_free_adamw": 0.8542, "baseline": 0.8194, "nadamw_sequential": 0.3308,
        "sinv6_75": 0.1420, "sinv6": 0.0903, "adamg": 0.0,
    },
    "algoperf_v06/logs/external_tuning": {"shampoo": 0.6244, "baseline": 0.4590},
}  # fmt: skip


def test_published_leaderboards_have_their_scores():
    boards = folder_of("FINISHLINE_ALGOPERF") / "previous_leaderboards"
    for folder, published in PUBLISHED.items():
        found = {each["id"]: each["score"] for each in score_algoperf([boards / folder])}
        assert found == {name: pytest.approx(each, abs=5e-5) for name, each in published.items()}
