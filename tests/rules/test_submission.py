"""Submissions from their files, and the cheats that are caught at the door or by the replay."""

import dataclasses
import json
from pathlib import Path

import pytest

from finishline.rules.errors import RuleError
from finishline.rules.run import Evaluation, Run
from finishline.rules.scoring.scoring import score_run
from finishline.rules.submissions.claim_checks import check_claim
from finishline.rules.submissions.submission import is_dawnbench, score_submission
from finishline.rules.verification.messages import (
    ReplayEvaluation,
    ReplayReport,
    ReplayRun,
    WorkerSystem,
)
from finishline.rules.verification.replay import judge

CLAIM = {
    "benchmark": "digits",
    "division": "closed",
    "model": "the reference",
    "framework": "torch 2.13.0",
    "system": {"name": "laptop", "hardware_class": "cpu-x86_64", "processor": "any"},
    "runs": ["run_0.log", "run_1.log", "run_2.log"],
}


def test_a_claim_of_our_own_is_not_taken_for_a_dawnbench_entry():
    ours = json.dumps(CLAIM | {"author": "someone"}).encode()
    assert not is_dawnbench(ours, file="submission.json")


CHEATS = Path(__file__).parents[1] / "data" / "cheats"
NAMES = ("run_0.log", "run_1.log", "run_2.log")
SECONDS_PER_EPOCH = 0.97  # What the honest set took.
CALIBRATED_RUNS = 40  # At each batch size.
REPLAYED = (30, 31, 32, 33)  # Shipped runs at batch size 64 that stand for the replays.


def honest_logs():
    return {name: (CHEATS / "honest" / name).read_bytes() for name in NAMES}


@pytest.fixture
def score(digits):
    def score_logs(logs=None, *, archive=False):
        claim = (CHEATS / "honest" / "submission.json").read_bytes()
        sent = honest_logs() if logs is None else logs
        return score_submission(claim, sent, {"digits": digits}, archive=archive)

    return score_logs


def run_of(digits, qualities, index, *, pace):
    """A run that stops at the target, or after all of its qualities."""
    reached = next((j for j, q in enumerate(qualities, 1) if q >= 97.5), len(qualities))
    curve = tuple(
        Evaluation(float(j), j * pace, quality) for j, quality in enumerate(qualities[:reached], 1)
    )
    return Run(NAMES[index % 3], "mlperf", curve, status="success", seed=index)


def verdict_on(digits, runs, **others):
    """The verdict on runs whose replays are four shipped ones on the same hardware class."""
    claim = score_submission(
        (CHEATS / "honest" / "submission.json").read_bytes(), honest_logs(), {"digits": digits}
    ).claim
    claim = dataclasses.replace(claim, trained_with="reference")
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
    return judge(digits, claim, scores, report, curves=curves, **others)


def codes(verdict):
    return {r.code for r in verdict.reasons if r.weight in ("rejects", "leaves_open")}


def held_out(digits, places):
    known = digits.reference_runs_at(64)
    left = tuple(run for i, run in enumerate(known) if i not in places)
    return dataclasses.replace(digits, reference_runs=left)


def with_cheat(name):
    return honest_logs() | {"run_0.log": (CHEATS / name).read_bytes()}


# Caught at the door. tests/server/cheats has those that are not about a line.
@pytest.mark.parametrize(
    ("cheat", "code", "field", "line"),
    [
        ("time_goes_back.log", "times_decrease", "time_ms", 27),
        ("stitched.log", "epochs_go_back", "epoch_num", 31),
        ("stitched_with_headers.log", "lines_out_of_order", "init_start", 30),
        ("other_batch_size.log", "batch_size_contradicts_claim", "global_batch_size", None),
        ("other_setting.log", "hyperparameter_contradicts_claim", "base_learning_rate", None),
    ],
)
def test_an_edited_log_is_refused_with_its_line(score, cheat, code, field, line):
    with pytest.raises(RuleError) as caught:
        score(with_cheat(cheat))

    problem = next(p for p in caught.value.problems if p.code == code)
    assert (problem.file, problem.field, problem.line) == ("run_0.log", field, line)
    assert problem.expected


def test_the_same_training_twice_is_refused_but_told_alone_in_an_archive(score):
    twice = with_cheat("run_1_with_another_seed.log")

    with pytest.raises(RuleError) as caught:
        score(twice)
    (problem,) = caught.value.problems
    assert (problem.code, problem.file) == ("same_log", "run_1.log")
    scored = score(twice, archive=True)
    assert [violation.code for violation in scored.result.violations] == ["same_log"]


# Caught by the replay.
def test_the_honest_set_is_verified(score, digits):
    verdict = verdict_on(digits, score().runs)

    assert verdict.outcome == "verified"
    assert codes(verdict) == set()


def test_edited_times_are_told_beside_the_measured_time(score, digits):
    logs = {name: (CHEATS / "edited_times" / name).read_bytes() for name in NAMES}

    verdict = verdict_on(digits, score(logs).runs)

    reason = next(r for r in verdict.reasons if r.code == "slower_than_claimed")
    assert reason.weight == "note"
    assert reason.numbers["ratio"] > 1.5


def test_edited_epochs_are_caught_by_convergence(score, digits):
    """Half of the evaluations are left out, the rest renumbered, the samples too."""
    logs = {name: (CHEATS / "edited_epochs" / name).read_bytes() for name in NAMES}

    verdict = verdict_on(digits, score(logs).runs)

    assert verdict.outcome == "rejected"
    assert "converges_faster_than_replay" in codes(verdict)


# Honest runs trip nothing.
def test_no_shipped_run_looks_like_a_cheat_at_the_door(score, digits):
    claim = score().claim
    for batch_size in (32, 64, 128):
        settings = {"batch_size": float(batch_size)}
        own = dataclasses.replace(claim, hyperparameters=settings)
        known = digits.reference_runs_at(batch_size)
        runs = [run_of(digits, run.quality, i, pace=0.11) for i, run in enumerate(known)]
        assert len(runs) == CALIBRATED_RUNS
        assert check_claim(own, runs, digits) == []


def test_no_shipped_run_is_a_copy_a_jump_or_a_lucky_crossing(digits):
    """Each three runs in a row are a claim that the others judge."""
    tripped = []
    for first in range(0, 30, 3):
        places = range(first, first + 3)
        known = digits.reference_runs_at(64)
        runs = [run_of(digits, known[i].quality, i, pace=SECONDS_PER_EPOCH) for i in places]
        tripped += codes(verdict_on(held_out(digits, places), runs))

    assert tripped == []
