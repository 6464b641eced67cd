"""Properties that references share: processes, exchange, Muon, and configurations refused."""

import os
import subprocess
import sys
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch import nn

from finishline.rules.benchmarks.benchmark import load_benchmark, parse_benchmark
from finishline.rules.benchmarks.definition_tables import ReferenceRun
from finishline.rules.run import Phase
from finishline.rules.verification.calibration import reference_run_toml
from reference_models import (
    REFERENCES,
    DataSetError,
    DeviceError,
    UnknownReferenceError,
    cifar10,
    distributed,
    fashion,
    grammar,
    imagenet,
    imagenet_files,
    load_reference,
    squad,
    synthetic_of,
)
from reference_models.calibrate import epochs_to, summary
from reference_models.distributed import Exchange, World, check_device, exposed_seconds, join
from reference_models.muon import Muon, nesterov
from reference_models.training import cosine_rate, linear_rate
from tests.reference_models.two_processes import curves


@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_every_reference_has_what_a_worker_asks_for(name):
    module = load_reference(name)
    assert callable(module.configure)
    assert callable(module.train)
    assert module.DATA_SET_SHA256 is None or len(module.DATA_SET_SHA256) == 64


@pytest.mark.parametrize("name", ["digits", "grammar"])
def test_the_device_has_finished_its_work_at_every_edge_of_the_clock(name, monkeypatch):
    module, told = load_reference(name), []

    def step(*_, **__):
        told.append("step")
        return torch.zeros(())

    monkeypatch.setattr(module, "train_step", step)
    monkeypatch.setattr(module, "synchronise", lambda device: told.append("wait"))
    config = module.configure({"epochs": 2})
    for item in module.train(config, seed=0, device="cpu", data_dir=Path()):
        told += [item] if isinstance(item, Phase) else []
    prepared = [Phase.WARMUP, "step", "wait", Phase.DATA, "wait"]
    epoch = [Phase.TRAIN, "step", "wait", Phase.EVAL]
    assert [each for each, _ in groupby(told)] == [*prepared, *epoch, *epoch]


@pytest.mark.parametrize("name", ["mnist", "os", "reference_models.digits", ""])
def test_only_references_of_the_table_are_loaded(name):
    with pytest.raises(UnknownReferenceError, match="digits"):
        load_reference(name)


def test_summary_counts_the_seeds_that_reached():
    assert epochs_to([90.0, 97.5, 97.0], target=97.5) == 2
    assert epochs_to([90.0, 97.4], target=97.5) is None
    assert epochs_to([0.9, 0.8, 0.7], target=0.8, direction="lower") == 2
    curves = [[90.0, 98.0], [98.0, 98.0], [90.0, 91.0]]
    assert summary(curves, target=97.5) == (
        "2 of 3 seeds reached 97.5 after 1.50 +- 0.71 evaluations"
    )


def test_calibrated_run_reads_back_from_a_benchmark_file():
    text = reference_run_toml(ReferenceRun(batch_size=32, seed=7, quality=(12.345678, 97.5)))
    benchmark = parse_benchmark((HEAD + text).encode(), file="small.toml")
    [run] = benchmark.reference_runs
    assert (run.batch_size, run.seed, run.quality) == (32, 7, (12.3457, 97.5))


@pytest.mark.parametrize(
    ("name", "chosen", "items"),
    [
        ("cifar10", {"batch_size": 8, "width": 4, "views": 1, "epochs": 1}, 6),
        ("fashion", {"batch_size": 32}, 6),
        ("grammar", {"batch_size": 8}, 256),
        ("squad", {"batch_size": 2, "width": 8, "dropout": 0.0}, 6),
        ("text", {"batch_size": 8}, 256),
    ],
)
def test_synthetic_step_trains_on_made_up_data_as_often_as_asked(name, chosen, items, monkeypatch):
    monkeypatch.setattr(cifar10, "TRAIN_IMAGES", 16)  # Two steps are then a whole run.
    monkeypatch.setattr(squad, "MADE_UP_WORDS", 100)
    for module in (cifar10, fashion, squad):
        monkeypatch.setattr(module, "EVALUATION_BATCH", 6)
    torch.manual_seed(0)
    reference = load_reference(name)
    made = synthetic_of(reference, reference.configure(chosen), "cpu")
    losses = [float(made.train_step()) for _ in range(3)]
    assert losses[0] > losses[1] > losses[2] > 0
    assert made.batch_size == chosen["batch_size"]
    assert made.steps_per_epoch >= 1
    assert made.inference_items == len(made.infer()) == items


