"""`finishline score --format algoperf` of small leaderboards with one evaluation a trial."""

import csv
import io
import json

import pytest

COLUMNS = {
    "criteo1tb": ("loss", 0.12), "fastmri": ("ssim", 0.73), "imagenet_resnet": ("accuracy", 0.78),
    "imagenet_vit": ("accuracy", 0.78), "librispeech_conformer": ("wer", 0.08),
    "librispeech_deepspeech": ("wer", 0.11), "ogbg": ("mean_average_precision", 0.29),
    "wmt": ("bleu", 31.0), "ogbg_model_size": ("mean_average_precision", 0.27),
    "finewebedu_lm": ("ppl", 22.0),
}  # fmt: skip
BASE = list(COLUMNS)[:8]
MISSED = None
MEASUREMENTS = "eval_measurements.csv"


@pytest.fixture
def board(tmp_path):
    return tmp_path / "self_tuning"


@pytest.fixture
def scored(finishline, board):
    def score():
        ran = finishline("score", "--format", "algoperf", str(board), "--json")
        assert ran.code == 0, ran.err
        return {record["id"]: record for record in ran.json()["records"]}

    return score


def write(folder, text):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MEASUREMENTS).write_text(text)


def train(submission, workload, *studies):
    name, good = COLUMNS[workload]
    bad = 0.0 if name not in ("loss", "wer", "ppl") else 99.0
    for place, trials in enumerate(studies):
        for number, seconds in enumerate(trials, start=1):
            rows = [(1, bad), (seconds, good)] if seconds else [(1, bad)]
            table = f"accumulated_submission_time,global_step,validation/{name}\n" + "".join(
                f"{at},{step},{quality}\n" for step, (at, quality) in enumerate(rows)
            )
            write(submission / f"study_{place}" / f"{workload}_jax" / f"trial_{number}", table)


def test_score_is_the_integral_of_the_profile(board, scored):
    for workload in BASE:
        train(board / "fast", workload, [100])
        train(board / "slow", workload, [MISSED if workload == "wmt" else 250])
    records = scored()
    assert [(name, record["score"]) for name, record in records.items()] == [
        ("fast", 1.0), ("slow", pytest.approx(7 / 8 / 2)),
    ]  # fmt: skip
    assert records["fast"]["problems"] == []
    slow = records["slow"]["workloads"]
    assert (slow["ogbg"]["seconds"], slow["ogbg"]["ratio"]) == (250, 2.5)
    assert (slow["wmt"]["seconds"], slow["wmt"]["missed"]) == (None, "the target was not reached")
    assert records["slow"]["profile"][-1] == [4.0, 7 / 8]


def test_time_is_the_median_of_the_fastest_trials(board, scored):
    train(board / "mine", "wmt", [50, 30], [MISSED, MISSED], [90])
    found = scored()["mine"]["workloads"]["wmt"]
    assert (found["studies"], found["seconds"]) == ([30, None, 90], 90)


def test_time_beyond_four_times_the_fastest_is_missed(board, scored):
    train(board / "fast", "wmt", [100])
    train(board / "slow", "wmt", [401])
    records = scored()
    assert records["slow"]["workloads"]["wmt"]["missed"] == (
        "4.01 times the fastest, at most 4 count"
    )
    assert [record["score"] for record in records.values()] == [1 / 8, 0]


def test_workload_counts_with_its_held_out_variant(board, scored):
    for name, variant in (("both", 100), ("neither", MISSED)):
        train(board / name, "ogbg", [100])
        train(board / name, "ogbg_model_size", [variant])
    records = scored()
    assert [(each["version"], each["score"]) for each in records.values()] == [
        ("0.5", 1 / 8), ("0.5", 0),
    ]  # fmt: skip
    assert records["neither"]["workloads"]["ogbg"]["missed"] == (
        "ogbg_model_size: the target was not reached"
    )


def test_variant_counts_with_its_workload(board, scored):
    train(board / "odd", "ogbg", [MISSED])
    train(board / "odd", "ogbg_model_size", [10])
    for variant in ("ogbg", "ogbg_model_size"):
        train(board / "fair", variant, [100])
    records = scored()
    assert records["fair"]["score"] == 1 / 8
    assert records["odd"]["workloads"]["ogbg_model_size"]["missed"] == (
        "ogbg: the target was not reached"
    )


