"""Kernels timed as the command times them."""

import json
import math

import pytest
import torch

from finishline.cli.main import main
from worker.bench.kernel_list import read_kernels
from worker.bench.kernels import Calls, make_calls, time_calls
from worker.machine.peak import FP32
from worker.machine.precision import count_work

SMALL = """schema = 1
precisions = ["fp32"]
passes = ["forward", "backward"]
[[gemm]]
m = 64
n = 32
k = 16
[[attention]]
batch = 1
heads = 2
query = 8
key = 8
head_dim = 4
causal = true
[[convolution]]
n = 1
c = 2
h = 8
w = 8
k = 4
r = 3
s = 3
padding = 1
stride = 2
[[lstm]]
hidden = 16
batch = 2
steps = 100
[[gru]]
hidden = 16
batch = 2
steps = 100
[[copy]]
bytes = 65536
[[all_reduce]]
bytes = 1024
processes = 2
[[launch]]
"""


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


@pytest.mark.nightly
def test_kernels_are_measured_as_one_document(small, capfd):
    given = ["kernels", str(small), "--seconds", "0.1", "--device", "cpu"]
    assert main(["bench", *given, "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    rows = found["kernels"]
    assert [(row["kind"], row["pass"], row["precision"], row["flops"]) for row in rows] == [
        ("gemm", "forward", "fp32", 65_536),
        ("gemm", "backward", "fp32", 131_072),
        ("convolution", "forward", "fp32", 2_304),
        ("convolution", "backward", "fp32", 4_608),
        ("lstm", "forward", "fp32", 819_200),
        ("lstm", "backward", "fp32", 1_638_400),
        ("gru", "forward", "fp32", 614_400),
        ("gru", "backward", "fp32", 1_228_800),
        ("attention", "forward", "fp32", 2_048),
        ("attention", "backward", "fp32", 4_096),
        ("copy", "forward", "fp32", None),
        ("all_reduce", "forward", "fp32", None),
        ("launch", "forward", "fp32", None),
    ]
    assert rows[0]["shape"] == {"m": 64, "n": 32, "k": 16}
    for row in rows:
        seconds = row["seconds"]
        assert set(seconds) == {"n", "mean", "p50", "p90", "p99"}
        assert seconds["p50"] > 0
        assert (seconds["p90"] is None) == (seconds["n"] < 64)
        if row["flops"] is not None:
            assert row["flops_per_second"] == pytest.approx(row["flops"] / seconds["p50"])
    copy, exchange, launch = rows[10:]
    assert copy["bytes_per_second"] == pytest.approx(2 * 65_536 / copy["seconds"]["p50"])
    assert exchange["bytes_per_second"] == pytest.approx(1024 / exchange["seconds"]["p50"])
    assert launch["seconds"]["p50"] < exchange["seconds"]["p50"]
    assert {"flops", "flops_per_second", "bytes_per_second"} <= set(found["absent"])
    assert math.isfinite(sum(row["seconds"]["mean"] for row in rows))


def test_each_kernel_does_the_flops_it_is_counted_by():
    kernels = read_kernels(SMALL.encode(), file="small.toml")
    for kernel in kernels:
        if kernel.flops is None:
            continue
        calls = make_calls(kernel, FP32, "cpu")
        result = calls.prepare()
        work = count_work(lambda calls=calls, result=result: calls.call(result), batch_size=1)
        # A fused backward pass of attention computes the scores again: five products, not four.
        again = 5 / 4 if (kernel.kind, kernel.direction) == ("attention", "backward") else 1
        assert work is not None
        # The hidden state before the first of 100 steps needs no gradient.
        assert work.step_flops == pytest.approx(again * kernel.flops, rel=0.01), kernel.words


def test_an_accelerator_is_waited_for_before_and_after_each_call_of_a_kernel(monkeypatch):
    told = []
    monkeypatch.setattr(torch.cuda, "synchronize", told.append)
    calls = Calls(lambda _: told.append("call"), lambda: told.append("prepare"))
    taken = time_calls(calls, seconds=0, device="cuda:1")
    assert len(taken) == 1
    assert told == ["prepare", "cuda:1", "call", "cuda:1"] * 2  # The first one warms up.


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("m = 64", "m = -3", "small.toml, field gemm[0].m: got -3"),
        ('"fp32"', '"tf32"', "a processor has no arithmetic in tf32"),
        ('"fp32"', '"fp8"', "a processor has no arithmetic in fp8"),
        ("schema = 1", "schema", "not TOML"),
    ],
)
def test_a_bad_list_is_one_sentence(small, capfd, old, new, said):
    small.write_text(SMALL.replace(old, new))
    assert main(["bench", "kernels", str(small), "--device", "cpu"]) != 0
    found = capfd.readouterr().err
    assert said in found
    assert len(found.strip().splitlines()) == 1


def test_missing_list_is_one_sentence(capfd):
    assert main(["bench", "kernels", "gone.toml"]) != 0
    assert "Cannot read gone.toml" in capfd.readouterr().err
