"""A benchmark of an organiser's own: small files that break no rule."""

import hashlib

DEFINITION = """
id = "mine"
title = "Mine"
version = "1"
task = "Classification"
about = "A drawn task."
divisions = ["open"]
clock = "mlperf"

[data_set]
name = "Points"
source = "task.py"

[target]
metric = "top1Accuracy"
value = 90
unit = "percent"
direction = "higher"
reach = "first_crossing"

[runs]
count = 5
dropped = 1

[trainings]
runs = 5
run_limit_seconds = 60
prepare_seconds = 20
halves = true
trust = "ranked"
lease_seconds = 8
max_attempts = 3

[trainings.files]
"""
MANIFEST = """
schema = 1
benchmark = "mine"
title = "Reference"
module = "train"
environment = "numpy-2.4"
license = "MIT"
"""
TRAIN = """
def prepare(task): ...


def train(prepared, data, seed):
    yield lambda inputs: None
"""
FILES = {
    "task.py": b"import numpy as np\n\n\ndef draw(nonce):\n    return np.zeros(1)\n",
    "points.csv": b"1,2\n",
    "reference/training.toml": MANIFEST.encode(),
    "reference/train.py": TRAIN.encode(),
}


def own_files(definition=DEFINITION, files=None, **changed):
    """The files of a benchmark with their hashes pinned; `changed` by name, `_py` for `.py`."""
    found = dict(FILES if files is None else files)
    found |= {name.replace("_py", ".py"): content for name, content in changed.items()}
    rows = [f'"{name}" = "{hashlib.sha256(text).hexdigest()}"' for name, text in found.items()]
    return {"benchmark.toml": (definition + "\n".join(rows) + "\n").encode(), **found}
