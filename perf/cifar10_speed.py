"""Images per second of the CIFAR-10 reference beside airbench94_muon, on one GPU and one data set.

`python perf/cifar10_speed.py [--airbench PATH/airbench94_muon.py] [--epochs N] [--plain]`. Both
train on the same 50,000 made-up images of CIFAR's shape, on the same device, in turns in one
process; the clock runs between synchronised edges and leaves out warm-up, compiling and evaluation.
airbench compiles its model, so the reference does as well, unless --plain asks for neither its
compiled loss nor its compiled optimiser.
"""

import argparse
import importlib.util
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

TRAINING_IMAGES, TEST_IMAGES = 50_000, 10_000
AIRBENCH_EPOCHS = 8  # as its file states


def made_up(items: int, *, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Random images (N, 3, 32, 32) and labels (N,) as bytes."""
    draws = np.random.default_rng(seed)
    images = draws.integers(0, 256, (items, 3, 32, 32), dtype=np.uint8)
    return images, draws.integers(0, 10, items, dtype=np.uint8)


def reference_epochs(parts: tuple[Any, Any], *, epochs: int, compiled: bool) -> list[float]:
    """Seconds of each training epoch of this project's reference."""
    from reference_models import cifar10
    from rules.run import Phase

    cifar10.read_cifar10 = lambda data_dir: parts
    config = cifar10.configure({"epochs": epochs, "compile": int(compiled)})
    seconds, entered, phase = [], 0.0, None
    for item in cifar10.train(config, seed=0, device="cuda", data_dir=Path()):
        at = time.perf_counter()
        if not isinstance(item, Phase):
            continue
        if phase is Phase.TRAIN:
            seconds.append(at - entered)
        entered, phase = at, item
    return seconds


def airbench_epochs(path: Path, parts: tuple[Any, Any]) -> list[float]:
    """Seconds of each training epoch of airbench's own file, by its own timer."""
    import torch

    with tempfile.TemporaryDirectory() as folder, inside(folder):
        write_airbench_data(Path("cifar10"), parts)
        airbench = load(path)
        totals: list[float] = []

        def note(variables: dict[str, Any], is_final_entry: bool) -> None:
            if not is_final_entry:
                totals.append(variables["time_seconds"])

        airbench.print_training_details = note
        model = airbench.CifarNet().cuda().to(memory_format=torch.channels_last)
        model.compile(mode="max-autotune")
        airbench.main("warmup", model)
        totals.clear()
        airbench.main(0, model)
    return [after - before for before, after in zip([0.0, *totals], totals, strict=False)]


def write_airbench_data(folder: Path, parts: tuple[Any, Any]) -> None:
    """The two files airbench looks for before it would download anything."""
    import torch

    folder.mkdir()
    for name, (images, labels) in zip(("train.pt", "test.pt"), parts, strict=True):
        content = {
            "images": torch.from_numpy(images).permute(0, 2, 3, 1).contiguous(),
            "labels": torch.from_numpy(labels).long(),
            "classes": [str(label) for label in range(10)],
        }
        torch.save(content, folder / name)


def load(path: Path) -> ModuleType:
    """airbench's file as a module; of torchvision it needs one line, given here where it is absent.

    It reads its own source by the program's name, which is therefore its path meanwhile.
    """
    import torch

    def normalise(mean: torch.Tensor, std: torch.Tensor) -> Any:
        def apply(x: torch.Tensor) -> torch.Tensor:
            shape = (1, 3, 1, 1)
            return (x - mean.to(x).view(shape)) / std.to(x).view(shape)

        return apply

    if importlib.util.find_spec("torchvision") is None:
        transforms = SimpleNamespace(Normalize=normalise)
        sys.modules["torchvision"] = SimpleNamespace(transforms=transforms)  # type: ignore[assignment]
        sys.modules["torchvision.transforms"] = transforms  # type: ignore[assignment]
    spec = importlib.util.spec_from_file_location("airbench", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    program, sys.argv[0] = sys.argv[0], str(path)
    try:
        spec.loader.exec_module(module)
    finally:
        sys.argv[0] = program
    return module


@contextmanager
def inside(folder: str) -> Iterator[None]:
    """Work in a folder for a while."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def report(name: str, seconds: list[float]) -> None:
    """One line: the median epoch after the first, which also prepares the images."""
    median = statistics.median(seconds[1:] or seconds)
    print(
        f"{name:<26} {TRAINING_IMAGES / median:>12,.0f} images/s {median:>8.4f} s/epoch"
        f"   first {seconds[0]:.4f} s, {len(seconds)} epochs"
    )


def main() -> None:
    """Measure what can be measured here and say what cannot."""
    parser = argparse.ArgumentParser(prog="python perf/cifar10_speed.py")
    parser.add_argument("--airbench", type=Path, help="a copy of airbench94_muon.py")
    parser.add_argument("--epochs", type=int, default=AIRBENCH_EPOCHS)
    parser.add_argument("--plain", action="store_true", help="compile nothing of the reference")
    chosen = parser.parse_args()
    try:
        import torch
    except ImportError:
        sys.exit("torch is not installed; `make install` sets it up")
    if not torch.cuda.is_available():
        print("No NVIDIA GPU can be used from here, so the CIFAR-10 reference is not timed.")
        return
    parts = (made_up(TRAINING_IMAGES, seed=0), made_up(TEST_IMAGES, seed=1))
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, CUDA {torch.version.cuda}")
    name = "reference, plain" if chosen.plain else "reference, compiled"
    report(name, reference_epochs(parts, epochs=chosen.epochs, compiled=not chosen.plain))
    if chosen.airbench is None:
        print("Name airbench's file with --airbench to have it timed beside the reference.")
    else:
        report("airbench94_muon, compiled", airbench_epochs(chosen.airbench.resolve(), parts))


if __name__ == "__main__":
    main()
