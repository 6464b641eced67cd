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

from finishline.rules.benchmarks.benchmark import load_benchmark
from reference_models import (
    DataSetError,
    Measurement,
    grammar,
    grammar_corpus,
    text,
)
from tests.support.curves import curve
from tests.support.grammar_entropy import entropy_nats_per_byte, nats_of_bytes

BENCHMARK = load_benchmark(Path(__file__).parents[2] / "benchmarks" / "grammar.toml")


@pytest.fixture(scope="module")
def corpus():
    return grammar.read_corpus()


def start(*, seed=0, **hyperparameters):
    config = grammar.configure(hyperparameters)
    return grammar.train(config, seed=seed, device="cpu", data_dir=Path("unused"))


@pytest.mark.nightly
def test_two_processes_give_the_curve_of_one_at_the_same_global_batch(pair):
    first, second = (each["grammar"] for each in pair)
    assert first == second
    assert first == pytest.approx(curve(start(seed=7, epochs=1)), abs=1e-5)


@pytest.mark.nightly
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
    calibrated = BENCHMARK.reference_runs_at(32)[0]
    measured = (i for i in start(seed=calibrated.seed) if isinstance(i, Measurement))
    fresh = [next(measured).quality for _ in range(4)]
    assert fresh == pytest.approx(calibrated.quality[:4], abs=0.005)


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
    assert nats_of_bytes(sentence).sum() == pytest.approx(nats)


def test_every_next_byte_has_a_probability_and_they_sum_to_one():
    total = 0.0
    for byte in range(256):
        with suppress(ValueError):
            total += math.exp(-nats_of_bytes(b"the ratomo f" + bytes([byte]))[-1])
    assert total == pytest.approx(1)
    with pytest.raises(ValueError, match="byte 4: the grammar has no"):
        nats_of_bytes(b"the qualm")


def test_a_corpus_of_other_bytes_is_refused_by_its_hash(monkeypatch):
    monkeypatch.setattr(grammar_corpus, "make_corpus", lambda: b"another text")
    with pytest.raises(DataSetError, match=r"SHA-256.*f4ad787b6a7f"):
        grammar_corpus.read_corpus()


def test_the_floor_of_the_benchmark_is_just_below_what_the_test_windows_hold(benchmark):
    """The windows as the benchmark's file words it: 256 of 64 bytes, evenly over the last tenth."""
    nats = nats_of_bytes(grammar_corpus.make_corpus())
    tests = nats[900_000:]
    starts = [i * (len(tests) - 65) // 255 for i in range(256)]
    held = float(np.mean([tests[s + 1 : s + 65].mean() for s in starts]))
    rate = entropy_nats_per_byte()
    assert (round(held, 4), round(rate, 4)) == (0.5448, 0.5475)
    assert 0 < min(held, rate) - benchmark.target.floor < 0.01
