"""F1 of answers to questions, as SQuAD v1.1 scores them.

It compares answers after normalisation: small letters, no ASCII punctuation, no articles (a, an,
the), single spaces, in this order. A question counts with the best of its gold answers.
Source: Rajpurkar et al. (2016), "SQuAD: 100,000+ Questions for Machine Comprehension of Text",
section 6.1, and the rules of the task's evaluation for version 1.1.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalise(answer: str) -> str:
    """Return an answer without the parts that the comparison ignores."""
    bare = answer.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", bare).split())


def f1_score(prediction: str, gold: str) -> float:
    """Return the harmonic mean of precision and recall over words, counted as often as they come.

    Answers without a common word have 0, two empty ones too.
    """
    predicted, wanted = normalise(prediction).split(), normalise(gold).split()
    shared = sum((Counter(predicted) & Counter(wanted)).values())
    if shared == 0:
        return 0.0
    precision, recall = shared / len(predicted), shared / len(wanted)
    return 2 * precision * recall / (precision + recall)


def mean_over_questions(
    score: Callable[[str, str], float],
    predictions: Mapping[str, str],
    golds: Mapping[str, Sequence[str]],
) -> float:
    """Return the mean, as a fraction, of the best score of each question among its gold answers.

    A question without a prediction has 0. Raises ValueError for an empty set.
    """
    if not golds:
        raise ValueError("no question to score; expected at least one")
    total = 0.0
    for question, answers in golds.items():
        if question in predictions:
            total += max(score(predictions[question], answer) for answer in answers)
    return total / len(golds)
