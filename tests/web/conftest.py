"""Views as the API answers them: complete, bare (None wherever None is allowed) and hostile."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from finishline.api.benchmarks import BenchmarkView, ConvergenceView, PlacedSubmission
from finishline.api.boards import BoardEntry, BoardView
from finishline.api.records import RecordView
from finishline.api.submissions import RcpView, ResultView, RunView, SubmissionView, SystemView
from finishline.api.verifications import VerificationView
from finishline.api.workers import WorkerView
from finishline.rules.ranking.evidence import CHECK_OF_STATUS
from server.verifications.queries import LiveLine, VerdictLine
from web.race import verification_picture
from web.replay_chart import NO_RACE

View = dict[str, Any]
HOSTILE = '<script>alert(1)</script>"><img src=x onerror=alert(2)>' + "W" * 300


def answer(model, values):
    """A view as JSON. A field that is missing, misspelt or of another type is an error here."""
    assert values.keys() <= model.model_fields.keys()
    return model.model_validate(values).model_dump(mode="json")


def make_system(**changes):
    values = {
        "name": "two-core laptop",
        "hardware_class": "cpu-x86_64",
        "processor": "AMD EPYC 7B13",
        "processor_count": 2,
        "memory_gib": 24.0,
        "accelerator": None,
        "accelerator_count": 0,
        "price_usd_per_hour": 0.0672,
        "price_source": "on-demand, 2026-11-01",
    }
    return answer(SystemView, values | changes)


BARE_SYSTEM = {
    "processor_count": None,
    "memory_gib": None,
    "accelerator": None,
    "price_usd_per_hour": None,
    "price_source": None,
}


def _evidence_of(changes):
    """An entry with another verdict than verified is claimed, with the check of that verdict."""
    status = changes.get("status", "verified")
    if status == "verified":
        return {}
    return {"evidence": "claimed", "check": CHECK_OF_STATUS[status], "measured_seconds": None,
            "measured_runs": 0}  # fmt: skip


def make_entry(**changes):
    entry = {
        "rank": 1,
        "tied": False,
        "unranked_reason": None,
        "submission_id": "sub-1",
        "submitter": "alice",
        "model": "digits-cnn",
        "framework": "torch 2.13.0",
        "division": "closed",
        "status": "verified",
        "system": make_system(),
        "tta_seconds": 0.8532,
        "tta_display": "0:00:01",
        "tta_low_seconds": 0.79,
        "tta_high_seconds": 0.91,
        "cv_percent": 6.3,
        "runs_reached": 3,
        "runs_started": 3,
        "epochs_to_target": 7.667,
        "cost_usd": 0.0000159,
        "latency_ms": None,
        "quality": 98.1,
        "evaluation_interval_seconds": 0.11,
        "submitted_at": "2026-11-20T10:00:00Z",
        "raw_tta_seconds": 0.8532,
        "benchmark_sha256": "ab" * 32,
        "evidence": "measured",
        "provisional_rank": 1,
        "claimed_seconds": 0.8532,
        "measured_seconds": 0.8532,
        "measured_low_seconds": 0.79,
        "measured_high_seconds": 0.91,
        "measured_runs": 3,
        "pool_id": "pool-1",
        "trained_with": "reference",
    }
    return answer(BoardEntry, entry | _evidence_of(changes) | changes)


BARE_ENTRY = {
    "rank": None,
    "unranked_reason": "did not reach the target",
    "status": "claimed",
    "evidence": "claimed",
    "check": "none",
    "provisional_rank": None,
    "claimed_seconds": None,
    "measured_seconds": None,
    "measured_low_seconds": None,
    "measured_high_seconds": None,
    "measured_runs": 0,
    "tta_seconds": None,
    "tta_display": None,
    "tta_low_seconds": None,
    "tta_high_seconds": None,
    "cv_percent": None,
    "runs_reached": 0,
    "epochs_to_target": None,
    "cost_usd": None,
    "evaluation_interval_seconds": None,
    "system": make_system(**BARE_SYSTEM),
}


def make_board(*entries, **changes):
    values = {
        "benchmark": "digits",
        "kind": "train",
        "division": None,
        "metric": "tta",
        "version": 7,
        "total": len(entries),
        "next_cursor": None,
        "entries": list(entries),
        "first": 1 if entries else None,
    }
    return answer(BoardView, values | changes)


TARGET = {
    "metric": "top1Accuracy",
    "value": 97.5,
    "unit": "percent",
    "direction": "higher",
    "also": [],
}


def make_benchmark(**changes):
    values = {
        "id": "digits",
        "title": "Handwritten digits",
        "version": "1.0",
        "task": "image classification",
        "about": "Classify 8 by 8 pictures of handwritten digits. Small enough for any laptop.",
        "data_set": {
            "name": "scikit-learn digits",
            "source": "sklearn.datasets.load_digits",
            "train_items": 1198,
            "test_items": 599,
        },
        "target": TARGET,
        "clock": "dawnbench",
        "runs": {"count": 3, "dropped": 1, "started": 3},
        "divisions": ["closed", "open"],
        "replayable": True,
        "sha256": "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826",
        "submissions": 12,
        "inference_submissions": 0,
    }
    return answer(BenchmarkView, values | changes)


def make_inference_entry(**changes):
    """An entry of an inference board: no time, no runs."""
    inference = {
        "status": "claimed",
        "unranked_reason": None,
        "runs_started": 0,
        "latency_ms": 9.784310778490001,
        "cost_usd_per_10000": 0.024460776946225,
        "measured_latency_ms": 9.1,
        "quality": 98.24,
        "raw_tta_seconds": None,
    }
    return make_entry(**(BARE_ENTRY | inference | {"rank": 1} | changes))


def make_inference_board(*entries, **changes):
    return make_board(*entries, **({"kind": "inference", "metric": "latency"} | changes))


QUALITIES = [14.8, 45.8, 73.0, 85.5, 90.8, 95.6, 97.4, 98.1]


def make_curve(shift=0.0):
    return [
        {"epoch": float(j), "seconds": 0.11 * j, "samples": 1152 * j, "quality": q + shift}
        for j, q in enumerate(QUALITIES, start=1)
    ]


def make_run(index=0, **changes):
    values = {
        "index": index,
        "file": f"run_{index}.log",
        "seed": 1234 + index,
        "reached": True,
        "tta_seconds": 0.85 + 0.02 * index,
        "epochs_to_target": 8.0,
        "best_quality": 98.1636,
        "batch_size": 64,
        "convergence": 8.0,
        "log_sha256": "a" * 64,
        "ledger": {
            "init": 2.1 + 0.3 * index,
            "compile": 0.0,
            "warmup": 0.2,
            "data": 0.05,
            "train": 0.7,
            "eval": 0.1,
            "checkpoint": 0.0,
            "idle": 0.02,
        },
    }
    return answer(RunView, values | changes)


def make_rcp(**changes):
    rcp = {
        "verdict": "pass",
        "message": "RCP found: faster than the reference mean but within the limit, normalised",
        "factor": 1.0625,
        "batch_size": 64,
        "mean": 8.5,
        "lowest": 7.9,
        "submission_mean": 8.0,
    }
    return answer(RcpView, rcp | changes)


def make_place(**changes):
    values = {
        "id": "sub-1",
        "submitter": "alice",
        "model": "digits-cnn",
        "hardware": "EPYC 7B13",
        "division": "closed",
        "batch_size": 64,
        "mean": 8.0,
        "verdict": "pass",
        "normalised": True,
    }
    return answer(PlacedSubmission, values | changes)


def make_convergence(*places, **changes):
    points = [
        {"batch_size": 64, "mean": 8.5, "stdev": 0.4, "lowest": 7.9, "pruned": False},
        {"batch_size": 128, "mean": 9.9, "stdev": 0.5, "lowest": 9.1, "pruned": True},
        {"batch_size": 4096, "mean": 11.0, "stdev": 0.5, "lowest": 10.2, "pruned": False},
    ]
    values = {
        "benchmark": "digits",
        "unit": "epochs",
        "judged": True,
        "allowance": 0.0,
        "points": points,
        "envelope": [p for p in points if not p["pruned"]],
        "submissions": list(places),
        "left_out": 0,
    }
    return answer(ConvergenceView, values | changes)


def make_result(**changes):
    values = {
        "tta_seconds": 0.8532,
        "tta_display": "0:00:01",
        "reached": 3,
        "started": 3,
        "cv_percent": 6.3,
        "tta_low_seconds": 0.79,
        "tta_high_seconds": 0.91,
        "epochs_to_target": 7.667,
        "cost_usd": 0.0000159,
        "cost_basis": {"source": "claim", "usd_per_hour": 0.0672},
        "best_quality": 98.1636,
        "evaluation_interval_seconds": 0.11,
        "raw_tta_seconds": 0.8532,
        "clock": "dawnbench",
        "eligible": True,
        "violations": [],
        "steps": [
            {
                "name": "time to accuracy of run_0.log",
                "formula": "seconds at the first evaluation with top1Accuracy >= 97.5",
                "numbers": {"evaluation": 8, "quality": 98.1636},
                "value": 0.85,
                "unit": "s",
            },
            {
                "name": "olympic mean",
                "formula": "drop the fastest and the slowest of 3, mean of the rest",
                "numbers": {"run_0": 0.85, "run_1": 0.87, "run_2": 0.89},
                "value": 0.87,
                "unit": "s",
            },
            {
                "name": "cost",
                "formula": "not priced",
                "numbers": {},
                "value": None,
                "unit": "USD",
            },
        ],
    }
    return answer(ResultView, values | changes)


BARE_RESULT = {
    "tta_seconds": None,
    "tta_display": None,
    "reached": 0,
    "cv_percent": None,
    "tta_low_seconds": None,
    "tta_high_seconds": None,
    "epochs_to_target": None,
    "cost_usd": None,
    "cost_basis": None,
    "best_quality": None,
    "evaluation_interval_seconds": None,
    "eligible": False,
    "violations": [{"code": "too_few_runs", "message": "1 run of 3", "file": None}],
    "steps": [],
}


def make_submission(**changes):
    values = {
        "id": "sub-1",
        "kind": "train",
        "precision": None,
        "precision_measured": None,
        "benchmark": "digits",
        "benchmark_version": "1.0",
        "benchmark_sha256": "b" * 64,
        "division": "closed",
        "submitter": "alice",
        "model": "digits-cnn",
        "framework": "torch 2.13.0",
        "system": make_system(),
        "hyperparameters": {"batch_size": 64, "learning_rate": 0.02},
        "code_url": "https://example.org/alice/digits",
        "notes": "Trained on mains power.",
        "submitted_at": "2026-11-20T10:00:00Z",
        "submitted_on": None,
        "archive": False,
        "status": "verified",
        "evidence": "measured",
        "trained_with": "reference",
        "measured_latency_ms": None,
        "result": make_result(),
        "runs": [make_run(0), make_run(1), make_run(2)],
        "verifications": [
            {
                "id": "ver-1",
                "kind": "replay",
                "state": "done",
                "outcome": "verified",
                "created_at": "2026-11-20T10:00:01Z",
                "ended_at": "2026-11-20T10:00:21Z",
                "decision": None,
                "published": True,
            }
        ],
        "published_verification": "ver-1",
        "pending_decisions": [],
    }
    return answer(SubmissionView, values | changes)


def make_inference_submission(**changes):
    """An inference below the target of digits: no run, no verification."""
    result = {
        "latency_ms": 9.784310778490001,
        "cost_usd_per_10000": 0.024460776946225,
        "metric": "top1Accuracy",
        "quality": 94.09,
        "reached": False,
        "given_in_percent": False,
        "eligible": False,
        "steps": [
            {
                "name": "latency",
                "formula": "of one item at batch size 1, as stated",
                "numbers": {},
                "value": 9.784310778490001,
                "unit": "ms",
            }
        ],
    }
    nothing = {"kind": "inference", "status": "claimed", "hyperparameters": {}, "runs": []}
    unchecked = {"verifications": [], "published_verification": None}
    changed = {"result": result | changes.pop("result", {})} | changes
    return make_submission(**(nothing | unchecked | changed))


def make_bare_submission(**changes):
    nothing = {"tta_seconds": None, "epochs_to_target": None, "best_quality": None}
    bare = {
        "status": "claimed",
        "system": make_system(**BARE_SYSTEM),
        "hyperparameters": {},
        "code_url": None,
        "notes": None,
        "result": make_result(**BARE_RESULT),
        "runs": [make_run(0, seed=None, reached=False, ledger=None, **nothing)],
        "verifications": [],
        "published_verification": None,
    }
    return make_submission(**(bare | changes))


HALF_WIDTHS = [20.0, 58.0, 33.0, 9.0, 8.0, 4.0, 2.0, 1.2, 1.0, 1.0]
POINTS = [
    {"index": j, "mean": mean, "lower": mean - half, "upper": mean + half}
    for j, (mean, half) in enumerate(
        zip([*QUALITIES, 98.5, 98.7], HALF_WIDTHS, strict=True), start=1
    )
]


def make_replay_run(index=0, **changes):
    return {
        "index": index,
        "seed": 90_000 + index,
        "status": "reached",
        "evaluations": make_curve(shift=0.2 * index),
        "ledger": {"init": 2.0, "train": 0.7},
        "tta_seconds": 0.88,
        "parent_seconds": 0.9,
        "child_seconds": 0.9,
        "cpu_seconds": 0.88,
        "failure": None,
        "log_tail": "",
    } | changes


def make_verification(**changes):
    values = {
        "id": "ver-1",
        "kind": "replay",
        "submission_id": "sub-1",
        "checks_id": None,
        "owners": 1,
        "against_id": None,
        "calibration_id": None,
        "hyperparameters": None,
        "duel": None,
        "benchmark": "digits",
        "state": "done",
        "waiting_for": None,
        "seal": "c" * 64,
        "nonce": "d" * 32,
        "reason": "A record is claimed.",
        "runs_planned": 3,
        "own_runs": 0,
        "control_runs": [],
        "repeat_runs": [],
        "seeds": [90_000, 90_001, 90_002],
        "target": TARGET,
        "control_points": POINTS,
        "attempts": [
            {
                "id": "att-1",
                "number": 1,
                "state": "lost",
                "worker": "worker-a",
                "started_at": "2026-11-20T10:00:02Z",
                "ended_at": "2026-11-20T10:00:12Z",
                "failure": {
                    "kind": "infrastructure",
                    "code": "worker_lost",
                    "message": "worker-a was not heard from for 30 s.",
                    "next_step": "Nothing to do: another attempt was queued.",
                },
                "refunded": True,
                "last_evaluation": {
                    "run": 0,
                    "epoch": 2.0,
                    "samples": 2304,
                    "seconds": 0.2,
                    "quality": 45.8,
                },
                "log_tail": "epoch 2 <b>done</b>",
            },
            {
                "id": "att-2",
                "number": 2,
                "state": "done",
                "worker": "worker-b",
                "started_at": "2026-11-20T10:00:13Z",
                "ended_at": "2026-11-20T10:00:21Z",
                "failure": None,
                "refunded": False,
                "last_evaluation": None,
                "log_tail": None,
            },
        ],
        "outcome": "verified",
        "reasons": [
            {
                "code": "reached_target",
                "weight": "supports",
                "message": "3 of 3 replays reached top1Accuracy 97.5",
                "numbers": {"reached": 3.0, "started": 3.0},
            }
        ],
        "report": {
            "runs": [make_replay_run(i) for i in range(3)],
            "system": {},
            "failure": None,
        },
        "backends": [],
        "utilisation": [],
        "created_at": "2026-11-20T10:00:01Z",
        "ended_at": "2026-11-20T10:00:21Z",
        "decision": None,
        "published": True,
    }
    return answer(VerificationView, values | changes)


def make_duel_run(run, seconds, epochs):
    reached = seconds is not None
    return {
        "run": run,
        "seed": 90_000 + run,
        "ending": "reached" if reached else "missed",
        "seconds": seconds,
        "epochs": epochs if reached else None,
    }


def make_duel(**changes):
    """A verification of kind duel: three pairs, in the last of which the holder missed."""
    times = [(0, 0.8, 1, 1.0), (3, 0.82, 2, 1.1), (4, 0.79, 5, None)]
    pairs = [
        {
            "number": number,
            "challenger": make_duel_run(a, seconds, 8.0),
            "holder": make_duel_run(b, other, 9.0),
            "ratio": None if other is None else seconds / other,
            "winner": "challenger",
        }
        for number, (a, seconds, b, other) in enumerate(times, start=1)
    ]
    sides = ["challenger", "holder"]
    duel = {
        "challenger": "sub-1",
        "holder": "sub-2",
        "order": sides + sides[::-1] + sides,
        "pairs": pairs,
        "time": {"pairs": 2, "ratio": 0.77186, "low": 0.681, "high": 0.875, "p_value": 0.03},
        "epochs": None,
        "pace": None,
        "test": "paired_t",
        "p_value": 0.03,
        "pairs_needed": None,
    }
    runs = [make_replay_run(i) for i in range(6)]
    return make_verification(
        **{
            "kind": "duel",
            "against_id": "sub-2",
            "duel": duel,
            "runs_planned": 6,
            "seeds": [90_000 + i for i in range(6)],
            "control_points": [],
            "outcome": "challenger_faster",
            "report": {"runs": runs, "system": {}, "failure": None},
        }
        | changes
    )


def make_queued_verification(**changes):
    queued = {
        "state": "queued",
        "waiting_for": "No worker is connected. Start one with `finishline worker`.",
        "nonce": None,
        "seeds": None,
        "attempts": [],
        "outcome": None,
        "reasons": [],
        "report": None,
        "ended_at": None,
        "published": False,
    }
    return make_verification(**(queued | changes))


def make_record(**changes):
    values = {
        "submission_id": "sub-1",
        "submitter": "alice",
        "model": "digits-cnn",
        "hardware": "EPYC 7B13",
        "status": "verified",
        "evidence": "measured",
        "date": "2026-11-20",
        "tta_seconds": 0.8532,
        "tries": 1,
        "single_run": False,
        "beaten": None,
        "margin_percent": None,
        "p_value": None,
    }
    return answer(RecordView, values | changes)


def make_verdict_line(**changes):
    values = {
        "id": "ver-1",
        "kind": "replay",
        "benchmark": "digits",
        "submission_id": "sub-1",
        "model": "digits-cnn",
        "hardware": "EPYC 7B13",
        "submitter": "alice",
        "outcome": "verified",
        "reason": {
            "code": "reached_target",
            "weight": "supports",
            "message": "3 of 3 replays reached top1Accuracy 97.5",
            "numbers": {"reached": 3.0, "started": 3.0},
        },
        "ended_at": "2026-11-20T10:00:21Z",
    }
    return answer(VerdictLine, values | changes)


def make_live_line(**changes):
    values = {
        "id": "ver-2",
        "kind": "replay",
        "benchmark": "digits",
        "model": "digits-cnn",
        "hardware": "EPYC 7B13",
        "submitter": "alice",
        "state": "running",
        "runs_planned": 4,
        "worker": "worker-a",
        "run": 1,
        "epoch": 3.0,
        "quality": 73.0,
        "created_at": "2026-11-20T10:00:01Z",
    }
    return answer(LiveLine, values | changes)


def make_worker(**changes):
    values = {
        "name": "worker-a",
        "hardware_class": "cpu-x86_64",
        "state": "idle",
        "alive": True,
        "first_seen_at": "2026-11-20T09:00:00Z",
        "last_seen_at": "2026-11-20T10:00:01Z",
        "under_way": None,
        "system": {
            "processor": "AMD EPYC 7B13",
            "processor_count": 2,
            "memory_gib": 23.4,
            "accelerator": None,
            "accelerator_count": 0,
        },
        "drift": None,
        "drifted_at": None,
        "held": None,
        "held_at": None,
        "held_by": None,
        "held_because": None,
        "confirmed_at": "2026-11-20T09:10:00Z",
        "probe": None,
        "canary": None,
        "box": None,
    }
    return answer(WorkerView, values | changes)


def make_shown(verification, race=NO_RACE, **changes):
    """A verification as a page shows it."""
    drawn = verification_picture(verification, race)
    parts = {"ghost": None, "place": None, "halves": False, "untimed": {}}
    return parts | {"verification": verification, "race": race, "picture": drawn} | changes


def make_submission_page(**changes):
    """The context of a submission's page, its first tab unless told otherwise."""
    nothing = (
        "place",
        "entry",
        "measured",
        "no_room",
        "unable",
        "embargo_until",
        "csrf",
        "picture",
    )
    values = {
        "submission": make_submission(),
        "benchmark": make_benchmark(),
        "tab": "result",
        "checks": [],
        "shown": None,
        "curves": [],
        "actions": [],
        "site": "https://example.org",
    }
    return dict.fromkeys(nothing) | values | changes