def test_later_version_has_a_ninth_workload(board, scored):
    train(board / "mine", "finewebedu_lm", [100])
    record = scored()["mine"]
    assert (record["version"], record["score"]) == ("0.6", pytest.approx(1 / 9))


@pytest.mark.parametrize(
    ("table", "code", "words"),
    [
        ("accumulated_submission_time,validation/bleu\n", "no_evaluation", "no evaluation"),
        ("accumulated_submission_time,global_step\n1,2\n", "bad_value", "no such column"),
        ("accumulated_submission_time,validation/bleu,validation/bleu\n1,2,3\n", "bad_value",
         "a column twice"),
        ("accumulated_submission_time,validation/bleu\n1,nan\n", "not_finite", "got nan"),
        ("accumulated_submission_time,validation/bleu\n1,\n", "not_finite", "an empty cell"),
        ("accumulated_submission_time,validation/bleu\n1,inf\n", "not_finite", "got inf"),
        ("accumulated_submission_time,validation/bleu\nnan,40\n", "bad_value", "'nan'"),
        ("", "bad_value", "an empty file"),
    ],
)  # fmt: skip
def test_wrong_table_is_named(board, scored, table, code, words):
    train(board / "mine", "ogbg", [100])
    write(board / "mine" / "study_0" / "wmt_jax" / "trial_1", table)
    record = scored()["mine"]
    (problem,) = (each for each in record["problems"] if each["file"].endswith(".csv"))
    assert problem["file"] == "mine/study_0/wmt_jax/trial_1/eval_measurements.csv"
    assert (problem["code"], words in problem["message"]) == (code, True)
    assert problem["expected"]
    assert record["score"] == 1 / 8


@pytest.mark.parametrize(
    ("path", "code", "field", "words"),
    [
        ("study_1/ogbg_jax/trial_1", "missing_study", "wmt", "no table in study_1"),
        ("study_0/wmt_jax/trial_2/events", "missing_trial", "wmt", "1 of 2 trials"),
        ("study_0/criteo_1tb_jax/trial_1", "unknown_workload", "criteo_1tb",
         "did you mean 'criteo1tb'"),
    ],
)  # fmt: skip
def test_missing_part_is_named(board, scored, path, code, field, words):
    for workload in BASE:
        train(board / "mine", workload, [100])
    (board / "mine" / path).mkdir(parents=True)
    problems = scored()["mine"]["problems"]
    (problem,) = (each for each in problems if each["field"] == field and each["code"] == code)
    assert words in problem["message"]
    assert problem["expected"]


def test_missing_workload_is_named(board, scored):
    train(board / "mine", "wmt", [100])
    named = [each["field"] for each in scored()["mine"]["problems"]]
    assert named == [name for name in BASE if name != "wmt"]


def test_missing_study_is_named(board, scored):
    for workload in BASE:
        train(board / "whole", workload, [100], [110], [120])
        train(board / "part", workload, [100], [110])
    records = scored()
    assert records["whole"]["problems"] == []
    (problem,) = records["part"]["problems"]
    assert (problem["file"], problem["field"]) == ("part", "study")
    assert problem["message"] == "no study_2: the median of the other studies counts"
    assert problem["expected"] == "3 studies, as whole has"


def test_leaderboard_is_a_table_or_csv(finishline, board):
    train(board / "slow", "wmt", [200])
    train(board / "fast", "wmt", [100])
    score = ("score", "--format", "algoperf", str(board))
    lines = finishline(*score, "--as", "table").out.splitlines()
    assert [line.split()[:3] for line in lines[1:]] == [
        ["fast", "0.6", "0.1250"], ["slow", "0.6", "0.0840"],
    ]  # fmt: skip
    (row, _) = csv.DictReader(io.StringIO(finishline(*score, "--as", "csv").out))
    assert (row["id"], json.loads(row["workloads"])["wmt"]["seconds"]) == ("fast", 100)


@pytest.mark.parametrize("path", ["missing", "."])
def test_folder_without_trials_is_refused(finishline, tmp_path, path):
    ran = finishline("score", "--format", "algoperf", str(tmp_path / path), "--json")
    assert ran.code == 1
    (problem,) = ran.error()["problems"]
    assert (problem["message"], MEASUREMENTS in problem["expected"]) == ("no AlgoPerf trial", True)
