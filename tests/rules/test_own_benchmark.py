"""An organiser's own benchmark: the problems of its folder, and advice by its reference runs."""

import hashlib
from dataclasses import replace

import pytest

from finishline.rules.benchmarks.benchmark import parse_benchmark
from finishline.rules.text import line_of
from finishline.rules.trainings.own_benchmark import (
    LARGEST_BYTES,
    MOST_FILES,
    ReferenceRuns,
    advice,
    read_own_benchmark,
    with_hashes,
)
from tests.support.own_benchmarks import DEFINITION, FILES, own_files


def problems_of(files):
    found, problems = read_own_benchmark(files)
    assert (found is None) == bool(problems)
    return [str(problem) for problem in problems]


def test_a_folder_without_problems_is_a_benchmark():
    files = own_files()

    found, problems = read_own_benchmark(files)

    assert problems == []
    assert found.benchmark.benchmark_id == "mine"
    assert found.benchmark.sha256 == hashlib.sha256(files["benchmark.toml"]).hexdigest()
    assert found.files == FILES


def test_problems_of_every_part_are_told_together():
    files = own_files()
    del files["points.csv"]
    files["reference/train.py"] = b"def train(prepared, data, seed):\n    yield\n"
    files["benchmark.toml"] = files["benchmark.toml"].replace(b"value = 90", b"value = 0.9")

    told = problems_of(files)

    line = DEFINITION.splitlines().index("value = 90") + 1
    assert f"benchmark.toml line {line}, field target.value: 0.9 percent" in told[-1] + told[0]
    assert any(each.startswith("reference/train.py: no function prepare") for each in told)


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        (DEFINITION.replace('"mine"', '"Mine"'), "benchmark.toml line 2, field id: got 'Mine'"),
        (DEFINITION.replace('"mine"', '"../x"'), "benchmark.toml line 2, field id: got '../x'"),
        (
            DEFINITION.replace('clock = "mlperf"', 'clock = "dawnbench"'),
            "benchmark.toml line 8, field clock: 'dawnbench' with [trainings]; expected 'mlperf'",
        ),
        (
            DEFINITION.replace(
                "[trainings]",
                '[replay]\nreference = "digits"\nmin_runs = 3\nmax_runs = 3\nalpha = 0.01\n'
                "time_tolerance = 0.5\nrun_limit_seconds = 60\nlease_seconds = 8\n"
                "max_attempts = 3\n\n[trainings]",
            ),
            "field replay: a module of the server's source",
        ),
    ],
)
def test_a_wrong_field_is_told_with_its_line(definition, expected):
    assert any(expected in each for each in problems_of(own_files(definition)))


CONTROLLED = DEFINITION.replace("halves = true", "halves = true\ncontrol_quality = 50")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"definition": CONTROLLED}, "task.py: no function control; expected def control(nonce)"),
        ({"task_py": b"def draw(nonce):\n    return (\n"}, "task.py line 2: not Python"),
        ({"task_py": b"import torch\n\n\ndef draw(nonce): ...\n"}, "task.py line 1: imports torch"),
        ({"task_py": b"def other(nonce): ...\n"},
         "task.py: no function draw; expected def draw(nonce)"),
    ],
)  # fmt: skip
def test_a_task_that_cannot_draw_is_told_without_running_it(changes, expected):
    (told,) = problems_of(own_files(**changes))
    assert told.startswith(expected)


def test_the_reference_must_be_a_package_of_this_benchmark():
    manifest = FILES["reference/training.toml"].replace(b'"mine"', b'"digits"')
    other = problems_of(own_files(files=FILES | {"reference/training.toml": manifest}))
    none = problems_of(own_files(files={"task.py": FILES["task.py"]}))

    assert other == [
        "reference/training.toml line 3, field benchmark: unknown benchmark 'digits'; expected mine"
    ]
    assert none == ["reference/training.toml: missing; expected a manifest"]


def test_too_much_is_refused():
    many = {f"data/{number}.csv": b"" for number in range(MOST_FILES)}
    large = {"large.bin": bytes(LARGEST_BYTES)}

    assert any(f"at most {MOST_FILES}" in each for each in problems_of(own_files() | many))
    assert any(f"at most {LARGEST_BYTES}" in each for each in problems_of(own_files() | large))


def test_hashes_are_written_into_their_table_alone():
    content = own_files()["benchmark.toml"] + b"\n[ranking]\npairs = 3\n"
    files = FILES | {"points.csv": b"9\n"}

    written = with_hashes(content, files)

    assert problems_of({"benchmark.toml": written, **files}) == []
    assert written.startswith(DEFINITION.encode())
    assert written.endswith(b"\n\n[ranking]\npairs = 3\n")
    assert with_hashes(written, files) == written
    without = DEFINITION.replace("[trainings.files]\n", "").encode()
    assert problems_of({"benchmark.toml": with_hashes(without, files), **files}) == []


@pytest.mark.parametrize(
    ("field", "line"), [("id", 1), ("target.value", 4), ("target.floor", 3), ("other", None)]
)
def test_a_field_is_found_by_its_table(field, line):
    text = b'id = "x"\nvalue = 1\n[target]  # the goal\nvalue = 2\n[runs]\nvalue = 3\n'

    assert line_of(text, field) == line


GOOD = ReferenceRuns(
    seconds=(4.0, 5.0, 6.0),
    evaluation_seconds=(0.1, 0.1, 0.1),
    asks=(1, 2, 2),
    halves=((91.0, 91.0), (92.0, 92.0), (93.0, 93.0)),
)


BENCHMARK = parse_benchmark(own_files()["benchmark.toml"], file="mine.toml")


def test_a_good_benchmark_gets_none():
    assert list(advice(BENCHMARK, GOOD, prediction_items=8_000)) == []


def test_the_spread_is_the_standard_deviation_over_the_mean():
    assert GOOD.mean_seconds == 5.0
    assert GOOD.cv_percent == pytest.approx(20.0)
    assert GOOD.evaluation_share == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("changed", "items", "told"),
    [
        ({}, 7_998, "3,999 test items a half"),
        ({"evaluation_seconds": (1.3, 1.3, 1.2)}, 8_000, "Evaluations take 25 %"),
        ({"asks": (7, 1, 1)}, 8_000, "The reference asks 7 times"),
        ({"seconds": (0.9, 0.9, 0.9)}, 8_000, "The reference needs 0.90 s"),
        (
            {"halves": ((90.0, 89.9), (90.0, 90.0), (90.0, 89.8))},
            8_000,
            "misses the target by 0.10",
        ),
    ],
)
def test_each_fault_has_its_sentence(changed, items, told):
    (sentence,) = advice(BENCHMARK, replace(GOOD, **changed), prediction_items=items)

    assert sentence.startswith(told) or told in sentence


def test_few_runs_and_one_half_are_told():
    policy = replace(BENCHMARK.trainings, runs=3, halves=False)

    found = list(advice(replace(BENCHMARK, trainings=policy), GOOD, prediction_items=4_000))

    assert [each[:14] for each in found] == ["halves is fals", "3 runs of a su"]


def test_public_answers_need_a_shortcut_test():
    public = replace(BENCHMARK.trainings, trust="demonstration")
    tested = replace(public, control_quality=60.0)

    found = [
        list(advice(replace(BENCHMARK, trainings=policy), GOOD, prediction_items=8_000))
        for policy in (public, tested)
    ]

    assert [len(each) for each in found] == [1, 0]
    assert "code that carries them ranks" in found[0][0]