def make_verification_page(verification, **changes):
    """The context of a verification's page."""
    shown = {
        name: changes.pop(name)
        for name in ("race", "ghost", "place", "halves", "untimed")
        if name in changes
    }
    submission = changes.pop("submission", make_submission())
    return {
        "shown": make_shown(verification, **shown),
        "submission": submission,
        "benchmark_title": "Digits",
    } | changes


@pytest.fixture
def make():
    """The builders of every view, by name."""
    return BUILDERS


BUILDERS: dict[str, Callable[..., View]] = {
    "bare_submission": make_bare_submission,
    "benchmark": make_benchmark,
    "board": make_board,
    "duel": make_duel,
    "entry": make_entry,
    "inference_board": make_inference_board,
    "inference_entry": make_inference_entry,
    "inference_submission": make_inference_submission,
    "queued_verification": make_queued_verification,
    "replay_run": make_replay_run,
    "convergence": make_convergence,
    "live_line": make_live_line,
    "place": make_place,
    "rcp": make_rcp,
    "record": make_record,
    "result": make_result,
    "run": make_run,
    "shown": make_shown,
    "submission": make_submission,
    "submission_page": make_submission_page,
    "system": make_system,
    "verdict_line": make_verdict_line,
    "verification": make_verification,
    "verification_page": make_verification_page,
    "worker": make_worker,
}


