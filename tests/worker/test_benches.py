"""Benches of kernels, of any model, and of one that generates."""

import json
import math
import socket
import time
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch

from finishline.cli.main import main
from finishline.rules.errors import RuleError
from reference_models.grammar_generation import CachedByteGPT
from worker.bench.models import build_model, flops_of, make_step
from worker.bench.requests import answer, arrivals_of, generate, serve
from worker.commands.generate import figures_of
from worker.machine.clock import time_calls
from worker.machine.kernel_list import read_kernels
from worker.machine.kernels import make_call
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
        call, prepare = make_call(kernel, "cpu")
        result = prepare()
        work = count_work(lambda call=call, result=result: call(result), batch_size=1)
        # A fused backward pass of attention computes the scores again: five products, not four.
        again = 5 / 4 if (kernel.kind, kernel.direction) == ("attention", "backward") else 1
        # The hidden state before the first of 100 steps needs no gradient.
        assert work.step_flops == pytest.approx(again * kernel.flops, rel=0.01), kernel.words


def test_an_accelerator_is_waited_for_before_and_after_each_call_of_a_kernel(monkeypatch):
    told = []
    monkeypatch.setattr(torch.cuda, "synchronize", told.append)

    def prepare():
        told.append("prepare")
        return "call"

    taken = time_calls(told.append, seconds=0, device="cuda:1", prepare=prepare)
    assert len(taken) == 1
    assert told == ["prepare", "cuda:1", "call", "cuda:1"] * 2  # The first one warms up.


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("m = 64", "m = -3", "small.toml, field gemm[0].m: got -3"),
        ('"fp32"', '"tf32"', "a processor has no arithmetic in tf32"),
        ('"fp32"', '"fp8"', "a processor has no arithmetic in fp8"),
        ("schema = 1", "schema", "not TOML"),
        (SMALL, None, "Cannot read "),
    ],
)
def test_a_bad_list_is_one_sentence(small, capfd, old, new, said):
    if new is None:
        small.unlink()
    else:
        small.write_text(SMALL.replace(old, new))
    require_sentence(capfd, said, "kernels", small, "--device", "cpu")


def require_sentence(capfd, said, *arguments):
    """The bench refuses with one line, which says this."""
    assert main(["bench", *map(str, arguments)]) != 0
    found = capfd.readouterr().err
    assert said in found
    assert len(found.strip().splitlines()) == 1


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
        assert (seconds["p90"] is None) == (seconds["n"] < 64)
        assert (seconds["p99"] is None) == (seconds["n"] < 662)
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
        (["hf:unheard"], "expected torchvision:NAME, hf:roberta or FILE.py:FUNCTION"),
        (["gone.py:model"], "'gone.py:model' names no Python file"),
        (["FILE:broken"], "KeyError: 'no such layer'"),
        (["FILE:encoder", "--precision", "tf32", "--device", "cpu"], "no arithmetic in tf32"),
        (["FILE:encoder", "--precision", "fp8", "--device", "cpu"], "no arithmetic in fp8"),
        (["FILE:encoder", "--precision", "fp4"], "'fp4' is not one of"),
        (["FILE:encoder", "--batch-sizes", "1,0"], "--batch-sizes is '1,0'"),
        (["FILE:encoder", "--phase", "sleep"], "'sleep' is not one of"),
        (["FILE:encoder", "--usd-per-hour", "-1"], "greater than or equal to 0.000001"),
        (["FILE:encoder", "--device", "cuda:77"], "cuda:77"),
        (["FILE:encoder", "--set", "lr=1"], "--set does not go with a model"),
        (["digits", "--precision", "bf16"], "--precision does not go with a benchmark"),
        (["digits", "--set", "momentun=1"], "hyperparameters.momentun"),
        (["digits", "--set", "batch_size=7"], "a whole number from 16 to 256"),
        (["digits", "--set", "batch_size"], "expected a name and a number"),
        (["teacher"], "has no reference training"),
    ],
)
def test_bad_input_is_one_sentence(models, arguments, said, capfd):
    given = [each.replace("FILE", models) for each in arguments]
    require_sentence(capfd, said, "train", *given, "--seconds", "0.2")


@pytest.mark.parametrize("name", ["gone", "number"])
def test_a_name_that_is_no_function_is_refused(models, name):
    with pytest.raises(ValueError, match=f"has no function '{name}'"):
        build_model(f"{models}:{name}", tokens=128)


