"""Questions of SQuAD v1.1 in its JSON."""

import json
from dataclasses import dataclass
from typing import Any

from reference_models import DataSetError


@dataclass(frozen=True)
class Answer:
    """A stretch of a context: its text, and the character it begins at."""

    text: str
    start: int


@dataclass(frozen=True)
class Question:
    """A question on a context, with its gold answers in the order of the file."""

    question_id: str
    context: int
    text: str
    answers: tuple[Answer, ...]


@dataclass(frozen=True)
class Reading:
    """The contexts of a file, and the questions on them."""

    contexts: tuple[str, ...]
    questions: tuple[Question, ...]


def read_questions(content: bytes, *, file: str) -> Reading:
    """Read contexts and questions of SQuAD's JSON. Raises DataSetError naming the place."""
    contexts: list[str] = []
    questions: list[Question] = []
    try:
        articles = json.loads(content)["data"]
        for paragraph in (each for article in articles for each in article["paragraphs"]):
            contexts.append(paragraph["context"])
            for item in paragraph["qas"]:
                questions.append(_question(item, contexts, file=file))
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, DataSetError):
            raise
        raise DataSetError(
            f"after {len(questions)} questions: {error!r}",
            file=file,
            expected="the JSON of SQuAD v1.1: data, paragraphs, context, qas, answers",
        ) from error
    if not questions:
        raise DataSetError("no question", file=file, expected="at least one")
    return Reading(tuple(contexts), tuple(questions))


def _question(item: dict[str, Any], contexts: list[str], *, file: str) -> Question:
    answers = tuple(Answer(each["text"], each["answer_start"]) for each in item["answers"])
    if not answers:
        raise DataSetError(f"question {item['id']} has no answer", file=file, expected="one")
    for answer in answers:
        found = contexts[-1][answer.start : answer.start + len(answer.text)]
        if found != answer.text or not answer.text:
            raise DataSetError(
                f"question {item['id']}: {answer.text!r} is not at character {answer.start}",
                file=file,
                field="answer_start",
                expected=f"the answer there, not {found!r}",
            )
    return Question(item["id"], len(contexts) - 1, item["question"], answers)