def make_busy_board():
    """A board as full as they get: ties, every status, priced and unpriced, unranked."""
    entries = [
        make_entry(submission_id="s1"),
        make_entry(submission_id="s2", rank=2, tied=True, status="claimed", submitter="bob"),
        make_entry(submission_id="s3", rank=2, tied=True, status="verifying", model="MLP 256-256"),
        make_entry(
            submission_id="s4",
            rank=4,
            status="inconclusive",
            tta_seconds=5025.2,
            tta_display="1:23:46",
            tta_low_seconds=4980.0,
            tta_high_seconds=5100.0,
            cost_usd=41.873,
            model="ResNet-18 with a rather long descriptive name (v2, bfloat16, compiled)",
            system=make_system(name="8 x H200 SXM, cloud instance p5en.48xlarge"),
        ),
        make_entry(submission_id="s5", **(BARE_ENTRY | {"status": "rejected"})),
    ]
    for entry, factor in zip(entries[1:3], (1.06, 1.31), strict=True):
        for key in ("tta_seconds", "tta_low_seconds", "tta_high_seconds"):
            entry[key] *= factor
        entry["cost_usd"] = entry["cost_usd"] / factor
    return make_board(*entries)


@pytest.fixture
def busy_board():
    return make_busy_board()


@pytest.fixture
def bare_entry():
    return make_entry(**BARE_ENTRY)


@pytest.fixture
def target():
    return TARGET


@pytest.fixture
def control_points():
    return POINTS


@pytest.fixture
def curves():
    return [{**make_run(i), "curve": make_curve(shift=0.1 * i)} for i in range(3)]


@pytest.fixture
def hostile():
    return HOSTILE


def text_of(page):
    """What a page says, without its tags."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))


@pytest.fixture
def read():
    return text_of