@pytest.mark.parametrize(
    ("spec", "package"), [("torchvision:resnet50", "torchvision"), ("hf:roberta", "transformers")]
)
def test_a_missing_library_is_named_with_its_install(spec, package, monkeypatch):
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


CACHED = {"kv_cache": True, "device": "cpu"}
UNCACHED = {"kv_cache": False, "device": "cpu"}
MODEL = """
from types import SimpleNamespace
import torch
from torch import nn


class Own(nn.Module):
    def forward(self, input_ids, past_key_values=None, use_cache=True):
        cache = (past_key_values or 0) + input_ids.shape[1]
        return SimpleNamespace(
            logits=torch.zeros(*input_ids.shape, 16), past_key_values=cache if use_cache else None
        )


def own():
    return Own(), lambda batch_size: (torch.zeros(batch_size, 4, dtype=torch.long),)


class Forgetful(Own):
    def forward(self, input_ids, past_key_values=None, use_cache=True):
        return SimpleNamespace(logits=torch.zeros(*input_ids.shape, 16), past_key_values=None)


def forgetful():
    return Forgetful(), lambda batch_size: ()


def plain():
    return nn.Linear(2, 2), lambda batch_size: (torch.zeros(batch_size, 2),)
"""


class Watched:
    def __init__(self, first=0.0, later=0.0):
        self.waits = first, later
        self.given = []
        self.caches = []
        self.ended = []

    def __call__(self, input_ids, past_key_values=None, use_cache=True):
        time.sleep(self.waits[0] if len(self.given) == 0 else self.waits[1])
        self.given.append((tuple(input_ids.shape), past_key_values, use_cache))
        self.caches.append(object() if use_cache else None)
        self.ended.append(time.perf_counter())
        logits = torch.zeros(*input_ids.shape, 8)
        return SimpleNamespace(logits=logits, past_key_values=self.caches[-1])


@pytest.mark.parametrize(
    ("asked", "shapes"),
    [(CACHED, [(2, 5), (2, 1), (2, 1), (2, 1)]), (UNCACHED, [(2, 5), (2, 6), (2, 7), (2, 8)])],
)
def test_without_the_cache_each_token_gets_the_whole_text(asked, shapes):
    model = Watched()
    generate(model, torch.zeros(2, 5, dtype=torch.long), 4, asked)
    assert [shape for shape, _, _ in model.given] == shapes
    assert [past for _, past, _ in model.given] == [None, *model.caches[:3]]
    assert {use_cache for _, _, use_cache in model.given} == {asked["kv_cache"]}


def test_first_and_last_token_are_stamped_when_the_model_has_made_them():
    prompt, ratios = torch.zeros(1, 5, dtype=torch.long), []
    for _ in range(5):
        model = Watched(first=0.05, later=0.02)
        started = time.perf_counter()
        first, last = generate(model, prompt, 4, CACHED)
        own = model.ended[0] - started, (model.ended[-1] - model.ended[0]) / 3
        ratios.append(((first - started) / own[0], (last - first) / 3 / own[1]))
    # The quietest of five: a busy machine may pause this process between two stamps.
    assert min(ratio[0] for ratio in ratios) == pytest.approx(1, abs=0.02)
    assert min(abs(ratio[1] - 1) for ratio in ratios) < 0.02


def test_grammars_cached_model_has_the_logits_of_the_whole_text():
    torch.manual_seed(1)
    model = CachedByteGPT().double().eval()
    text = torch.randint(256, (3, 12))
    whole = model.model(text)
    assert torch.allclose(model(text, use_cache=False).logits, whole)
    begun = model(text[:, :7])
    some = model(text[:, 7:9], past_key_values=begun.past_key_values)
    last = [some.logits]
    for place in range(9, 12):
        some = model(text[:, place : place + 1], past_key_values=some.past_key_values)
        last.append(some.logits)
    assert torch.allclose(torch.cat([begun.logits, *last], dim=1), whole)


def test_a_request_waits_for_those_before_it_and_shares_a_batch_with_those_beside_it():
    calls = []

    def run(first, count):
        calls.append((first, count))
        time.sleep(0.01)
        return time.perf_counter(), time.perf_counter()

    done = serve(run, [0.0, 0.0, 0.0, 0.2], batch_size=2)
    assert calls == [(0, 2), (2, 1), (3, 1)]
    assert [arrival for arrival, _, _ in done] == [0.0, 0.0, 0.0, 0.2]
    assert done[2][2] >= 0.02
    assert done[3][2] >= 0.21
    calls.clear()
    alone = serve(run, [0.0, 0.0], batch_size=1, in_turn=True)
    assert calls == [(0, 1), (1, 1)]
    assert alone[1][0] >= 0.01


