"""Digits for small networks, and logs as the rules read them."""

from dataclasses import dataclass

import pytest
import torch
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset

from finishline.rules.benchmarks.benchmark import load_benchmark
from finishline.rules.logs import parse_run_log
from tests.conftest import BENCHMARKS


@dataclass(frozen=True)
class Digits:
    """Training and test images (N, 64) with their labels: the benchmark's split."""

    train: TensorDataset
    test: TensorDataset


@pytest.fixture(autouse=True)
def _one_thread():
    """More of them wait for each other on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def digits():
    bunch = load_digits()
    x = torch.tensor(bunch.data, dtype=torch.float32) / 16
    y = torch.tensor(bunch.target)
    tests = torch.arange(len(x)) % 3 == 0
    return Digits(TensorDataset(x[~tests], y[~tests]), TensorDataset(x[tests], y[tests]))


def make_layers():
    """One convolution and two dense layers: beyond the target within a few epochs."""
    return torch.nn.Sequential(
        torch.nn.Unflatten(1, (1, 8, 8)),
        torch.nn.Conv2d(1, 32, 3, padding=1),  # (N, 32, 8, 8)
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),  # (N, 512)
        torch.nn.Linear(512, 128),
        torch.nn.ReLU(),
        torch.nn.Linear(128, 10),
    )


def read_log(path):
    benchmark = load_benchmark(BENCHMARKS / "digits.toml")
    return parse_run_log(path.read_bytes(), name=path.name, benchmark=benchmark)
