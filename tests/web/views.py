"""Views of runs and submissions, with what charts and words read of them."""

TARGET = {
    "metric": "top1Accuracy",
    "value": 97.5,
    "unit": "percent",
    "direction": "higher",
    "also": [],
}
QUALITIES = [14.8, 45.8, 73.0, 85.5, 90.8, 95.6, 97.4, 98.1]
HALF_WIDTHS = [20.0, 58.0, 33.0, 9.0, 8.0, 4.0, 2.0, 1.2, 1.0, 1.0]
POINTS = [
    {"index": j, "mean": mean, "lower": mean - half, "upper": mean + half}
    for j, (mean, half) in enumerate(
        zip([*QUALITIES, 98.5, 98.7], HALF_WIDTHS, strict=True), start=1
    )
]


def system(**changes):
    known = {"name": "a laptop", "hardware_class": "cpu-x86_64", "processor": "AMD EPYC 7B13"}
    counts = {"processor_count": 2, "memory_gib": 24.0, "accelerator": None}
    return known | counts | {"accelerator_count": 0, "price_usd_per_hour": 0.1} | changes


def entry(**changes):
    """A measured row of a board."""
    known = {"submission_id": "sub-1", "submitter": "alice", "display_name": None, "rank": 1}
    about = {"model": "digits-cnn", "framework": "torch", "division": "closed", "tied": False}
    evidence = {"evidence": "measured", "check": None, "trained_with": "reference"}
    times = {"tta_seconds": 0.8532, "tta_low_seconds": 0.79, "tta_high_seconds": 0.91}
    figures = {"cost_usd": 1.59e-5, "quality": 98.1, "energy_joules": None, "latency_ms": None}
    known |= {"submitted_at": "2026-11-20T10:00:00Z", "submitted_on": None}
    row = known | about | evidence | times | figures | {"status": "verified", "system": system()}
    return row | changes


def board(*entries):
    return {"benchmark": "digits", "kind": "train", "entries": list(entries), "price": None}


def curve(seconds=0.11):
    """An evaluation an epoch, these seconds apart."""
    return [
        {"epoch": float(j), "seconds": seconds * j, "samples": 1152 * j, "quality": q}
        for j, q in enumerate(QUALITIES, start=1)
    ]


def run_set(of, *seconds):
    """The runs of a row, each with its time and a curve."""
    known = {"best_quality": 98.1, "curve": curve()}
    runs = [{"file": f"run_{i}.log", "seconds": s} | known for i, s in enumerate(seconds)]
    return {"entry": of, "runs": runs}


def verification(**changes):
    """A replay of three runs that has not begun."""
    known = {"id": "ver-1", "kind": "replay", "state": "queued", "outcome": None, "report": None}
    plan = {"runs_planned": 3, "target": TARGET, "control_points": POINTS, "attempts": []}
    return known | plan | {"control_runs": [], "repeat_runs": [], "head_to_head": None} | changes


def reported(**changes):
    """The same when it has ended, with an evaluation each 0.11 s."""
    runs = [
        {"index": i, "seed": 90_000 + i, "status": "reached", "tta_seconds": 0.88}
        | {"evaluations": curve()}
        for i in range(3)
    ]
    return verification(state="done", outcome="verified", report={"runs": runs}, **changes)


def ghost(role, *, pace, count=8, **changes):
    """What a replay is raced against: an evaluation each `pace` seconds."""
    points = [
        {"index": j, "epoch": float(j), "seconds": pace * j, "quality": 90.0 + j, "runs": 3}
        for j in range(1, count + 1)
    ]
    known = {"role": role, "is_own": role == "claim", "submission_id": "sub-9", "points": points}
    about = {"model": "fast net", "submitter": "bob", "hardware": "8 × H100"}
    return known | about | {"hardware_class": "cpu-x86_64"} | changes


def race():
    """One run of three has made two evaluations, against the record and the claim."""
    evaluations = [
        {"epoch": 1.0, "seconds": 0.2, "quality": 50.0},
        {"epoch": 2.0, "seconds": 0.4, "quality": 93.0},
    ]
    runs = [{"index": 0, "status": None, "evaluations": evaluations}]
    ghosts = [ghost("record", pace=0.1, is_own=False), ghost("claim", pace=0.3)]
    return {"attempt": 1, "runs": runs, "ghosts": ghosts, "why_no_record": None}


def submission(**changes):
    """A measured submission, as its page shows it."""
    known = {"id": "a", "kind": "logs", "benchmark": "digits", "benchmark_version": "1.0"}
    by = {"submitter": "alice", "display_name": None, "model": "digits-cnn", "framework": "torch"}
    about = {"division": "closed", "trained_with": "reference", "withdrawal": None, "check": None}
    evidence = {"evidence": "measured", "status": "verified", "measured_seconds": 0.9}
    times = {"submitted_at": "2026-11-20T10:00:00Z", "submitted_on": None, "code_url": None}
    settings = {"batch_size": 64, "learning_rate": 0.02}
    result = {"tta_seconds": 0.8532, "raw_tta_seconds": 0.8532, "cost_usd": None, "reached": 3,
              "tta_low_seconds": 0.79, "tta_high_seconds": 0.91, "cv_percent": 6.3, "started": 3,
              "epochs_to_target": 7.667, "best_quality": 98.1, "rcp": None, "eligible": True,
              "evaluation_interval_seconds": 0.11}  # fmt: skip
    known |= {"benchmark_sha256": "b" * 64}
    rest = {"system": system(), "result": result, "hyperparameters": settings, "runs": [],
            "precision": None, "precision_measured": None, "measured_latency_ms": None}  # fmt: skip
    return known | by | about | evidence | times | rest | changes
