"""Records of speedruns: folders of logs as `finishline score` and `import` read them."""

import csv
import io
import json
from statistics import mean, stdev

import pytest
from scipy.stats import ttest_1samp

from finishline.cli.commands import score as score_module
from tests.support.speedrun_folders import LOSSES, step_log, write_records, write_runs

FIRST, SECOND = "track_1_short/2026-03-06_First", "track_1_short/2026-07-17_Second"
PATTERN = r"step:(?P<step>\d+).*val_loss:(?P<quality>[\d.]+).*train_time:(?P<ms>\d+)ms"


@pytest.fixture
def score(finishline):
    def run(*arguments):
        ran = finishline("score", "--format", "nanogpt", *map(str, arguments), "--json")
        assert ran.code == 0, ran.err
        return {record["id"]: record for record in ran.json()["records"]}

    return run


def told(record):
    """Its problems without the expected values, which are all there."""
    assert all(problem["expected"] for problem in record["problems"])
    return [[p["file"], p["line"], p["field"], p["message"]] for p in record["problems"]]


def test_records_have_the_figures_of_a_t_test(score, tmp_path):
    records = score(write_records(tmp_path))

    baseline, this_pr = f"{SECOND}/baseline", f"{SECOND}/this_pr"
    assert list(records) == [FIRST, baseline, this_pr, "track_1_short/2026-07-20_Alone"]
    seconds = [74.0, 74.1, 74.2, 74.3, 74.4]
    assert records[this_pr] == {
        "id": this_pr,
        "runs": 5,
        "mean_seconds": pytest.approx(mean(seconds)),
        "sd_seconds": pytest.approx(stdev(seconds)),
        "mean_loss": pytest.approx(mean(LOSSES)),
        "sd_loss": pytest.approx(stdev(LOSSES)),
        "p_value": pytest.approx(ttest_1samp(LOSSES, 3.28, alternative="less").pvalue),
        "stop_step": 1375,
        "reached": True,
        "ranked": True,
        "problems": records[this_pr]["problems"],
    }
    assert told(records[this_pr]) == [[f"records/{this_pr}/stderr.txt", None, None, "no step line"]]
    assert (records[baseline]["reached"], records[baseline]["p_value"] > 0.01) == (False, True)
    alone = records["track_1_short/2026-07-20_Alone"]
    unknown = ("sd_seconds", "sd_loss", "p_value", "reached")
    assert (alone["runs"], {alone[name] for name in unknown}) == (1, {None})
    assert [record["ranked"] for record in records.values()] == [True, False, True, False]


def test_one_folder_has_the_id_of_its_place(score, tmp_path):
    records = write_records(tmp_path) / "records"
    assert list(score(records / FIRST)) == [FIRST]
    assert list(score(write_runs(tmp_path / "mine"))) == ["mine"]


def test_track_2_wants_a_mean_and_track_3_a_margin(score, tmp_path):
    for track, losses in (
        ("track_2_medium/a", [2.9195, 2.9199]),
        ("track_2_medium/b", [2.9199, 2.9203]),
        ("track_3_optimization/results/a", [3.2771, 3.2772]),
        ("track_3_optimization/results/b", [3.2779, 3.2780]),
    ):
        write_runs(tmp_path / "records" / track, losses)
    write_runs(tmp_path / "records" / "track_2_medium/c", [2.9199])
    found = score(tmp_path)
    assert [record["reached"] for record in found.values()] == [True, False, None, True, False]
    assert [record["ranked"] for record in found.values()] == [True, False, True, False, False]


def test_older_logs_have_other_words_and_seconds(score, tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "main.log").write_text("s:0 tel:10.9\ns:5100 trl:3.2\ns:5100 tel:3.29\n")
    (tmp_path / "new").mkdir()
    line = "step:{0}/3350 val_loss:{1} train_time:{2}s step_avg:nanms\n"
    runs = [(0, 10.8, 0.0), (3350, 3.27839, 492.485), (0, 10.8, 0.0), (3350, 3.2781, 490.5)]
    (tmp_path / "new" / "two.stdout").write_text("".join(line.format(*run) for run in runs))

    found = score(tmp_path)
    assert (found["old"]["mean_loss"], found["old"]["mean_seconds"]) == (3.29, None)
    assert found["old"]["stop_step"] == 5100
    assert (found["new"]["runs"], found["new"]["mean_seconds"]) == (2, pytest.approx(491.4925))


