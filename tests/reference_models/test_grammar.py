"""Properties of the grammar reference and of its corpus: short trainings on one thread."""

import hashlib
import itertools
import math
import random
import statistics
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch

from finishline.rules.benchmarks.benchmark import load_benchmark
from reference_models import (
    DataSetError,
    Measurement,
    grammar,
    grammar_corpus,
    text,
)
from reference_models.arithmetic import Arithmetic
from reference_models.distributed import World

BENCHMARK = load_benchmark(Path(__file__).parents[2] / "benchmarks" / "grammar.toml")


ALONE = World(rank=0, size=1, device="cpu")


@pytest.fixture(scope="module")
def corpus():
    return grammar.read_corpus()


def start(*, seed=0, **hyperparameters):
    config = grammar.configure(hyperparameters)
    return grammar.train(config, seed=seed, device="cpu", data_dir=Path("unused"))


def curve(training):
    return [item.quality for item in training if isinstance(item, Measurement)]


@pytest.mark.nightly
def test_two_processes_give_the_curve_of_one_at_the_same_global_batch(pair):
    first, second = (each["grammar"] for each in pair)
    assert first == second
    assert first == pytest.approx(curve(start(seed=7, epochs=1)), abs=1e-5)


def test_untrained_model_guesses_among_all_bytes(corpus):
    torch.manual_seed(0)
    _, windows = grammar.split(corpus)
    assert grammar.nats_per_byte(grammar.ByteGPT(), windows) == pytest.approx(
        math.log(256), abs=0.1
    )


def test_training_on_shuffled_bytes_does_not_get_below_their_frequencies(monkeypatch, corpus):
    """A text without order has no more to learn than how often each byte comes, 2.6 nats."""
    shuffled = bytearray(corpus)
    random.Random(0).shuffle(shuffled)
    counts = [shuffled.count(byte) for byte in set(shuffled)]
    order_0 = -sum(n / len(shuffled) * math.log(n / len(shuffled)) for n in counts)
    monkeypatch.setattr(grammar, "read_corpus", lambda: bytes(shuffled))
    best = min(curve(start(seed=3, epochs=3)))
    assert order_0 - 0.05 < best < order_0 + 0.2
    assert not BENCHMARK.target.is_reached(best)


def test_a_place_sees_no_byte_after_it():
    torch.manual_seed(0)
    model = grammar.ByteGPT()
    windows = torch.randint(256, (2, 64))
    changed = windows.clone()
    changed[:, 40:] = 0
    before, after = model(windows), model(changed)
    torch.testing.assert_close(before[:, :40], after[:, :40])
    assert not torch.allclose(before[:, 40:], after[:, 40:])


def test_attention_is_that_of_the_textbook():
    """softmax(q k / sqrt(d)) v for each head, places after one's own left out."""
    torch.manual_seed(0)
    block = grammar.Block()
    x = torch.randn(1, 5, 64)
    query, key, value = block.query_key_value(block.norm_1(x))[0].split(64, dim=1)  # (5, 64)
    heads = []
    for head in range(4):
        part = slice(16 * head, 16 * head + 16)
        scores = query[:, part] @ key[:, part].T / 4
        scores = scores.masked_fill(torch.ones(5, 5).triu(1).bool(), -math.inf)
        heads.append(scores.softmax(dim=1) @ value[:, part])
    attended = x[0] + block.projection(torch.cat(heads, dim=1))
    wide = torch.nn.functional.gelu(block.widen(block.norm_2(attended)))
    torch.testing.assert_close(block(x)[0], attended + block.narrow(wide))


def test_training_and_test_bytes_do_not_overlap(corpus):
    train_text, windows = grammar.split(corpus)
    assert bytes(train_text.tolist()) == corpus[:900_000]
    assert windows.shape == (256, 65)
    assert bytes(windows[0].tolist()) == corpus[900_000:900_065]
    assert bytes(windows[-1].tolist()) == corpus[-65:]


def test_drawn_windows_are_stretches_of_the_text_up_to_its_end():
    letters = torch.arange(70)
    drawn = grammar.draw_windows(letters, 2_000, torch.Generator().manual_seed(0))
    assert {tuple(window.diff().unique().tolist()) for window in drawn} == {(1,)}
    assert set(drawn[:, 0].tolist()) == {0, 1, 2, 3, 4, 5}  # 70 - 65 + 1 places to begin


