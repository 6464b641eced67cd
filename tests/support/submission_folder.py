"""A folder with the files of a submission, as `finishline run` leaves it."""

import json
from pathlib import Path

from finishline.rules.run import Ledger
from tests.support.run_logs import DIGITS, make_run_log

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SYSTEM = {"name": "laptop", "hardware_class": "cpu", "processor": "two cores"}
CLAIM = {"benchmark": "digits", "division": "closed", "model": "conv", "framework": "torch",
         "system": SYSTEM, "hyperparameters": {"batch_size": 64}}  # fmt: skip


def write_submission(folder, *, finals=(98.0,) * 3, **claim):
    """Runs of two evaluations, at 10 and at 20 seconds, the second of the given quality."""
    folder.mkdir(exist_ok=True)
    names = [f"run_{number}.log" for number in range(len(finals))]
    for seed, (name, final) in enumerate(zip(names, finals, strict=True)):
        how = {"status": "success" if final >= 97.5 else "aborted", "prepared": Ledger()}
        log = make_run_log(
            DIGITS, [50.0, final], lambda epoch: 10.0 * epoch, name=name, seed=seed,
            eval_seconds=0.0, started_at_ms=1_700_000_000_000, **how,
        )  # fmt: skip
        (folder / name).write_bytes(log)
    (folder / "submission.json").write_text(json.dumps(CLAIM | {"runs": names} | claim))
    return folder