def test_several_stop_steps_are_named(score, tmp_path):
    write_runs(tmp_path / "mixed", [3.2701, 3.2702, 3.2703], stop=1410, name="x")
    write_runs(tmp_path / "mixed", [3.2701, 3.2702], stop=1450, name="y")
    (record,) = score(tmp_path).values()
    assert (record["stop_step"], record["reached"], record["runs"]) == (None, None, 5)
    assert (record["mean_seconds"], record["mean_loss"], record["sd_loss"]) == (None, None, None)
    assert told(record) == [["mixed", None, "step", "2 stop steps, from 1410 to 1450"]]


def test_a_run_counts_once(score, tmp_path):
    folder = write_runs(tmp_path / "copied")
    (folder / "copy.txt").write_text((folder / "a0.txt").read_text())
    (folder / "last.txt").write_text((folder / "a1.txt").read_text().splitlines()[-1] + "\n")
    (record,) = score(tmp_path).values()
    assert (record["runs"], record["reached"]) == (5, True)
    files = [[problem["file"], problem["message"]] for problem in record["problems"]]
    assert files == [
        ["copied/copy.txt", "the same run as in copied/a0.txt"],
        ["copied/last.txt", "the same run as in copied/a1.txt"],
    ]


GOOD = step_log(3.2785, 84_000)


@pytest.mark.parametrize(
    ("log", "line", "field", "words"),
    [
        (b"nothing here\n", None, None, "no step line"),
        (b"", None, None, "an empty log"),
        (b"step:1/2 val_loss:3.3\0\n", None, None, "a binary file"),
        (b"\x1f\x8b\x08 packed", None, None, "gzip compressed; send plain text"),
        (b"step:1/2 val_loss:nan train_time:5ms\n", 1, "val_loss", "got 'nan'"),
        (b"step:1/2 val_loss:3.x train_time:5ms\n", 1, "val_loss", "got '3.x'"),
        (b"step:1/2 val_loss:3.3 train_time:5.x.1ms\n", 1, "train_time", "got '5.x.1'"),
        (b"step:1/2 val_loss:3.3 train_time:-5s\n", 1, "train_time", "got '-5'"),
        (
            b"step:1/9 val_loss:3.3 train_time:50ms\nstep:2/9 val_loss:3.3 train_time:40ms\n",
            2, "train_time", "0.04 s after 0.05 s",
        ),
        (
            b"step:1/9 val_loss:3.3 train_time:50ms\nstep:9/9 val_loss:3.3 train_time:90ms\n"
            b"step:5/9 val_loss:3.3 train_time:95ms\n",
            3, "step", "step 5 after 9",
        ),
    ],
)  # fmt: skip
def test_a_log_that_cannot_count_is_named(score, tmp_path, log, line, field, words):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "run.log").write_bytes(log)
    (record,) = score(tmp_path).values()
    assert (record["runs"], record["reached"]) == (0, None)
    assert told(record) == [["bad/run.log", line, field, words]]


def test_time_without_a_unit_is_named(score, tmp_path):
    folder = write_runs(tmp_path / "mine")
    log = (folder / "a2.txt").read_text()
    (folder / "a2.txt").write_text(log.replace("train_time:84200ms", "train_time:84200"))
    (record,) = score(tmp_path).values()
    assert told(record) == [["mine/a2.txt", 7, "train_time", "no time"]]
    assert (record["mean_seconds"], record["reached"], record["ranked"]) == (None, True, False)


def test_a_broken_log_beside_others_proves_nothing(score, tmp_path):
    folder = write_runs(tmp_path / "bad")
    (folder / "b.txt").write_text(GOOD.replace("val_loss:3.2785", "val_loss:nan"))
    (record,) = score(tmp_path).values()
    assert (record["runs"], record["reached"]) == (5, None)


def test_a_huge_line_is_read_in_pieces(score, tmp_path):
    (tmp_path / "huge").mkdir()
    with (tmp_path / "huge" / "run.log").open("wb") as file:
        file.write(b"x" * (9 << 20) + b"\n" + GOOD.encode())
    (record,) = score(tmp_path).values()
    assert record["mean_seconds"] == 84.0


