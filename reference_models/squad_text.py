"""Text as numbers for the SQuAD reader: words with their places, and a number for each word.

Words keep their place in the text, so that an answer is given back as the very characters of its
context. An answer that begins or ends within a word is trained as the words that cover it.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reference_models.squad_files import Answer, Question, Reading

LONGEST_WORD = 16  # letters read of a word
LETTERS = 256  # letters differ by their code modulo this; 0 is padding
PADDING, UNKNOWN = 0, 1
_WORD = re.compile(r"\d+|[^\W\d_]+|[^\w\s]|_")


@dataclass(frozen=True)
class Word:
    """A word of a text and its characters. The last one is excluded."""

    text: str
    start: int
    end: int


def split_words(text: str) -> list[Word]:
    """Runs of letters, runs of digits and single other signs. White space is between words."""
    return [Word(match[0], match.start(), match.end()) for match in _WORD.finditer(text)]


def cover(words: Sequence[Word], answer: Answer) -> tuple[int, int] | None:
    """Return the first and the last word that share a character with an answer, or None."""
    end = answer.start + len(answer.text)
    touched = [i for i, word in enumerate(words) if word.start < end and word.end > answer.start]
    return (touched[0], touched[-1]) if touched else None


def text_of(context: str, words: Sequence[Word], first: int, last: int) -> str:
    """Return the characters of a context from one word to another, both included."""
    return context[words[first].start : words[last].end]


@dataclass(frozen=True)
class Vocabulary:
    """A number for each word. Words below `known` are frequent enough to have a vector.

    `letters` has the letters of each number's word, `folded` the number of each word's small-letter
    form, so that "The" meets "the".
    """

    numbers: dict[str, int]
    known: int
    letters: list[list[int]]
    folded: list[int]

    def encode(self, words: Iterable[Word]) -> list[int]:
        """Return the numbers of words. UNKNOWN for words outside the vocabulary."""
        return [self.numbers.get(word.text, UNKNOWN) for word in words]


def make_vocabulary(
    training: Iterable[str], others: Iterable[str], *, fewest: int, named: Iterable[str] = ()
) -> Vocabulary:
    """Number the words of the training text by frequency, then all others by first appearance.

    Words that come at least `fewest` times in training, or that are `named`, are known.
    """
    counts = Counter(training)
    kept = [word for word, count in counts.most_common() if count >= fewest]
    seen = dict.fromkeys(["", "\x00unknown", *kept])
    others = list(others)
    have = set(named)
    seen |= dict.fromkeys(w for w in [*counts, *others] if w in have or w.lower() in have)
    known = len(seen)
    seen |= dict.fromkeys([*counts, *others])
    seen |= dict.fromkeys([word.lower() for word in seen])
    numbers = {word: number for number, word in enumerate(seen)}
    return Vocabulary(
        numbers=numbers,
        known=known,
        letters=[_letters(word) for word in seen],
        folded=[numbers[word.lower()] for word in seen],
    )


def _letters(word: str) -> list[int]:
    codes = [1 + ord(letter) % (LETTERS - 1) for letter in word[:LONGEST_WORD]]
    return codes + [0] * (LONGEST_WORD - len(codes))


@dataclass(frozen=True)
class Example:
    """A question on a context as numbers. `span` has the words of its first gold answer."""

    question_id: str
    context: int
    context_words: list[int]
    question_words: list[int]
    span: tuple[int, int]


@dataclass(frozen=True)
class Encoded:
    """A file as numbers, with the texts needed to give answers back in words."""

    reading: Reading
    words: list[list[Word]]
    examples: list[Example]

    def answer(self, example: Example, first: int, last: int) -> str:
        """Return the text of an answer."""
        context = self.reading.contexts[example.context]
        return text_of(context, self.words[example.context], first, last)

    def golds(self) -> dict[str, list[str]]:
        """Return the gold answers of each question."""
        return {q.question_id: [a.text for a in q.answers] for q in self.reading.questions}


def words_of(reading: Reading) -> list[str]:
    """Every word of a file, contexts first, each as often as it comes."""
    texts = [*reading.contexts, *(question.text for question in reading.questions)]
    return [word.text for text in texts for word in split_words(text)]


def encode(reading: Reading, vocabulary: Vocabulary, *, longest_context: int | None) -> Encoded:
    """Return a file as numbers.

    With `longest_context`, as in training, contexts are cut to this many words. Questions whose
    answer was cut off are left out.
    """
    words = [split_words(context) for context in reading.contexts]
    contexts = [vocabulary.encode(each[:longest_context]) for each in words]
    found = (_example(q, words[q.context], contexts, vocabulary) for q in reading.questions)
    examples = [example for example in found if example is not None]
    if longest_context is not None:
        examples = [e for e in examples if e.span[1] < len(e.context_words)]
    return Encoded(reading, words, examples)


def _example(
    question: Question, words: list[Word], contexts: list[list[int]], vocabulary: Vocabulary
) -> Example | None:
    span = cover(words, question.answers[0])
    if not words or span is None:
        return None
    asked = vocabulary.encode(split_words(question.text)) or [UNKNOWN]
    context = contexts[question.context]
    return Example(question.question_id, question.context, context, asked, span)