HEAD = """
id = "small"
title = "Small"
version = "1"
task = "a task"
about = "about it"
divisions = ["open"]
clock = "mlperf"
[data_set]
name = "a set"
source = "somewhere"
train_items = 2
test_items = 1
[target]
metric = "top1Accuracy"
value = 97.5
unit = "percent"
direction = "higher"
reach = "first_crossing"
[runs]
count = 3
dropped = 1
"""
ROOT = Path(__file__).parents[2]


@pytest.mark.nightly
def test_two_processes_have_the_loss_curve_of_one_at_the_same_global_batch(pair):
    single, _ = curves(torch.float32, epochs=1)
    losses, qualities = curves(torch.float64, epochs=2)
    first, second = pair
    assert first == second
    assert len(losses) == 2 * 18  # 1,198 images in batches of 64
    assert losses[-1] < 0.8 * losses[0]
    assert first["double"][0] == pytest.approx(losses, abs=1e-5, rel=0)
    assert first["double"][1] == qualities
    # In single precision rounding grows from step to step; for an epoch it stays below the same.
    assert first["single"][0] == pytest.approx(single, abs=1e-5, rel=0)


def test_a_world_of_one_changes_nothing_and_sends_nothing():
    world = join("cpu")
    assert world == World(rank=0, size=1, device="cpu")
    batch = torch.arange(5)
    assert torch.equal(world.shard(batch), batch)
    layer = nn.Linear(2, 1)
    layer(torch.ones(1, 2)).sum().backward()
    before = layer.weight.grad.clone()
    world.average_gradients(layer.parameters())
    world.agree_on(layer)
    assert torch.equal(layer.weight.grad, before)
    assert world.mean(torch.tensor(3.0)).item() == world.total(torch.tensor(3.0)).item() == 3.0


def test_equal_parts_by_rank_make_up_the_batch():
    parts = [World(rank=rank, size=3, device="cpu").shard(torch.arange(6)) for rank in range(3)]
    assert [part.tolist() for part in parts] == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(DeviceError, match="3 processes cannot share a batch of 64 equally"):
        World(rank=0, size=3, device="cpu").part_of_batch(64)


def test_gpu_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    check_device("cuda:1")
    check_device("cuda")
    with pytest.raises(DeviceError, match="no GPU number 2; expected a number from 0 to 1"):
        check_device("cuda:2")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(DeviceError, match="no GPU can be used from here"):
        join("cuda")


def test_processes_on_gpus_connect_to_their_own_one_before_the_clock_starts(monkeypatch):
    told = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", told.append)
    monkeypatch.setattr(dist, "is_torchelastic_launched", lambda: True)
    monkeypatch.setattr(dist, "get_node_local_rank", lambda fallback_rank: 1)
    monkeypatch.setattr(dist, "init_process_group", lambda *a, **named: told.append((a, named)))
    monkeypatch.setattr(dist, "get_rank", lambda: 1)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    assert join("cuda") == World(rank=1, size=2, device="cuda:1")
    assert told == ["cuda:1", (("nccl",), {"device_id": torch.device("cuda:1")})]


# One process of a group of one: torch's statistics are those of any number.
EXCHANGE = """
import os, sys, torch
import torch.distributed as dist
from reference_models.distributed import SAMPLED, Exchange
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=0, world_size=1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(300, 300))
exchange = Exchange()
exchange.follow(model)
before = exchange.seconds()
for _ in range(12):
    model(torch.ones(8, 300)).sum().backward()
assert exchange.how() == SAMPLED
assert before == 0.0, before
assert 0.0 < exchange.seconds() < 60.0, exchange.seconds()
print("done", flush=True)
os._exit(0)
"""


