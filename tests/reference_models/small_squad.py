"""Small files of questions in the format of SQuAD, and a reader that learns from them."""

import hashlib
import json
import random

from reference_models import data

NAMES = [f"Name{chr(97 + i)}" for i in range(12)]
THINGS = [f"thing{chr(97 + i)}" for i in range(12)]
SMALL = {
    "batch_size": 16,
    "width": 16,
    "dropout": 0.0,
    "learning_rate": 0.01,
    "ema_decay": 0.8,
    "pretrained_vectors": 0,
}


def questions_file(count, *, seed, shuffled=False):
    """Contexts of three facts, "Namea likes thingb.", and a question on one of them."""
    draw = random.Random(seed)
    paragraphs = []
    for index in range(count):
        names, things = draw.sample(NAMES, 3), draw.sample(THINGS, 3)
        context = " ".join(f"{n} likes {t}." for n, t in zip(names, things, strict=True))
        asked = draw.randrange(3)
        answer = things[draw.randrange(3) if shuffled else asked]
        gold = {"text": answer, "answer_start": context.index(answer)}
        question = f"What does {names[asked]} like?"
        qas = [{"id": f"{seed}-{index}", "question": question, "answers": [gold]}]
        paragraphs.append({"context": context, "qas": qas})
    return json.dumps({"version": "1.1", "data": [{"title": "Facts", "paragraphs": paragraphs}]})


def publish(monkeypatch, folder, *, train, test):
    """Write both files and take their sizes and hashes for the published ones."""
    folder.mkdir(exist_ok=True)
    files = []
    for name, text in (("train-v1.1.json", train), ("dev-v1.1.json", test)):
        content = text.encode()
        (folder / name).write_bytes(content)
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        files.append(data.DataFile(f"squad/{name}", len(content), digest))
    monkeypatch.setitem(data.NEEDS, "squad", data.Needs("squad", tuple(files)))
