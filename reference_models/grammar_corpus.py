"""A corpus with a known entropy: text that a small probabilistic grammar writes.

The text is a walk through states. A state offers tokens, each a run of letters that ends in a space
or a line end, with a whole-number weight and the state it leads to. No token of a state begins
another one, so a reader who knows the tables always knows the state: the probability of each byte
given all before it follows from the tables alone, and with it the least loss that any model can
expect. Every choice is made by `random.Random(int).random()` and whole numbers, so that the bytes
are the same on every version of Python and on every machine.

To learn: the spelling of words with frequencies falling as 1 / rank, the order of the parts of a
sentence, the article that fits the number of its noun, and the verb that agrees with its subject
across a relative clause.
"""

import hashlib
import itertools
import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from reference_models import DataSetError

CORPUS_BYTES = 1_000_000
CORPUS_SEED = 20_261
LEXICON_SEED = 7
CORPUS_SHA256 = "f4ad787b6a7f03fc448a0f8a98d32bf2b4962585567d33cd66e139521de2f894"
SHARE_TOTAL = 1_000_000  # Weights of the alternatives of a state add up to about this number.

NOUNS, VERBS, ADJECTIVES = 120, 60, 40
ARTICLES = {"the ": ("singular", "plural"), "a ": ("singular",), "these ": ("plural",)}
State = tuple[str, ...]  # the next part, then the parts to remember
Alternative = tuple[str, int, State]  # token, weight, the state it leads to
START: State = ("article", "subject", "")


@dataclass(frozen=True)
class Lexicon:
    """The words in the order of their ranks. They end in letters other than the plural's "s"."""

    nouns: tuple[str, ...]
    verbs: tuple[str, ...]
    adjectives: tuple[str, ...]


@dataclass(frozen=True)
class Choice:
    """Choices of a state: tokens, where each leads, and the running sums of their weights."""

    tokens: tuple[bytes, ...]
    following: tuple[State, ...]
    running: tuple[int, ...]

    @property
    def weights(self) -> list[int]:
        """The weight of each token."""
        return [b - a for a, b in itertools.pairwise((0, *self.running))]


def make_lexicon() -> Lexicon:
    """Distinct words of two or three open syllables, drawn from their own fixed seed."""
    draw = random.Random(LEXICON_SEED)  # noqa: S311 - text, no secret
    words: dict[str, None] = {}  # an ordered set
    while len(words) < NOUNS + VERBS + ADJECTIVES:
        syllables = 2 if draw.random() < 0.6 else 3
        words["".join(_syllable(draw) for _ in range(syllables))] = None
    listed = tuple(words)
    return Lexicon(
        nouns=listed[:NOUNS],
        verbs=listed[NOUNS : NOUNS + VERBS],
        adjectives=listed[NOUNS + VERBS :],
    )


def _syllable(draw: random.Random) -> str:
    onsets, vowels = "bdfgklmnprtvz", "aeiou"
    return onsets[int(draw.random() * len(onsets))] + vowels[int(draw.random() * len(vowels))]


@lru_cache(maxsize=1)
def grammar() -> dict[State, Choice]:
    """Return every state within reach of START."""
    words = make_lexicon()
    states: dict[State, Choice] = {}
    waiting = [START]
    while waiting:
        state = waiting.pop()
        if state in states:
            continue
        tokens, weights, following = zip(*_alternatives(state, words), strict=True)
        states[state] = Choice(
            tokens=tuple(token.encode() for token in tokens),
            following=following,
            running=tuple(itertools.accumulate(weights)),
        )
        waiting.extend(following)
    return states


def _alternatives(state: State, words: Lexicon) -> list[Alternative]:
    """Alternatives of a state. `number` is the subject's, which its verbs have to agree with."""
    match state:
        case ("article", role, number):
            return [
                (article, percent, ("noun or adjective", article, role, number))
                for article, percent in (("the ", 50), ("a ", 35), ("these ", 15))
            ]
        case ("noun or adjective", article, role, number):
            after: State = ("noun", article, role, number)
            described = [(a, w, after) for a, w in _ranked(words.adjectives, "", 30)]
            return described + _nouns(words, article, role, number, percent=70)
        case ("noun", article, role, number):
            return _nouns(words, article, role, number, percent=100)
        case ("after subject", number):
            clause: State = ("verb", "clause", number)
            return [("that ", SHARE_TOTAL // 4, clause), *_verbs(words, "object", number, 75)]
        case ("verb", role, number):
            return _verbs(words, role, number, 100)
        case ("after object", number):
            return [
                (".\n", 60, START),
                ("and ", 20, ("verb", "object", number)),
                ("near ", 20, ("article", "place", number)),
            ]
    return [(".\n", 1, START)]  # After a place a sentence is over.


def _nouns(
    words: Lexicon, article: str, role: str, number: str, *, percent: int
) -> list[Alternative]:
    numbers = ARTICLES[article]
    after: dict[str, State] = {
        "clause": ("verb", "object", number),
        "object": ("after object", number),
        "place": ("after place",),
    }
    return [
        (noun, weight, ("after subject", own) if role == "subject" else after[role])
        for own in numbers
        for noun, weight in _ranked(
            words.nouns, "s" if own == "plural" else "", percent // len(numbers)
        )
    ]


def _verbs(words: Lexicon, role: str, number: str, percent: int) -> list[Alternative]:
    suffix = "s" if number == "singular" else ""
    after: State = ("article", role, number)
    return [(verb, weight, after) for verb, weight in _ranked(words.verbs, suffix, percent)]


def _ranked(words: Sequence[str], suffix: str, percent: int) -> list[tuple[str, int]]:
    """Give words whole weights that fall as 1 / rank (Zipf) and make up `percent` of a choice."""
    ranks = range(1, len(words) + 1)
    whole = [SHARE_TOTAL // rank for rank in ranks]
    return [
        (f"{word}{suffix} ", weight * SHARE_TOTAL * percent // (100 * sum(whole)))
        for word, weight in zip(words, whole, strict=True)
    ]


def make_corpus(length: int = CORPUS_BYTES) -> bytes:
    """Return the first `length` bytes of the walk from START."""
    states, draw = grammar(), random.Random(CORPUS_SEED)  # noqa: S311 - text, no secret
    state, tokens, written = START, [], 0
    while written < length:
        choice = states[state]
        place = bisect_right(choice.running, int(draw.random() * choice.running[-1]))
        tokens.append(choice.tokens[place])
        written += len(tokens[-1])
        state = choice.following[place]
    return b"".join(tokens)[:length]


def read_corpus() -> bytes:
    """Make the corpus and check its hash. Raises DataSetError if this Python writes another one."""
    text = make_corpus()
    sha256 = hashlib.sha256(text).hexdigest()
    if sha256 != CORPUS_SHA256:
        raise DataSetError(
            f"the grammar wrote a corpus with the SHA-256 {sha256}",
            field="data_set.sha256",
            expected=CORPUS_SHA256,
        )
    return text
