"""Submissions from their files, and the cheats that are caught at the door or by the replay."""

import dataclasses
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
from tests.support.verdicts import case_of


def test_a_claim_of_our_own_is_not_taken_for_a_dawnbench_entry():
    ours = b'{"benchmark": "digits", "author": "someone", "runs": ["run_0.log"]}'
    assert not is_dawnbench(ours, file="submission.json")


FOLDER = Path(__file__).parents[1] / "data" / "cheats"
NAMES = ("run_0.log", "run_1.log", "run_2.log")
SECONDS_PER_EPOCH = 0.97  # What the honest set took.
CALIBRATED_RUNS = 40  # At each batch size.
REPLAYED = (30, 31, 32, 33)  # Shipped runs at batch size 64 that stand for the replays.


def score(digits, **changed):
    """The honest set, or one with another log, scored as a server does."""
    logs = {name: (FOLDER / "honest" / name).read_bytes() for name in NAMES} | changed
    claim = (FOLDER / "honest" / "submission.json").read_bytes()
    return score_submission(claim, logs, {"digits": digits})


def run_of(digits, qualities, index, *, pace):
    """A run that stops at the target, or after all of its qualities."""
    reached = next((j for j, q in enumerate(qualities, 1) if q >= 97.5), len(qualities))
    curve = tuple(
        Evaluation(float(j), j * pace, quality) for j, quality in enumerate(qualities[:reached], 1)
    )
    return Run(NAMES[index % 3], "mlperf", curve, status="success", seed=index)


def verdict_on(digits, runs, **others):
    """The verdict on runs whose replays are four shipped ones on the same hardware class."""
    claim = dataclasses.replace(score(digits).claim, trained_with="reference")
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
    return judge(case_of(digits, claim, scores, report, curves=curves, **others))


def codes(verdict):
    return {r.code for r in verdict.reasons if r.weight in ("rejects", "leaves_open")}


def held_out(digits, places):
    known = digits.reference_runs_at(64)
    left = tuple(run for i, run in enumerate(known) if i not in places)
    return dataclasses.replace(digits, reference_runs=left)


# tests/server/cheats has the other cheats.
def test_other_setting_than_claimed_is_refused(digits):
    with pytest.raises(RuleError) as caught:
        score(digits, **{"run_0.log": (FOLDER / "other_setting.log").read_bytes()})
    (problem,) = caught.value.problems
    assert problem.code == "hyperparameter_contradicts_claim"
    assert (problem.file, problem.field) == ("run_0.log", "base_learning_rate")
    assert problem.expected


def test_the_honest_set_is_verified(digits):
    verdict = verdict_on(digits, score(digits).runs)

    assert verdict.outcome == "verified"
    assert codes(verdict) == set()


# Honest runs trip nothing.
def test_no_shipped_run_looks_like_a_cheat_at_the_door(digits):
    claim = score(digits).claim
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