def test_a_pattern_reads_another_speedrun(score, tmp_path):
    (tmp_path / "airbench").mkdir()
    for number, accuracy in enumerate((94.07, 94.08, 94.06, 94.08)):
        log = f"epoch 1 acc=80.1 time=1.2\nepoch 9 acc={accuracy} time=2.{number}\n"
        (tmp_path / "airbench" / f"{number}.log").write_text(log)
    pattern = r"epoch (?P<step>\d+) acc=(?P<quality>[\d.]+) time=(?P<seconds>[\d.]+)"

    (record,) = score(tmp_path, "--pattern", pattern, "--target", ">=94").values()
    assert (record["runs"], record["stop_step"], record["reached"]) == (4, 9, True)
    assert record["mean_seconds"] == pytest.approx(2.15)
    (record,) = score(tmp_path, "--pattern", pattern).values()
    assert (record["p_value"], record["reached"]) == (None, None)
    nanogpt = write_records(tmp_path / "nanogpt")
    same = score(nanogpt, "--pattern", PATTERN, "--target", "3.28")[FIRST]
    assert same == score(nanogpt)[FIRST]


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (r"loss:(\d+)", "no group named quality"),
        (r"(?P<loss>\d+)", "unknown group 'loss'"),
        (r"acc (?P<quality>\d+)", "no group named step"),
        (r"(?P<step>\d+) (?P<quality>\d+) (?P<ms>\d+) (?P<seconds>\d+)", "both ms and seconds"),
    ],
)
def test_pattern_with_other_groups_is_refused(finishline, tmp_path, pattern, words):
    ran = finishline("score", "--format", "nanogpt", str(tmp_path), "--pattern", pattern, "--json")
    assert ran.code == 2
    message = ran.error()["message"]
    assert words in message
    assert "expected the named groups quality and step, and for the time ms or seconds" in message
    assert "Hint: --pattern" in message


def test_a_pattern_that_fits_no_line_is_said(score, tmp_path):
    write_runs(tmp_path / "mine")
    (record,) = score(tmp_path, "--pattern", r"at (?P<step>\d+) accuracy (?P<quality>\d+)").values()
    assert [p["message"] for p in record["problems"]] == ["no step line"] * 5
    assert "accuracy" in record["problems"][0]["expected"]


def test_a_pattern_that_takes_for_ever_is_stopped(finishline, tmp_path, monkeypatch):
    monkeypatch.setattr(score_module, "PATTERN_SECONDS", 0.2)
    (tmp_path / "run.log").write_text("a" * 64 + "!\n")
    slow = r"(a+)+(?P<quality>\d)(?P<step>\d)"
    ran = finishline("score", "--format", "nanogpt", str(tmp_path), "--pattern", slow, "--json")
    assert (ran.code, "nested repetition" in ran.error()["message"]) == (1, True)


def test_other_outputs_and_other_words(finishline, tmp_path):
    tree = str(write_records(tmp_path))
    rows = finishline("score", "--format", "nanogpt", tree, "--as", "csv").out
    first = next(csv.DictReader(io.StringIO(rows)))
    assert (first["id"], first["runs"], first["reached"]) == (FIRST, "5", "True")
    assert FIRST in finishline("score", "--format", "nanogpt", tree, "--as", "table").out
    lines = finishline("score", "--format", "nanogpt", tree).out.splitlines()
    assert [json.loads(line)["runs"] for line in lines] == [5, 3, 5, 1]
    unknown = finishline("score", "--format", "csv", tree)
    assert (unknown.code, "--as csv" in unknown.err) == (2, True)
    (tmp_path / "empty").mkdir()
    none = finishline("score", "--format", "nanogpt", str(tmp_path / "empty"))
    assert (none.code, "No log found" in none.err) == (1, True)
    assert finishline("score", tree, "--pattern", "x").code == 2


def test_a_dry_run_of_an_import_agrees_with_the_scores(finishline, score, tmp_path):
    tree = write_records(tmp_path)
    write_runs(tree / "records" / "track_3_optimization" / "results" / "a")
    scored = score(tree)
    ran = finishline("import", "nanogpt", str(tree), "--dry-run", "--json")
    assert ran.code == 0, ran.err
    document = ran.json()
    sent = {each["path"]: each for each in document["to_import"]}
    assert [each["path"] for each in document["skipped"]] == [
        "track_1_short/2026-07-17_Second/baseline",
        "track_1_short/2026-07-20_Alone",
        "track_3_optimization/results/a",
    ]
    assert set(sent) | {each["path"] for each in document["skipped"]} == set(scored)
    for record, each in sent.items():
        assert (each["runs"], each["eligible"]) == (
            scored[record]["runs"],
            scored[record]["ranked"],
        )
    claims = {each["path"]: each["claim"]["submission"] for each in document["to_import"]}
    names = ("model", "organisation", "submitted_on")
    assert [[claim[name] for name in names] for claim in claims.values()] == [
        ["First of all", "@ann, @ben", "2026-03-06"],
        ["Smaller steps", "@carl", "2026-07-17"],
    ]


