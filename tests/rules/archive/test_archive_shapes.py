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
from tests.support.algoperf_folders import write_leaderboard

MINI = "track_1_short/2026-08-01_Mini"
TABLE = "track_2_medium/2026-08-02_Table"
LOOSE = "track_3_optimization/results/20260803_loose"
# Losses and seconds of the runs, and what scipy makes of them.
RUNS = {
    f"{MINI}/this_pr": (
        [3.2779, 3.2784, 3.2791, 3.2770, 3.2788, 3.2776, 3.2793, 3.2781],
        [81.402, 81.377, 81.521, 81.290, 81.334, 81.468, 81.405, 81.399],
    ),
    f"{MINI}/baseline": ([3.2801, 3.2789, 3.2812], [79.9, 80.25, 80.1]),
    TABLE: ([2.9189, 2.9194, 2.9201], [1391.2, 1392.8, 1390.5]),
    f"{LOOSE}/logs": ([3.2771, 3.2785, 3.2766, 3.2779], [60.0, 61.0, 62.0, 63.0]),
}
FIGURES = {
    f"{MINI}/this_pr": (81.3995, 0.07199007868151903, 3.278275, 0.0002134542924731148, True),
    f"{MINI}/baseline": (80.08333333333333, 0.17559422921420909, 3.2800666666666665,
                         0.5353996162702361, False),
    TABLE: (1391.5, 1.1789826122551288, 2.9194666666666667, None, True),
    f"{LOOSE}/logs": (61.5, 1.2909944487358056, 3.277525, 0.004911920063540625, True),
}  # fmt: skip
EQUALS, SOURCE = "=" * 100 + "\n", "import os\nwith open(sys.argv[0]) as f:\n    code = f.read()\n"
PRINTED = 'print0(f"step:{step}/{steps} val_loss:{val_loss:.4f} train_time:{ms:.0f}ms")\n'


def write_log(path, loss, seconds):
    """A log as the speedruns write it: its script, its machine, then a line for each step."""
    lines = [SOURCE, PRINTED, EQUALS, "Running Python 3.12 on PyTorch 2.10\n", EQUALS]
    for step in range(0, 1401, 350):
        at, now = seconds * step / 1400, loss + (10.8 - loss) * (1400 - step) / 1400
        if step:
            lines.append(f"step:{step}/1400 train_time:{1000 * at:.0f}ms step_avg:58.14ms\n")
        lines.append(f"step:{step}/1400 val_loss:{now:.4f} train_time:{1000 * at:.0f}ms\n")
    lines.append("peak memory allocated: 31130 MiB reserved: 46096 MiB\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines))


def scores(root):
    archive = open_archive(root)
    return {each.id: score_folder(each, archive).record for each in find_folders(archive)}


def test_tree_of_a_speedrun_has_the_figures_of_scipy(tmp_path):
    records = tmp_path / "records"
    for folder, (losses, seconds) in RUNS.items():
        for number, (loss, took) in enumerate(zip(losses, seconds, strict=True)):
            write_log(records / folder / f"{number:08x}-3d76-4dce.txt", loss, took)
    (records / LOOSE / "requirements.txt").write_text("torch==2.10\n")
    (records / MINI / "README.md").write_text("| run | val_loss |\n| - | - |\n| 0 | 3.1 |\n")
    found = scores(records)
    assert set(found) == {*RUNS, LOOSE}
    for folder, (mean, sd, loss, p_value, reached) in FIGURES.items():
        record = found[folder]
        assert record["mean_seconds"] == pytest.approx(mean, rel=1e-12), folder
        assert record["sd_seconds"] == pytest.approx(sd, rel=1e-9)
        assert record["mean_loss"] == pytest.approx(loss, rel=1e-12)
        if p_value is not None:
            assert record["p_value"] == pytest.approx(p_value, rel=1e-6)
        assert (record["stop_step"], record["reached"], record["problems"]) == (1400, reached, [])
    assert [found[f"{MINI}/{name}"]["ranked"] for name in ("this_pr", "baseline")] == [True, False]
    assert found[LOOSE]["runs"] == 0


def test_leaderboard_of_algoperf_has_the_scores_of_numpy(tmp_path):
    """`narrow` misses one workload, `quick` one held-out variant and so its workload."""
    records = {each["id"]: each for each in score_algoperf([write_leaderboard(tmp_path)])}
    assert {name: each["score"] for name, each in records.items()} == {
        "steady": pytest.approx(0.9974747474747474, abs=1e-12),
        "quick": pytest.approx(0.7203282828282828, abs=1e-12),
        "narrow": pytest.approx(0.5334595959595959, abs=1e-12),
    }
    assert {each["version"] for each in records.values()} == {"0.5"}
    assert records["quick"]["workloads"]["wmt"]["ratio"] == pytest.approx(2.1531966224366706)
    assert records["narrow"]["workloads"]["imagenet_vit"]["seconds"] == pytest.approx(1382)


def folder_of(name):
    """The archive that a variable names."""
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