def test_learning_rate_rises_then_falls_along_a_cosine_to_a_tenth():
    config = grammar.configure({"batch_size": 128})
    rates = [grammar.learning_rate_at(step, 101, config) for step in range(101)]
    assert max(rates) == pytest.approx(0.006, rel=0.01)  # 0.003 at 32, twice that at four times it
    assert rates.index(max(rates)) in (10, 11)
    assert rates[11:] == sorted(rates[11:], reverse=True)
    assert rates[0] < 0.001
    assert rates[55] == pytest.approx(0.006 * 0.55, rel=0.03)  # half-way between 1 and 0.1
    assert rates[-1] == pytest.approx(0.0006, rel=0.01)


def test_only_matrices_are_decayed():
    model = grammar.ByteGPT()
    decayed, others = grammar.make_optimiser(model, grammar.configure({})).param_groups
    assert (decayed["weight_decay"], others["weight_decay"]) == (0.1, 0.0)
    assert {p.dim() for p in decayed["params"]} == {2}
    assert {p.dim() for p in others["params"]} == {1}
    assert sum(p.numel() for group in (decayed, others) for p in group["params"]) == 120_576


def test_gradients_are_clipped_before_the_step(corpus):
    torch.manual_seed(0)
    _, windows = grammar.split(corpus)
    model = grammar.ByteGPT()
    optimiser = grammar.make_optimiser(model, grammar.configure({}))
    plain = Arithmetic("fp32", "cpu")
    grammar.train_step(model, optimiser, windows[:8], plain, rate=0.001, clip=0.01, world=ALONE)
    norm = math.sqrt(sum(float(p.grad.square().sum()) for p in model.parameters()))
    assert norm == pytest.approx(0.01, rel=1e-3)


def test_benchmark_file_counts_the_test_items_of_the_reference():
    assert BENCHMARK.data_set.test_items == grammar.TEST_WINDOWS * grammar.CONTEXT_BYTES


def test_calibrated_runs_beat_the_target_on_every_seed():
    runs = BENCHMARK.reference_runs_at(32)
    assert len({run.seed for run in runs}) >= 20
    assert {len(run.quality) for run in runs} == {40}
    finals = [run.quality[-1] for run in runs]
    assert max(finals) < 0.80
    assert min(finals) > BENCHMARK.target.floor
    assert statistics.stdev(finals) < 0.02


def test_reference_trains_as_it_was_calibrated():
    """The first epochs of a full run: warm-up ends with the fourth."""
    training = start(seed=123)
    measured = (item for item in training if isinstance(item, Measurement))
    fresh = [next(measured).quality for _ in range(4)]
    assert fresh == sorted(fresh, reverse=True)
    assert fresh[0] < math.log(256)  # a guess among all bytes
    assert fresh[-1] > BENCHMARK.target.floor
    for epoch, quality in enumerate(fresh[:3]):
        column = [run.quality[epoch] for run in BENCHMARK.reference_runs_at(32)]
        spread = statistics.stdev(column)
        assert min(column) - 2 * spread <= quality <= max(column) + 2 * spread


OWN = grammar.read_corpus()[:200_000]


@pytest.mark.parametrize(
    ("content", "beside", "refused"),
    [
        (OWN, None, None),
        (OWN, f"{hashlib.sha256(OWN).hexdigest()}  corpus.txt\n", None),
        (OWN, "0" * 64 + "  corpus.txt\n", "SHA-256"),
        (OWN, "", "SHA-256"),
        (None, None, r"text/corpus\.txt.*FINISHLINE_DATA_DIR"),
        (b"short", None, r"5 bytes; expected at least 100,000"),
    ],
    ids=["own", "with its hash", "another hash", "no hash", "missing", "cut off"],
)
def test_a_file_of_ones_own_is_trained_on(tmp_path, content, beside, refused):
    (tmp_path / "text").mkdir()
    if content is not None:
        (tmp_path / "text" / "corpus.txt").write_bytes(content)
    if beside is not None:
        (tmp_path / "text" / "corpus.txt.sha256").write_text(beside)
    config = text.configure({"epochs": 1, "batch_size": 256})
    training = text.train(config, seed=0, device="cpu", data_dir=tmp_path)
    if refused is not None:
        with pytest.raises(DataSetError, match=refused):
            curve(training)
        return
    [quality] = curve(training)
    assert quality < math.log(256)


