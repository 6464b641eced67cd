"""Small archives of published results: entries of DAWNBench and sets of MLPerf."""

import json

START = 1_700_000_000_000
ENTRY = {"version": "v1.0", "author": "A", "authorEmail": "a@example.org", "framework": "F",
         "model": "M", "hardware": "H", "timestamp": "2018-04-20"}  # fmt: skip
CURVE = "epoch\thours\ttop1Accuracy\n1\t0.5\t94.0\n"


def retinanet_log(seed, organisation="ACME", *, minutes=0):
    """A run that reaches the target of v5.1."""
    stop = START + minutes * 60_000
    lines = [
        ("submission_benchmark", START, "retinanet", {}),
        ("submission_division", START, "closed", {}),
        ("submission_org", START, organisation, {}),
        ("seed", START, seed, {}),
        ("global_batch_size", START, 256, {}),
        ("run_start", START, None, {}),
        ("eval_accuracy", stop, 0.35, {"epoch_num": 4}),
        ("run_stop", stop, None, {"status": "success"}),
    ]
    return "".join(
        f":::MLLOG {json.dumps({'time_ms': ms, 'key': key, 'value': value, 'metadata': more})}\n"
        for key, ms, value, more in lines
    )


def write_package(folder, organisation="ACME", *, system=None):
    """One set of five runs of an organisation, 10 to 14 minutes."""
    results = folder / organisation / "results" / "big" / "retinanet"
    results.mkdir(parents=True)
    for number in range(5):
        log = retinanet_log(number, organisation, minutes=10 + number)
        (results / f"result_{number}.txt").write_text(log)
    systems = folder / organisation / "systems"
    systems.mkdir()
    (systems / "big.json").write_text(json.dumps({"division": "closed"} | (system or {})))
    return folder


def write_entries(folder):
    """Two entries of DAWNBench, of which one has no TSV."""
    train = folder / "CIFAR10" / "train"
    train.mkdir(parents=True)
    for name in ("good", "half"):
        (train / f"{name}.json").write_text(json.dumps(ENTRY, indent=3))
    (train / "good.tsv").write_text(CURVE)
    return folder
