"""Every cheat is caught: at the door where the logs betray it, else by the replay.

The honest set was trained with `finishline run` on a shared machine; the cheats are that set after
editing (tests/data/cheats), or are made here of the shipped runs of the digits benchmark.
"""

import dataclasses
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from rules.benchmark import Benchmark
from rules.claim_checks import check_claim
from rules.errors import RuleError
from rules.fingerprint import fingerprint
from rules.logs import parse_run_log
from rules.messages import ReplayEvaluation, ReplayReport, ReplayRun, WorkerSystem
from rules.run import Evaluation, Run
from rules.scoring import score_run
from rules.submission import ScoredSubmission, score_submission
from rules.verdict import Verdict
from rules.verification import judge

CHEATS = Path(__file__).parents[1] / "data" / "cheats"
NAMES = ("run_0.log", "run_1.log", "run_2.log")
SECONDS_PER_EPOCH = 0.97  # What the honest set took.
CALIBRATED_RUNS = 40  # At each batch size.
REPLAYED = (30, 31, 32, 33)  # Shipped runs at batch size 64 that stand for the replays.

Score = Callable[..., ScoredSubmission]


def honest_logs() -> dict[str, bytes]:
    return {name: (CHEATS / "honest" / name).read_bytes() for name in NAMES}


@pytest.fixture
def score(digits: Benchmark) -> Score:
    """Scores the honest set, or one with other logs, as a server does."""

    def score_logs(
        logs: dict[str, bytes] | None = None, *, archive: bool = False
    ) -> ScoredSubmission:
        claim = (CHEATS / "honest" / "submission.json").read_bytes()
        sent = honest_logs() if logs is None else logs
        return score_submission(claim, sent, {"digits": digits}, archive=archive)

    return score_logs


def run_of(digits: Benchmark, qualities: Sequence[float], index: int, *, pace: float) -> Run:
    """A run that stops at the target, or after all of its qualities."""
    reached = next((j for j, q in enumerate(qualities, 1) if q >= 97.5), len(qualities))
    curve = tuple(
        Evaluation(float(j), j * pace, quality) for j, quality in enumerate(qualities[:reached], 1)
    )
    return Run(NAMES[index % 3], "mlperf", curve, status="success", seed=index)


def verdict_on(digits: Benchmark, runs: Sequence[Run], **others: object) -> Verdict:
    """The verdict on runs whose replays are four shipped ones on the same hardware class."""
    claim = score_submission(
        (CHEATS / "honest" / "submission.json").read_bytes(), honest_logs(), {"digits": digits}
    ).claim
    scores = [score_run(run, digits, division="closed", clock=digits.clock) for run in runs]
    known = digits.reference_runs_at(64)
    replays = []
    for index, place in enumerate(REPLAYED):
        pace = SECONDS_PER_EPOCH * (1 + 0.01 * index)
        curve = run_of(digits, known[place].quality, index, pace=pace).evaluations
        evaluations = [ReplayEvaluation(e.epoch or 0, 0, e.seconds, e.quality, {}) for e in curve]
        tta = curve[-1].seconds
        replays.append(ReplayRun(index, index, "reached", evaluations, {}, tta_seconds=tta))
    system = WorkerSystem("w", claim.system.hardware_class, "any", 2, 24.0, None, 0, 1, {})
    curves = [run.evaluations for run in runs]
    report = ReplayReport(replays, system)
    return judge(digits, claim, scores, report, curves=curves, **others)  # type: ignore[arg-type]


def codes(verdict: Verdict) -> set[str]:
    return {r.code for r in verdict.reasons if r.weight in ("rejects", "leaves_open")}


def held_out(digits: Benchmark, places: Sequence[int]) -> Benchmark:
    """The benchmark without some of its calibrated runs at batch size 64."""
    known = digits.reference_runs_at(64)
    left = tuple(run for i, run in enumerate(known) if i not in places)
    return dataclasses.replace(digits, reference_runs=left)


def refused(score: Score, logs: dict[str, bytes]) -> list[RuleError]:
    with pytest.raises(RuleError) as caught:
        score(logs)
    return caught.value.problems


def with_cheat(name: str) -> dict[str, bytes]:
    """The honest set with its first log replaced by a cheat."""
    return honest_logs() | {"run_0.log": (CHEATS / name).read_bytes()}


# Caught at the door.


@pytest.mark.parametrize(
    ("cheat", "code", "field", "line"),
    [
        ("epochs_without_samples.log", "samples_contradict_epochs", "samples_count", 31),
        ("one_interval_cut.log", "time_steps_differ", "time_ms", 28),
        ("evaluation_missing.log", "evaluations_missing", "eval_accuracy", 25),
        ("time_goes_back.log", "times_decrease", "time_ms", 27),
        ("stitched.log", "epochs_go_back", "epoch_num", 31),
        ("stitched_with_headers.log", "lines_out_of_order", "init_start", 30),
        ("other_batch_size.log", "batch_size_contradicts_claim", "global_batch_size", None),
        (
            "other_setting.log",
            "hyperparameter_contradicts_claim",
            "base_learning_rate",
            None,
        ),
        ("other_system.log", "system_contradicts_claim", "submission_platform", None),
    ],
)
def test_an_edited_log_is_refused_with_its_line(
    score: Score, cheat: str, code: str, field: str, line: int | None
) -> None:
    problems = refused(score, with_cheat(cheat))

    problem = next(p for p in problems if p.code == code)
    assert (problem.file, problem.field, problem.line) == ("run_0.log", field, line)
    assert problem.expected