def test_dry_run_says_which_rows_are_numbered(finishline, tmp_path):
    tree = write_records(tmp_path)
    (tree / "README.md").unlink()
    write_runs(tree / "records" / "track_2_medium" / "2025-04-16_One", [2.9193], stop=6450)
    write_runs(tree / "records" / "track_1_short" / "2026-08-01_Missed", [3.2799, 3.2805, 3.2796])
    commit = "f411b3d346aa52d3504324ca93c230fd84c6c07f"
    dry = ("import", "nanogpt", str(tree), "--dry-run")
    ran = finishline(*dry, "--commit", commit)
    said = {line.split()[2]: line for line in ran.out.splitlines() if line.startswith("would")}
    assert "(5 runs, numbered)" in said[FIRST]
    assert "(1 run, numbered)" in said["track_2_medium/2025-04-16_One"]
    assert (
        "(1 run, not numbered: 1 run; expected 2 runs of nanogpt)"
        in said["track_1_short/2026-07-20_Alone"]
    )
    assert "p-value" in said["track_1_short/2026-08-01_Missed"]
    assert "5 to import (3 may rank)" in ran.out
    rows = finishline(*dry, "--json").json()["to_import"]
    assert {row["numbered"] for row in rows} == {False}
    assert "numbered once its source is known" in finishline(*dry).out


def test_line_without_the_quality_is_skipped(score, tmp_path):
    (tmp_path / "log.txt").write_text("epoch 1 time=12\nepoch 2 acc=91\n")
    pattern = r"epoch (?P<step>\d+)( acc=(?P<quality>\d+))?"
    (record,) = score(tmp_path, "--pattern", pattern).values()
    assert (record["stop_step"], record["mean_loss"]) == (2, 91.0)


@pytest.mark.parametrize("quality", ["1.5e308", "-1e16", "nan"])
def test_figure_beyond_any_training_is_a_problem(score, tmp_path, quality):
    log = f"step:100/100 val_loss:{quality} train_time:7ms\n"
    (tmp_path / "log.txt").write_text(log)
    (record,) = score(tmp_path).values()
    assert [each[1:3] for each in told(record)] == [[1, "val_loss"]]


def test_mark_of_the_encoding_hides_no_line(score, tmp_path):
    log = "step:0/9 val_loss:9.0 train_time:0ms\nstep:9/9 val_loss:3.0 train_time:7ms\n"
    (tmp_path / "a.txt").write_text(log)
    (tmp_path / "b.txt").write_text(log, encoding="utf-8-sig")
    (record,) = score(tmp_path).values()
    assert (record["runs"], len(told(record))) == (1, 1)
    assert "the same run as in" in told(record)[0][3]


EXAMPLE = "step:99/99 val_loss:1.0 train_time:1ms\n"
RUN = "".join(
    f"step:{step}/9 val_loss:{loss} train_time:{ms}ms\n"
    for step, loss, ms in [(0, 9.0, 0), (9, 3.0, 700)]
)
SCRIPT = "import torch\n" + EXAMPLE + "=" * 100 + "\n"


@pytest.mark.parametrize(
    ("log", "runs"),
    [
        (SCRIPT + "Running\n" + "=" * 100 + "\n" + RUN, 1),
        ("=" * 8 + "\n" + "def f():\n" + EXAMPLE + "=" * 8 + "\r\n" + RUN, 1),
        ("=" * 100 + "\n" + SCRIPT + RUN, 1),
        (SCRIPT + RUN + SCRIPT + RUN.replace("3.0", "3.1"), 2),
        (RUN + "=" * 30 + "\n" + RUN.replace("3.0", "3.1") + "=" * 30 + "\n", 2),
        ("class A:\n" + RUN + "=" * 5 + "\n" + RUN, 1),
    ],
)
def test_script_is_no_evaluation(score, tmp_path, log, runs):
    (tmp_path / "log.txt").write_text(log)
    (record,) = score(tmp_path).values()
    assert (record["runs"], record["stop_step"], told(record)) == (runs, 9, [])
    assert record["mean_loss"] == pytest.approx(3.0 if runs == 1 else 3.05)


def test_folder_outside_a_track_is_said(finishline, tmp_path):
    tree = write_records(tmp_path / "tree")
    write_runs(tmp_path / "mine")
    for path, is_said in ((tmp_path / "mine", True), (tree, False)):
        ran = finishline("score", "--format", "nanogpt", str(path))
        assert ("1 folder outside a track, scored as track 1" in ran.err) is is_said
    ran = finishline("score", "--format", "nanogpt", str(tmp_path / "mine"), "--target", "3.28")
    assert "track" not in ran.err


@pytest.mark.parametrize("target", ["nan", ">=-1e400", "abc"])
def test_target_is_a_finite_number(finishline, tmp_path, target):
    ran = finishline("score", "--format", "nanogpt", str(tmp_path), "--target", target)
    assert (ran.code, f"--target {target!r}: expected a number" in ran.err) == (2, True)