def test_every_exchange_is_timed_by_the_clock_on_a_processor(monkeypatch):
    stamps = iter([10.0, 10.5, 20.0, 22.0])
    monkeypatch.setattr(distributed.time, "perf_counter", lambda: next(stamps))
    exchange = Exchange()
    assert exchange.seconds() is None
    for _ in range(2):
        with exchange.timed(torch.zeros(1)):
            pass
    assert exchange.seconds() == pytest.approx(2.5)


def test_events_of_an_accelerator_are_read_once_and_after_the_exchange(monkeypatch):
    told = []
    event = SimpleNamespace(
        record=lambda: told.append("record"),
        elapsed_time=lambda end: told.append("read") or 250.0,  # milliseconds
    )
    monkeypatch.setattr(torch.cuda, "Event", lambda *, enable_timing: event)
    exchange = Exchange()
    for _ in range(2):
        with exchange.timed(SimpleNamespace(is_cuda=True)):
            told.append("exchange")
    assert told == ["record", "exchange", "record"] * 2
    assert exchange.seconds() == exchange.seconds() == pytest.approx(0.5)
    assert told[6:] == ["read", "read"]


def test_what_is_hidden_behind_computing_does_not_count():
    statistics = {
        "avg_backward_comm_time": 140_000_000,
        "avg_backward_compute_comm_overlap_time": 90_000_000,
        "iteration": 30,
    }
    assert exposed_seconds(statistics) == pytest.approx(30 * 0.05)
    assert exposed_seconds({}) == 0.0


@pytest.mark.filterwarnings("ignore")
def test_statistics_of_data_parallel_training_are_those_torch_keeps(tmp_path):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [sys.executable, "-c", EXCHANGE, str(tmp_path / "store")],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ended.stdout.strip() == "done", ended.stderr


def test_momentum_is_that_of_torchs_nesterov_sgd():
    torch.manual_seed(0)
    start = torch.randn(4, 6)
    theirs = nn.Parameter(start.clone())
    optimiser = torch.optim.SGD([theirs], lr=0.1, momentum=0.6, nesterov=True)
    ours, velocity = start.clone(), torch.zeros_like(start)
    for _ in range(5):
        gradient = torch.randn(4, 6)
        theirs.grad = gradient.clone()
        optimiser.step()
        ours -= 0.1 * nesterov(gradient, velocity, 0.6)
        torch.testing.assert_close(ours, theirs.detach())


def test_step_rescales_a_filter_and_moves_it_along_the_orthogonal_direction():
    torch.manual_seed(3)
    filters = [nn.Parameter(torch.randn(8, 4, 3, 3)), nn.Parameter(torch.randn(6, 8, 3, 3))]
    before = [item.detach().clone() for item in filters]
    for item in filters:
        item.grad = torch.randn_like(item)
    Muon(filters, momentum=0.6, compiled=False).step(torch.tensor(0.25))
    for item, old in zip(filters, before, strict=True):
        rows = len(old)
        left, _, right = torch.linalg.svd(item.grad.view(1, rows, -1), full_matrices=False)
        rescaled = old * rows**0.5 / old.norm()
        moved = (rescaled - item.detach()).view(1, rows, -1) / 0.25
        values = torch.diagonal(left.mT @ moved @ right.mT, dim1=1, dim2=2)
        torch.testing.assert_close(
            left @ torch.diag_embed(values) @ right, moved, atol=1e-4, rtol=0
        )
        assert 0.3 < values.min() < values.max() < 1.4


BENCHMARK = load_benchmark(ROOT / "benchmarks" / "imagenet.toml")


def test_benchmark_file_counts_the_pictures_of_imagenet():
    assert BENCHMARK.data_set.train_items == imagenet_files.TRAINING_PICTURES
    assert BENCHMARK.data_set.test_items == imagenet_files.VALIDATION_PICTURES


