"""Throughput and work of any model, of small models in a file."""

import json
import socket

import pytest

from finishline.cli.main import main
from worker.bench.model_speed import build_model, flops_of, make_step

MODELS = """
import torch
from torch import nn


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(32, 64, batch_first=True)
        self.gru = nn.GRU(64, 64, batch_first=True)
        self.head = nn.Linear(64, 8)

    def forward(self, x):
        return self.head(self.gru(self.lstm(x)[0])[0])


def recurrent():
    return Recurrent(), lambda batch_size: (torch.randn(batch_size, 10, 32),)


def encoder():
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    return layer, lambda batch_size: (torch.randn(batch_size, 16, 64),)


def convolution():
    layer = nn.Conv2d(3, 8, 3, padding=1)
    return layer, lambda batch_size: (torch.randn(batch_size, 3, 10, 10),)


def broken():
    raise KeyError("no such layer")


number = 3
"""
# By hand: 4 gates of an LSTM and 3 of a GRU, each of an input and a hidden matrix, 10 steps.
RECURRENT = 10 * (4 * 64 * 32 + 4 * 64 * 64 + 2 * 3 * 64 * 64 + 64 * 8)
# Four projections and two linear layers of 16 tokens; scores and their product with the values.
ENCODER = 16 * (4 * 64 * 64 + 2 * 64 * 128) + 2 * 16 * 16 * 64
CONVOLUTION = 100 * 8 * 3 * 9


@pytest.fixture
def models(tmp_path):
    """A file of small models."""
    path = tmp_path / "models.py"
    path.write_text(MODELS)
    return str(path)


@pytest.mark.parametrize("phase", ["inference", "training"])
@pytest.mark.parametrize(
    ("function", "macs", "backward"),
    [("recurrent", RECURRENT, None), ("encoder", ENCODER, None), ("convolution", CONVOLUTION, 1)],
)
def test_multiply_adds_are_those_counted_by_hand(models, function, macs, backward, phase):
    module, inputs = build_model(f"{models}:{function}", tokens=128)
    told = {"device": "cpu", "precision": "fp32", "batch_size": 2, "phase": phase}
    counted = flops_of(make_step(module, inputs, told), 2)
    if phase == "inference":
        assert counted == 2 * macs
    elif backward is not None:  # The gradient of the weights alone: pictures need none.
        assert counted == 2 * macs * (1 + backward)
    else:
        assert 2 * 2 * macs < counted <= 3.5 * 2 * macs


@pytest.mark.nightly
def test_a_model_is_measured_as_one_document(models, tmp_path, capfd):
    out, table = tmp_path / "new" / "result.json", tmp_path / "rows.csv"
    arguments = ["--batch-sizes", "4", "--phase", "training", "--seconds", "0.2"]
    arguments += ["--usd-per-hour", "2"]
    files = ["--out", str(out), "--csv", str(table)]
    assert main(["bench", "train", f"{models}:recurrent", *arguments, *files, "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found == json.loads(out.read_text())
    assert (found["macs_per_sample"], found["flops_per_sample"]) == (RECURRENT, 2 * RECURRENT)
    assert found["parameters"] == 4 * 64 * (32 + 64 + 2) + 3 * 64 * (64 + 64 + 2) + 65 * 8
    assert found["peak_source"] == "measured"
    assert "multiply-add" in found["flops_convention"]
    rows = found["results"]
    assert [(row["phase"], row["batch_size"]) for row in rows] == [("training", 4)]
    for row in rows:
        rate, seconds = row["samples_per_second"], row["batch_seconds"]
        assert rate == pytest.approx(row["batch_size"] / seconds["mean"])
        assert row["samples_per_dollar"] == pytest.approx(1800 * rate)
        peak = found["peak_flops_per_second"]
        assert row["mfu"] == pytest.approx(row["flops_per_sample"] * rate / peak)
        assert (seconds["p90"] is None, seconds["p99"] is None) == (
            seconds["n"] < 64, seconds["n"] < 662
        )  # fmt: skip
        assert row["peak_memory_bytes"] > 0
        for name in ("samples_per_joule", "mfu"):
            assert (row[name] is None) == (name in found["absent"])
    lines = table.read_text().splitlines()
    assert len(lines) == 2
    assert {"phase", "samples_per_second", "batch_seconds_p50", "mfu"} <= set(lines[0].split(","))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["hf:FacebookAI/roberta-base"], "to be downloaded"),
        (["hf:unheard"], "expected hf:roberta"),
        (["gone.py:model"], "no Python file 'gone.py'"),
        (["FILE:broken"], "KeyError: 'no such layer'"),
        (["FILE:encoder", "--precision", "tf32", "--device", "cpu"], "no arithmetic in tf32"),
        (["FILE:encoder", "--precision", "fp8", "--device", "cpu"], "no arithmetic in fp8"),
        (["FILE:encoder", "--precision", "fp4"], "'fp4' is not one of"),
        (["FILE:encoder", "--batch-sizes", "1,0"], "--batch-sizes is '1,0'"),
        (["FILE:encoder", "--phase", "sleep"], "'sleep' is not one of"),
        (["FILE:encoder", "--usd-per-hour", "-1"], "greater than or equal to 0.000001"),
        (["FILE:encoder", "--device", "cuda:77"], "cuda:77"),
        (["FILE:encoder", "--set", "lr=1"], "--set does not go with a model"),
    ],
)
def test_bad_input_is_one_sentence(models, arguments, said, capfd):
    given = [each.replace("FILE", models) if "FILE" in each else each for each in arguments]
    assert main(["bench", "train", *given, "--seconds", "0.2"]) != 0
    found = capfd.readouterr()
    assert said in found.err
    assert len(found.err.strip().splitlines()) == 1


@pytest.mark.parametrize("name", ["gone", "number"])
def test_a_name_that_is_no_function_is_refused(models, name):
    with pytest.raises(ValueError, match=f"has no function '{name}'"):
        build_model(f"{models}:{name}", tokens=128)


def test_options_of_a_model_are_refused_with_a_benchmark(capfd):
    assert main(["bench", "train", "digits", "--precision", "bf16"]) != 0
    assert "--precision does not go with a benchmark" in capfd.readouterr().err


@pytest.mark.parametrize("spec", ["torchvision:resnet50", "hf:roberta"])
def test_a_missing_library_is_named_with_its_install(spec, monkeypatch):
    package = {"torchvision:resnet50": "torchvision", "hf:roberta": "transformers"}[spec]
    for name in (package, f"{package}.models"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    with pytest.raises(ValueError, match=f"{package} is not installed here .*pip install"):
        build_model(spec, tokens=128)


@pytest.mark.parametrize(
    ("spec", "package", "macs"),
    [
        # As published for ResNet-50 at 224 px, and by hand for 12 layers of RoBERTa at 128 tokens.
        ("torchvision:resnet50", "torchvision", 4_089_184_256),
        ("hf:roberta", "transformers", 11_173_625_856),
    ],
)
def test_known_models_have_their_known_multiply_adds(spec, package, macs, monkeypatch):
    pytest.importorskip(package, reason=f"{package} is not in this environment")

    def refuse(*_):
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    module, inputs = build_model(spec, tokens=128)
    told = {"device": "cpu", "precision": "fp32", "batch_size": 1, "phase": "inference"}
    assert flops_of(make_step(module, inputs, told), 1) / 2 == pytest.approx(macs, rel=0.01)
