"""What a job's training is made of: `python -m worker.audit`, in a process of its own, untimed.

It reads {"reference", "hyperparameters", "device", "data_dir"} and answers {"precision", "work"}.
A reference with a synthetic step is watched for one step of it, not compiled even where its
training is: the work is the same, and what the compiler makes of it is told as not looked into.
Any other is watched while it warms up, which it does on made-up tensors, and its training then
never begins; how many steps that are is not known, so no work is counted.
"""

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from finishline.rules.scoring.measurements import PrecisionAudit
from finishline.rules.scoring.run import Phase
from reference_models import Reference, load_reference, synthetic_of
from worker.parent_death import die_with_parent
from worker.precision import PrecisionWatch, audit_step, conclude
from worker.utilisation import count_work

SEED = 0
COMPILED_CODE = "compiled code"


def audit(told: dict[str, Any]) -> dict[str, Any]:
    """The audit of a reference with its settings, as it is answered."""
    reference = load_reference(told["reference"])
    config = reference.configure(told["hyperparameters"])
    device = told["device"]
    compiled = bool(getattr(config, "compile", False))
    plain = (
        replace(config, compile=0) if compiled else config
    )  # Compiled code hides its operations.
    synthetic = synthetic_of(reference, plain, device)
    if synthetic is None:
        found = audit_warm_up(reference, config, device=device, data_dir=Path(told["data_dir"]))
        return {"precision": asdict(found), "work": None}
    synthetic.train_step()  # The first step also plans kernels, which is no part of the work.
    precision = audit_step(synthetic.train_step, device, scope="one training step")
    if compiled:
        precision = replace(precision, opaque=sorted({*precision.opaque, COMPILED_CODE}))
    work = count_work(synthetic.train_step, batch_size=synthetic.batch_size)
    return {"precision": asdict(precision), "work": None if work is None else asdict(work)}


def audit_warm_up(
    reference: Reference, config: Any, *, device: str, data_dir: Path
) -> PrecisionAudit:
    """Watch a training up to where it first touches its data, and leave it there."""
    training = reference.train(config, seed=SEED, device=device, data_dir=data_dir)
    watch = PrecisionWatch(device)
    compiled = False
    with watch.autocast, watch:
        for item in training:
            compiled = compiled or item is Phase.COMPILE
            if item not in (Phase.INIT, Phase.COMPILE, Phase.WARMUP):
                break
    if compiled:
        watch.opaque.add(COMPILED_CODE)
    return conclude(watch, device, scope="the warm-up")


def main() -> None:
    """Audit and tell; what a reference prints goes to standard error."""
    told = json.loads(sys.stdin.buffer.read())
    die_with_parent(told["parent_pid"])
    answers, sys.stdout = sys.stdout, sys.stderr
    torch.manual_seed(SEED)
    print(json.dumps(audit(told)), file=answers, flush=True)


if __name__ == "__main__":
    main()