@pytest.fixture(scope="module")
def corpus_text():
    return grammar_corpus.make_corpus(200_000)


@pytest.fixture(scope="module")
def benchmark(benchmarks_dir):
    return load_benchmark(benchmarks_dir / "grammar.toml")


def test_the_corpus_has_the_hash_that_the_benchmark_names(benchmark):
    text = grammar_corpus.make_corpus()
    assert len(text) == 1_000_000
    assert hashlib.sha256(text).hexdigest() == benchmark.data_set.sha256


def test_the_bytes_do_not_depend_on_hash_randomisation(corpus_text):
    code = (
        "import hashlib; from reference_models.grammar_corpus import make_corpus;"
        "print(hashlib.sha256(make_corpus(200_000)).hexdigest())"
    )
    told = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONHASHSEED": "77", "PYTHONPATH": sys.path[0], "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == hashlib.sha256(corpus_text).hexdigest()


def test_only_random_numbers_that_every_python_draws_alike_are_used(monkeypatch, corpus_text):
    """CPython promises the same `random()` for an int seed, and nothing of `choice` and others."""
    allowed = {"random", "seed"}
    for name in dir(random.Random):
        if not name.startswith("_") and name not in allowed:
            monkeypatch.setattr(random.Random, name, None)
    assert grammar_corpus.make_corpus(5_000) == corpus_text[:5_000]


def test_no_token_of_a_state_begins_another_one():
    for state, choice in grammar_corpus.grammar().items():
        tokens = sorted(choice.tokens)
        assert len(set(tokens)) == len(tokens), state
        for first, second in itertools.pairwise(tokens):
            assert not second.startswith(first), state


def test_information_of_a_text_is_that_of_its_choices():
    """By hand: the first sentence's tokens, each with its weight over all weights of its state."""
    states, state = grammar_corpus.grammar(), grammar_corpus.START
    sentence = grammar_corpus.make_corpus(2_000).split(b".\n")[0] + b".\n"
    nats, rest = 0.0, sentence
    while rest:
        choice = states[state]
        token = next(token for token in choice.tokens if rest.startswith(token))
        place = choice.tokens.index(token)
        nats -= math.log(choice.weights[place] / sum(choice.weights))
        rest, state = rest[len(token) :], choice.following[place]
    assert grammar_corpus.nats_of_bytes(sentence).sum() == pytest.approx(nats)


def test_every_next_byte_has_a_probability_and_they_sum_to_one():
    total = 0.0
    for byte in range(256):
        with suppress(ValueError):
            total += math.exp(-grammar_corpus.nats_of_bytes(b"the ratomo f" + bytes([byte]))[-1])
    assert total == pytest.approx(1)
    with pytest.raises(ValueError, match="byte 4: the grammar has no"):
        grammar_corpus.nats_of_bytes(b"the qualm")


def test_a_corpus_of_other_bytes_is_refused_by_its_hash(monkeypatch):
    monkeypatch.setattr(grammar_corpus, "make_corpus", lambda: b"another text")
    with pytest.raises(DataSetError, match=r"SHA-256.*f4ad787b6a7f"):
        grammar_corpus.read_corpus()


def test_the_floor_of_the_benchmark_is_just_below_what_the_test_windows_hold(benchmark):
    """The windows as the benchmark's file words it: 256 of 64 bytes, evenly over the last tenth."""
    nats = grammar_corpus.nats_of_bytes(grammar_corpus.make_corpus())
    tests = nats[900_000:]
    starts = [i * (len(tests) - 65) // 255 for i in range(256)]
    held = float(np.mean([tests[s + 1 : s + 65].mean() for s in starts]))
    rate = grammar_corpus.entropy_nats_per_byte()
    assert (round(held, 4), round(rate, 4)) == (0.5448, 0.5475)
    assert 0 < min(held, rate) - benchmark.target.floor < 0.01
