"""The worker's training process with trainers that need no torch, for tests only.

It is started instead of `worker.child`; a job's message cannot ask for it.
"""

import math
import os
import random
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import reference_models
from finishline.rules.run import Phase
from reference_models import DeviceError, HyperparameterError, Measurement, TrainingDivergedError
from worker import child

CURVE = [50.0, 80.0, 96.0, 98.0, 97.0, 99.0]


def prepare():
    yield Phase.WARMUP
    yield Phase.DATA
    yield Phase.TRAIN


def measure(curve):
    for epoch, quality in enumerate(curve, 1):
        yield Phase.EVAL
        yield Measurement(epoch=epoch, samples=epoch * 100, quality=quality)
        yield Phase.TRAIN


def climb(config, *, seed, device, data_dir):
    """Reaches 97.5 at its fourth evaluation; the fifth is below it again."""
    yield from prepare()
    yield from measure(CURVE)


def climb_by_seed(seed):
    """As `climb`, on a curve of each seed: reports of equal curves are refused."""
    yield from prepare()
    higher = random.Random(seed).random() / 10
    yield from measure([quality + higher for quality in CURVE])


def stroll(config, *, seed, device, data_dir):
    """Trains for about a second, so that there is time to hurt it."""
    for item in climb_by_seed(seed):
        time.sleep(0.08)
        yield item


def start_late(config, *, seed, device, data_dir):
    """Gets to its first phase late, as on a host that others keep busy."""
    time.sleep(2.5)
    yield from stroll(config, seed=seed, device=device, data_dir=data_dir)


def march(config, *, seed, device, data_dir):
    for item in climb_by_seed(seed):
        if isinstance(item, Measurement):
            time.sleep(2.0)
        yield item


def chatter(config, *, seed, device, data_dir):
    print("hello from the trainer")
    subprocess.run([sys.executable, "-c", "print('hello from a subprocess')"], check=True)
    yield from climb(config, seed=seed, device=device, data_dir=data_dir)


def hang(config, *, seed, device, data_dir):
    yield from prepare()
    yield from measure(CURVE[:1])
    time.sleep(600)


def hang_at_start(config, *, seed, device, data_dir):
    time.sleep(600)
    yield Phase.DATA


def killed(config, *, seed, device, data_dir):
    yield from prepare()
    yield from measure(CURVE[:1])
    os.kill(os.getpid(), signal.SIGKILL)


def crash(config, *, seed, device, data_dir):
    yield from prepare()
    raise KeyError("a bug in the trainer")


def diverge(config, *, seed, device, data_dir):
    """Its quality stops being a number; the even seeds train well."""
    if seed % 2 == 0:
        yield from climb(config, seed=seed, device=device, data_dir=data_dir)
        return
    yield from prepare()
    yield from measure([50.0, math.nan])


def diverge_by_loss(config, *, seed, device, data_dir):
    yield from prepare()
    raise TrainingDivergedError("the loss is nan at the end of epoch 1")


def out_of_memory(config, *, seed, device, data_dir):
    yield from prepare()
    raise MemoryError


def fast_clock(config, *, seed, device, data_dir):
    real, gained = time.perf_counter, 0.0
    time.perf_counter = lambda: real() + gained
    yield from prepare()
    for item in measure(CURVE):
        gained += 1.0
        yield item


def with_helper(config, *, seed, device, data_dir):
    helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print(f"pid={os.getpid()} helper={helper.pid}", file=sys.stderr, flush=True)
    yield from hang(config, seed=seed, device=device, data_dir=data_dir)


def show_environment(config, *, seed, device, data_dir):
    names = [name for name in os.environ if "FINISHLINE" in name]
    print(f"names={names} threads={os.environ['OMP_NUM_THREADS']}", file=sys.stderr, flush=True)
    yield from climb(config, seed=seed, device=device, data_dir=data_dir)


def fail_elsewhere(config, *, seed, device, data_dir):
    yield from prepare()
    if os.environ["RANK"] == "1":
        raise DeviceError("the second device is broken")
    time.sleep(600)


def killed_elsewhere(config, *, seed, device, data_dir):
    yield from prepare()
    if os.environ["RANK"] == "1":
        wait_for(data_dir / "measured")
        os.kill(os.getpid(), signal.SIGKILL)
    yield from measure(CURVE[:1])
    (data_dir / "measured").touch()
    time.sleep(600)


def hang_in_group(config, *, seed, device, data_dir):
    (data_dir / f"{os.environ['RANK']}.part").write_text(str(os.getpid()))
    (data_dir / f"{os.environ['RANK']}.part").rename(data_dir / f"{os.environ['RANK']}.pid")
    wait_for(data_dir / "1.pid")
    yield from hang(config, seed=seed, device=device, data_dir=data_dir)


def exchange_for_ever(config, *, seed, device, data_dir):
    import torch

    from reference_models.distributed import join

    yield from prepare()
    world = join(device)
    if world.rank == 1:
        (data_dir / "joined").touch()
    while True:
        world.total(torch.ones(1))
        time.sleep(0.01)


def wait_for(path):
    deadline = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)


def configure(hyperparameters):
    if hyperparameters.get("batch_size", 1) < 0:
        raise HyperparameterError(
            "got -1", field="hyperparameters.batch_size", expected="a whole number from 1"
        )
    return hyperparameters


for trainer in (
    climb, start_late, stroll, march, chatter, hang, hang_at_start, killed, crash, diverge,
    diverge_by_loss, out_of_memory, fast_clock, with_helper, show_environment, fail_elsewhere,
    killed_elsewhere, hang_in_group, exchange_for_ever,
):  # fmt: skip
    name = trainer.__name__
    sys.modules[f"fake_{name}"] = SimpleNamespace(
        DATA_SET_SHA256="fake-data-set", configure=configure, train=trainer
    )
    reference_models.REFERENCES[name] = f"fake_{name}"

if __name__ == "__main__":
    child.main()