@pytest.mark.parametrize("part", ["datasets", "models"])
def test_torchvision_that_is_absent_is_said_with_what_installs_it(tmp_path, monkeypatch, part):
    monkeypatch.setitem(sys.modules, f"torchvision.{part}", None)
    config = imagenet.configure({"batch_size": 2})
    training = imagenet.train(config, seed=0, device="cpu", data_dir=tmp_path)
    asks = {
        "datasets": [lambda: imagenet_files.open_pictures(tmp_path)],
        "models": [lambda: next(training), lambda: imagenet.synthetic(config, "cpu")],
    }
    for ask in asks[part]:
        with pytest.raises(DataSetError, match=r"pip install 'finishline-server\[vision\]'"):
            ask()


def test_rates_rise_to_their_peak_and_fall_to_their_end():
    triangle = [linear_rate(step, 8, peak_share=0.25, peak=2.0) for step in range(8)]
    assert triangle == pytest.approx([2 / 3, 4 / 3, 2, 10 / 6, 8 / 6, 1, 4 / 6, 2 / 6])
    assert [linear_rate(step, 4, peak_share=0.0, peak=1.0) for step in range(4)] == [
        1,
        3 / 4,
        0.5,
        0.25,
    ]
    for end in (0.0, 0.1):
        rates = [
            cosine_rate(step, 100, peak_share=0.1, peak=0.006, final_share=end)
            for step in range(100)
        ]
        assert max(rates) == rates[10] == 0.006
        assert rates[:11] == sorted(rates[:11])
        assert rates[10:] == sorted(rates[10:], reverse=True)
        assert rates[55] == pytest.approx(0.006 * (1 + end) / 2)  # Half-way down.
        assert rates[-1] == pytest.approx(0.006 * end, abs=1e-5)


def test_rates_at_other_batch_sizes_are_scaled():
    assert imagenet.configure({"batch_size": 512}).learning_rate == pytest.approx(2 * 0.5)
    assert grammar.configure({"batch_size": 128}).learning_rate == pytest.approx(2 * 0.003)


def small_model():
    return nn.Sequential(
        nn.Conv2d(3, 8, 8, stride=8), nn.BatchNorm2d(8), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, imagenet.CLASSES),
    )  # fmt: skip


def test_synthetic_step_trains_a_model_on_made_up_pictures(monkeypatch):
    monkeypatch.setattr(imagenet, "build_model", small_model)
    config = imagenet.configure(
        {"batch_size": 4, "smallest_pixels": 32, "largest_pixels": 64, "evaluation_pixels": 96}
    )
    torch.manual_seed(0)
    made = imagenet.synthetic(config, "cpu")
    losses = [float(made.train_step()) for _ in range(2)]
    assert losses[0] > losses[1] > 0
    assert (made.batch_size, made.steps_per_epoch) == (4, 1_281_167 // 4)
    assert made.infer().shape == (4, imagenet.CLASSES)


def test_pictures_grow_in_steps_of_32_and_stay_large_at_the_end():
    config = imagenet.configure({"epochs": 10, "smallest_pixels": 128, "largest_pixels": 224})
    sizes = [config.pixels_at(epoch) for epoch in range(1, 11)]
    assert sizes == sorted(sizes)
    assert sizes[0] == 128
    assert sizes[7:] == [224, 224, 224]
    assert {size % 32 for size in sizes} == {0}


def test_a_label_counts_if_it_is_among_the_five_largest():
    outputs = torch.tensor([[0.0, 1, 2, 3, 4, 5], [5.0, 4, 3, 2, 1, 0]])
    assert imagenet.top5_count(outputs, torch.tensor([0, 4])).item() == 1
    assert imagenet.top5_count(outputs, torch.tensor([1, 0])).item() == 2


def test_warm_up_leaves_the_weights_and_statistics_as_they_were():
    torch.manual_seed(0)
    model = small_model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    config = imagenet.configure(
        {"batch_size": 4, "smallest_pixels": 32, "largest_pixels": 64, "evaluation_pixels": 96}
    )
    imagenet.warm_up(model, model, config, World(rank=0, size=1, device="cpu"))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