def test_one_log_handed_in_three_times_is_refused(score: Score) -> None:
    one = honest_logs()["run_0.log"]

    problems = refused(score, dict.fromkeys(NAMES, one))

    assert [(p.code, p.file) for p in problems] == [
        ("same_seed", "run_1.log"),
        ("same_seed", "run_2.log"),
    ]


def test_one_training_under_another_seed_is_refused(score: Score) -> None:
    (problem,) = refused(score, with_cheat("run_1_with_another_seed.log"))

    assert (problem.code, problem.file) == ("same_log", "run_1.log")
    assert problem.message == "every quality and time is that of run_0.log"


def test_one_seed_for_two_trainings_is_refused(score: Score) -> None:
    logs = honest_logs()
    logs["run_1.log"] = logs["run_1.log"].replace(b'"value":7002', b'"value":7001')

    (problem,) = refused(score, logs)

    assert (problem.code, problem.file, problem.field) == ("same_seed", "run_1.log", "seed")


def test_other_accelerators_than_claimed_are_refused(score: Score) -> None:
    line = b':::MLLOG {"time_ms":1,"event_type":"POINT_IN_TIME","key":"accelerators_per_node","value":8}\n'  # noqa: E501
    logs = honest_logs()

    (problem,) = refused(score, logs | {"run_2.log": line + logs["run_2.log"]})

    assert problem.code == "accelerators_contradict_claim"
    assert problem.message == "the log has 8 accelerators"
    assert problem.expected == "0 as in the claim"


def test_logs_of_two_platforms_are_no_set(score: Score, digits: Benchmark) -> None:
    scored = score()
    runs = [
        dataclasses.replace(run, platform=name)
        for run, name in zip(
            scored.runs, ["shared two-core", "shared two-core", "another two-core"], strict=True
        )
    ]

    (violation,) = check_claim(scored.claim, runs, digits)

    assert (violation.code, violation.file) == ("platform_differs", "run_2.log")


def test_in_an_archive_the_same_training_twice_is_told_and_not_refused(score: Score) -> None:
    scored = score(with_cheat("run_1_with_another_seed.log"), archive=True)

    assert [violation.code for violation in scored.result.violations] == ["same_log"]


def test_a_fingerprint_outlives_seed_spelling_and_start(digits: Benchmark) -> None:
    def of(path: str, name: str = "run_0.log") -> str:
        content = (CHEATS / path).read_bytes()
        return fingerprint(parse_run_log(content, name=name, benchmark=digits))

    own = of("honest/run_1.log")
    tsv = "epoch\thours\ttop1Accuracy\n"
    run = parse_run_log((CHEATS / "honest/run_1.log").read_bytes(), name="a", benchmark=digits)
    tsv += "".join(f"{e.epoch}\t{e.seconds / 3600!r}\t{e.quality}\n" for e in run.evaluations)
    as_tsv = fingerprint(parse_run_log(tsv.encode(), name="a.tsv", benchmark=digits))

    assert of("run_1_with_another_seed.log") == own == as_tsv
    assert len({own, of("honest/run_0.log"), of("honest/run_2.log")}) == 3
    assert of("edited_times/run_1.log") != own


def test_a_fingerprint_outlives_a_start_that_is_moved(digits: Benchmark) -> None:
    run = run_of(digits, digits.reference_runs_at(64)[0].quality, 0, pace=0.97)
    later = [dataclasses.replace(e, seconds=e.seconds + 12.5) for e in run.evaluations]
    slower = [dataclasses.replace(e, seconds=e.seconds * 1.01) for e in run.evaluations]

    assert fingerprint(dataclasses.replace(run, evaluations=tuple(later))) == fingerprint(run)
    assert fingerprint(dataclasses.replace(run, evaluations=tuple(slower))) != fingerprint(run)


# Caught by the replay.


def test_the_honest_set_is_verified(score: Score, digits: Benchmark) -> None:
    verdict = verdict_on(digits, score().runs)

    assert verdict.outcome == "verified"
    assert codes(verdict) == set()


def test_edited_times_are_caught_by_the_pace(score: Score, digits: Benchmark) -> None:
    logs = {name: (CHEATS / "edited_times" / name).read_bytes() for name in NAMES}

    verdict = verdict_on(digits, score(logs).runs)

    assert verdict.outcome == "rejected"
    assert codes(verdict) == {"slower_than_claimed"}


def test_edited_epochs_are_caught_by_convergence(score: Score, digits: Benchmark) -> None:
    """Half of the evaluations are left out, the rest renumbered, the samples too."""
    logs = {name: (CHEATS / "edited_epochs" / name).read_bytes() for name in NAMES}

    verdict = verdict_on(digits, score(logs).runs)

    assert verdict.outcome == "rejected"
    assert {"converges_faster_than_replay", "claim_above_band", "runs_selected"} <= codes(verdict)


