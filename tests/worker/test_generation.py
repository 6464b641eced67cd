"""Generation: moments of tokens, arrivals, the cache, and the command."""

import json
import time
from dataclasses import asdict
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch

from finishline.cli.main import main
from finishline.rules.errors import RuleError
from reference_models.grammar_generation import CachedByteGPT
from worker.bench.generation import GenerationBench, figures_of, run_generation
from worker.bench.requests import answer, arrivals_of, generate, one_by_one, serve

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
    """A model of known waits that notes how it was called, and when each call ended."""

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
    alone = one_by_one(run, 2)
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


def test_figures_are_those_reckoned_by_hand_and_p99_is_judged_of_few_requests():
    asked = GenerationBench(
        "grammar", "server", "cpu", rate=2.0, p99_seconds=3.0, output_tokens=3, requests=2
    )
    requests = [(0.0, 0.5, 1.5), (1.0, 2.5, 4.0)]
    found = figures_of(requests, asked)
    assert found["ttft_seconds"]["mean"] == pytest.approx(1.0)
    assert found["tpot_seconds"]["mean"] == pytest.approx((0.5 + 0.75) / 2)
    assert found["latency_seconds"]["mean"] == pytest.approx((1.5 + 3.0) / 2)
    assert (found["tokens_per_second"], found["requests_per_second"]) == (6 / 4, 2 / 4)
    for last, met in ((4.0, True), (4.01, False)):
        moved = [requests[0], (1.0, 2.5, last)]
        told = run_generation(asked, lambda *_, moved=moved: {"requests": moved}, print)[
            "generation"
        ]
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
    asked = GenerationBench(f"{own}:{function}", "offline", "cpu")
    with pytest.raises(RuleError, match=said):
        answer(asdict(asked) | {"batch_size": 1})


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
    assert main(["bench", "generate", *arguments.split(), "--device", "cpu"]) != 0
    found = capfd.readouterr().err
    assert said in found
    assert len(found.strip().splitlines()) <= 2  # The second has the field.
