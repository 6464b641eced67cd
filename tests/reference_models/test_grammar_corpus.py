"""The corpus: its bytes, its entropy by two ways, and what it has to be learned."""

import hashlib
import itertools
import math
import random
import re
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from finishline.rules.benchmarks.benchmark import load_benchmark
from reference_models import DataSetError, grammar_corpus


@pytest.fixture(scope="module")
def text():
    return grammar_corpus.make_corpus(200_000)


@pytest.fixture(scope="module")
def benchmark(benchmarks_dir):
    return load_benchmark(benchmarks_dir / "grammar.toml")


def test_the_corpus_has_the_hash_that_the_benchmark_names(benchmark):
    text = grammar_corpus.make_corpus()
    assert len(text) == 1_000_000
    assert hashlib.sha256(text).hexdigest() == benchmark.data_set.sha256


def test_the_bytes_do_not_depend_on_hash_randomisation(text):
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
    assert told.stdout.strip() == hashlib.sha256(text).hexdigest()


def test_only_random_numbers_that_every_python_draws_alike_are_used(monkeypatch, text):
    """CPython promises the same `random()` for an int seed, and nothing of `choice` and others."""
    allowed = {"random", "seed"}
    for name in dir(random.Random):
        if not name.startswith("_") and name not in allowed:
            monkeypatch.setattr(random.Random, name, None)
    assert grammar_corpus.make_corpus(5_000) == text[:5_000]


def test_another_seed_writes_another_text_in_the_same_language(text):
    other = grammar_corpus.make_corpus(20_000, seed=1)
    assert other[:200] != text[:200]
    assert np.isfinite(grammar_corpus.nats_of_bytes(other)).all()


def test_sentences_agree_in_number_across_a_relative_clause(text):
    """A singular subject has verbs in s, a plural one has none, whatever stands between."""
    sentences = text.decode().split(" .\n")[:-1]
    checked = 0
    for sentence in sentences:
        words = sentence.split()
        if words[0] not in ("a", "these") or "that" not in words:
            continue
        verb = words[words.index("that") + 1]
        assert verb.endswith("s") == (words[0] == "a"), sentence
        object_end = words.index("that") + 3  # verb, article, then an adjective or the noun
        candidates = words[object_end : object_end + 3]
        assert any(word.endswith("s") == (words[0] == "a") for word in candidates), sentence
        checked += 1
    assert checked > 300


def test_words_follow_zipfs_law(text):
    nouns = grammar_corpus.make_lexicon().nouns
    counts = Counter(re.findall(r"[a-z]+", text.decode()))
    seen = [counts[noun] + counts[noun + "s"] for noun in nouns]
    assert seen[0] / seen[1] == pytest.approx(2, rel=0.15)
    assert seen[0] / seen[9] == pytest.approx(10, rel=0.25)


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


def test_entropy_is_what_a_long_text_comes_to(text):
    """Shannon-McMillan-Breiman: information per byte of a long text tends to the entropy rate."""
    nats = grammar_corpus.nats_of_bytes(text)
    sentences = np.array_split(nats, 100)
    error = np.std([part.mean() for part in sentences], ddof=1) / math.sqrt(len(sentences))
    assert error < 0.003
    assert nats.mean() == pytest.approx(grammar_corpus.entropy_nats_per_byte(), abs=4 * error)


def test_every_next_byte_has_a_probability_and_they_sum_to_one():
    begin = b"the ratomo f"
    alternatives = [begin + bytes([byte]) for byte in range(256)]
    total = 0.0
    for text in alternatives:
        try:
            total += math.exp(-grammar_corpus.nats_of_bytes(text)[-1])
        except ValueError:
            continue
    assert total == pytest.approx(1)


def test_what_the_grammar_cannot_write_is_refused_at_its_byte():
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