def test_the_log_of_another_submission_is_left_open(score: Score, digits: Benchmark) -> None:
    elsewhere = {"run_1.log": "run_0.log of submission abc"}

    verdict = verdict_on(digits, score().runs, elsewhere=elsewhere)

    assert verdict.outcome == "inconclusive"
    assert codes(verdict) == {"log_of_another_submission"}


@pytest.mark.parametrize("noise", [0.0, 100 / 599])
def test_a_calibrated_curve_with_an_item_of_noise_is_left_open(
    digits: Benchmark, noise: float
) -> None:
    random = np.random.default_rng(41)
    known = digits.reference_runs_at(64)
    caught = 0
    for trial in range(10):
        runs = []
        for index in range(3):
            copied = np.array(known[3 * trial + index].quality)
            copied += random.choice([-noise, 0.0, noise], copied.shape)
            runs.append(run_of(digits, copied.tolist(), index, pace=SECONDS_PER_EPOCH))
        caught += "curve_copied" in codes(verdict_on(digits, runs))

    assert caught == 10


def test_a_target_crossed_out_of_the_blue_is_left_open(digits: Benchmark) -> None:
    """One evaluation 0.01 over the target, those around it 4 points below."""
    places = (0, 1, 2)
    lucky = [
        [*digits.reference_runs_at(64)[i].quality[:5], 93.5, 97.51, 93.5, 94.0, 97.6]
        for i in places
    ]
    runs = [run_of(digits, curve, i, pace=0.97) for i, curve in zip(places, lucky, strict=True)]

    verdict = verdict_on(held_out(digits, places), runs)

    assert "crossing_is_noise" in codes(verdict)
    assert verdict.outcome == "inconclusive"


def test_a_fall_after_the_crossing_is_seen_where_the_log_goes_on(digits: Benchmark) -> None:
    curve = [*digits.reference_runs_at(64)[0].quality[:6], 97.0, 97.51, 93.5, 94.0]
    evaluations = tuple(Evaluation(float(j), 0.97 * j, q) for j, q in enumerate(curve, 1))
    runs = [Run(name, "mlperf", evaluations, status="success") for name in NAMES]

    verdict = verdict_on(held_out(digits, [0]), runs)

    messages = [r.message for r in verdict.reasons if r.code == "crossing_is_noise"]
    assert len(messages) == 3
    assert "4.00 from it just after" in messages[0]


def test_a_curve_joined_of_two_runs_jumps(digits: Benchmark) -> None:
    """Its epochs and times go on; the curve leaps where the second run begins."""
    places = (0, 1, 2)
    joined = []
    for place in places:
        quality = digits.reference_runs_at(64)[place].quality
        joined.append([*quality[:3], quality[2], *quality[7:]])
    runs = [run_of(digits, curve, i, pace=0.97) for i, curve in zip(places, joined, strict=True)]

    verdict = verdict_on(held_out(digits, places), runs)

    assert "claim_curve_jumps" in codes(verdict)


def test_the_best_three_of_thirty_runs_are_left_open(digits: Benchmark) -> None:
    """Of thirty shipped ones; how often a choice is seen, perf/verdict_power.py tells."""
    known = digits.reference_runs_at(64)
    fastest = sorted(range(30), key=lambda i: crossing(known[i].quality))[:3]
    runs = [run_of(digits, known[place].quality, i, pace=0.97) for i, place in enumerate(fastest)]

    verdict = verdict_on(held_out(digits, fastest), runs)

    reason = next(r for r in verdict.reasons if r.code == "runs_selected")
    assert (reason.weight, verdict.outcome) == ("leaves_open", "inconclusive")


def crossing(curve: Sequence[float]) -> float:
    for epoch, (before, at) in enumerate(pairwise(curve), 2):
        if at >= 97.5:
            return epoch - (at - 97.5) / (at - before)
    raise AssertionError("every shipped run reaches the target")


# Honest runs trip nothing.


def test_no_shipped_run_looks_like_a_cheat_at_the_door(score: Score, digits: Benchmark) -> None:
    claim = score().claim
    for batch_size in (32, 64, 128):
        settings = {"batch_size": float(batch_size)}
        own = dataclasses.replace(claim, hyperparameters=settings)
        known = digits.reference_runs_at(batch_size)
        runs = [run_of(digits, run.quality, i, pace=0.11) for i, run in enumerate(known)]
        assert len(runs) == CALIBRATED_RUNS
        assert check_claim(own, runs, digits) == []


def test_no_shipped_run_is_a_copy_a_jump_or_a_lucky_crossing(digits: Benchmark) -> None:
    """Each three runs in a row are a claim that the others judge."""
    tripped = []
    for first in range(0, 30, 3):
        places = range(first, first + 3)
        known = digits.reference_runs_at(64)
        runs = [run_of(digits, known[i].quality, i, pace=SECONDS_PER_EPOCH) for i in places]
        tripped += codes(verdict_on(held_out(digits, places), runs))

    assert tripped == []
