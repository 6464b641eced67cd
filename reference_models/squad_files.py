"""The files of SQuAD v1.1: find them, compare with their published hashes, and read.

They lie in the folder `squad` of the worker's data folder, as they are published at
https://rajpurkar.github.io/SQuAD-explorer/, which states no hash.
Source: the SHA-256 that ParlAI's builder of the task checks the downloads with
(parlai/tasks/squad/build.py); the sizes that loaders of SQuAD v1.1 check.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reference_models import DataSetError

SOURCE = "https://rajpurkar.github.io/SQuAD-explorer/dataset"


@dataclass(frozen=True)
class PublishedFile:
    """A file as its publisher has it."""

    name: str
    size_bytes: int
    sha256: str


TRAIN_FILE = PublishedFile(
    "train-v1.1.json",
    30_288_272,
    "3527663986b8295af4f7fcdff1ba1ff3f72d07d61a20f487cb238a6ef92fd955",
)
TEST_FILE = PublishedFile(
    "dev-v1.1.json",
    4_854_279,
    "95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9",
)


def checksum_list(files: Sequence[PublishedFile]) -> str:
    """The files as `sha256sum` lists them: the hash of this text names the data set."""
    return "".join(f"{file.sha256}  {file.name}\n" for file in files)


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


def read_published(folder: Path, file: PublishedFile) -> Reading:
    """The content of a published file. Raises DataSetError if it is missing or another one."""
    path = folder / file.name
    again = f"download {SOURCE}/{file.name} to {folder}"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataSetError(
            f"the file cannot be read: {error.strerror}", file=str(path), expected=again
        ) from error
    if len(content) < file.size_bytes:
        raise DataSetError(
            f"half-downloaded: {len(content):,} bytes",
            file=str(path),
            expected=f"{file.size_bytes:,} bytes; {again}",
        )
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 != file.sha256:
        raise DataSetError(
            f"the SHA-256 is {sha256}", file=str(path), expected=f"{file.sha256}; {again}"
        )
    return read_questions(content, file=str(path))


def read_questions(content: bytes, *, file: str) -> Reading:
    """Contexts and questions of SQuAD's JSON. Raises DataSetError naming the place.

    Every answer has to be in its context at the character it names.
    """
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