def test_arrivals_at_a_server_are_a_poisson_process():
    arrivals = arrivals_of({"scenario": "server", "requests": 4000, "rate": 50.0})
    gaps = [later - earlier for earlier, later in pairwise(arrivals)]
    mean = sum(gaps) / len(gaps)
    assert mean == pytest.approx(1 / 50, rel=0.05)
    # An exponential gap exceeds its mean with a chance of 1 / e.
    assert sum(gap > mean for gap in gaps) / len(gaps) == pytest.approx(0.3679, abs=0.03)
    assert arrivals_of({"scenario": "offline", "requests": 2}) == [0.0, 0.0]


def test_figures_are_those_reckoned_by_hand():
    found = figures_of([(0.0, 0.5, 1.5), (1.0, 2.5, 4.0)], 3)
    assert found["ttft_seconds"]["mean"] == pytest.approx(1.0)
    assert found["tpot_seconds"]["mean"] == pytest.approx((0.5 + 0.75) / 2)
    assert found["latency_seconds"]["mean"] == pytest.approx((1.5 + 3.0) / 2)
    assert (found["tokens_per_second"], found["requests_per_second"]) == (6 / 4, 2 / 4)


@pytest.mark.parametrize(("last", "met"), [(4.0, True), (4.01, False)])
def test_p99_is_judged_of_few_requests(last, met, monkeypatch, capfd):
    requests = [(0.0, 0.5, 1.5), (1.0, 2.5, last)]
    monkeypatch.setattr("worker.commands.measuring.ask", lambda *_, **__: {"requests": requests})
    given = "grammar --scenario server --rate 2 --p99-seconds 3 --requests 2 --device cpu --json"
    assert main(["bench", "generate", *given.split()]) == 0
    told = json.loads(capfd.readouterr().out)["generation"]
    assert told["p99_met"] is met
    assert told["results"][0]["latency_seconds"]["p99"] is None


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(MODEL)
    return str(path)


@pytest.mark.nightly
def test_a_model_of_ones_own_answers_as_one_document(own, capfd):
    given = ["generate", f"{own}:own", "--scenario", "offline", "--requests", "3"]
    more = ["--batch-sizes", "2", "--output-tokens", "4", "--device", "cpu", "--json"]
    assert main(["bench", *given, *more]) == 0
    document = json.loads(capfd.readouterr().out)
    found = document["generation"]
    assert (found["scenario"], found["kv_cache"]) == ("offline", True)
    (result,) = found["results"]
    assert result["batch_size"] == 2
    assert result["latency_seconds"]["n"] == 3
    assert result["tokens_per_second"] == pytest.approx(4 * result["requests_per_second"])
    assert found["p99_met"] is None
    assert "generation.p99_met" in document["absent"]


@pytest.mark.parametrize(
    ("function", "said"),
    [("forgetful", "answers without past_key_values"), ("plain", "cannot be called as transf")],
)
def test_a_model_that_does_not_generate_is_refused(own, function, said):
    orders = {"model": f"{own}:{function}", "precision": "fp32", "kv_cache": True}
    with pytest.raises(RuleError, match=said):
        answer(orders | {"device": "cpu", "batch_size": 1, "prompt_tokens": 4, "output_tokens": 1})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("grammar --scenario many", "'many' is not one of"),
        ("grammar --scenario server", "field rate: got None"),
        ("grammar --scenario server --rate 0", "greater than or equal to 0.000001"),
        ("grammar --scenario offline --rate 2", "field rate: got 2.0 for --scenario offline"),
        ("grammar --scenario offline --output-tokens 0", "greater than or equal to 1"),
        ("grammar --scenario offline --prompt-tokens 60", "do not fit the context"),
        ("grammar --scenario offline --p99-seconds 0", "greater than or equal to 0.000001"),
        ("grammar --scenario offline --precision fp8", "no arithmetic in fp8"),
        ("grammar --scenario single-stream --batch-sizes 2", "one request at a time"),
        ("torchvision:resnet50 --scenario offline", "generates nothing"),
        ("hf:me/gpt2 --scenario offline", "to be downloaded"),
        ("digits --scenario offline", "digits generates nothing"),
    ],
)
def test_wrong_use_is_one_sentence(arguments, said, capfd):
    require_sentence(capfd, said, "generate", *arguments.split(), "--device", "cpu")
