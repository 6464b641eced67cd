"""The SQuAD reference: a reader with attention in both directions, to an F1 of 0.75.

Not measured yet: the files of SQuAD v1.1 could not be had where this was written, so no run on
them is behind this text and no time can be promised. Its class of model (BiDAF; Seo et al. 2017)
is published with an F1 of 0.773 on the development set, with word vectors learned on other text.

A word is its vector, a convolution over its letters and whether the question has it too. One
bidirectional LSTM reads context and question. Each context word attends to the question and the
question to the context. Two more LSTMs read the result, and two linear layers tell where the answer
begins and ends. Adam, the learning rate up linearly and down along a cosine. Evaluated
once per epoch on an exponential moving average of the weights.

With `pretrained_vectors` = 1 the word vectors are GloVe's and stay as they are. The file
`squad/glove.6B.100d.txt` has to be in the data folder. With 0 they are learned from the training
questions alone, which is not expected to reach the target.
"""

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from finishline.rules.run import Phase
from reference_models import DataSetError, Measurement, Synthetic
from reference_models.data import NEEDS, read_whole, sha256_of_list
from reference_models.distributed import World, alone, join, synchronise
from reference_models.hyperparameters import Hyperparameters, within
from reference_models.squad_files import read_questions
from reference_models.squad_metric import f1_score, mean_over_questions
from reference_models.squad_text import (
    LETTERS,
    PADDING,
    Encoded,
    Example,
    Vocabulary,
    encode,
    make_vocabulary,
    words_of,
)
from reference_models.training import average, check_loss, cosine_rate, set_rate

DATA_SET_SHA256 = sha256_of_list(NEEDS["squad"], count=2)  # of the questions
VECTOR_WIDTH, LETTER_WIDTH, LETTER_FEATURES = 100, 16, 64
LONGEST_ANSWER = 20  # words
FEWEST_SIGHTINGS = 2  # of a word with a vector
EVALUATION_BATCH = 64
GRADIENT_CLIP = 5.0
TRAIN_QUESTIONS = 87_599  # of SQuAD v1.1. Those with an answer beyond a cut context are left out
MADE_UP_WORDS = 50_000  # a vocabulary of the size that the training questions have
GLOVE_FILE = "glove.6B.100d.txt"


@dataclass(frozen=True)
class SquadConfig(Hyperparameters):
    """Hyperparameters of a run. `longest_context` (words) holds in training only."""

    reference = "squad"
    batch_size: int = within(64, 1, 512)
    epochs: int = within(12, 1, 100)
    learning_rate: float = within(1e-3, 1e-5, 0.1)
    width: int = within(100, 8, 512)
    dropout: float = within(0.2, 0.0, 0.8)
    warmup_share: float = within(0.05, 0.0, 0.9)
    ema_decay: float = within(0.999, 0.0, 0.9999)
    longest_context: int = within(400, 20, 1000)
    pretrained_vectors: int = within(1, 0, 1)


configure = SquadConfig.configure


def train(
    config: SquadConfig, *, seed: int, device: str, data_dir: Path
) -> Iterator[Phase | Measurement]:
    """Train for `config.epochs` epochs, one measurement (F1, a fraction) after each.

    Reads `squad/*.json` of `data_dir`. Raises DataSetError if a file is missing or changed,
    TrainingDivergedError for an infinite or NaN loss at the end of an epoch.
    """
    world = join(device)
    world.part_of_batch(config.batch_size)
    torch.manual_seed(seed)
    yield Phase.WARMUP
    warm_up(config, world)
    synchronise(world.device)
    yield Phase.DATA
    training, tests, vocabulary, vectors = load(data_dir, config)
    torch.manual_seed(seed)
    model = Reader(vocabulary, config, vectors).to(world.device)
    synchronise(world.device)
    yield Phase.TRAIN
    averaged = deepcopy(model).requires_grad_(False).eval()
    optimiser = make_optimiser(model, config)
    rate_at = partial(cosine_rate, peak_share=config.warmup_share, peak=config.learning_rate)
    order = torch.Generator().manual_seed(seed)
    steps_per_epoch = max(1, len(training.examples) // config.batch_size)
    step = 0
    for epoch in range(1, config.epochs + 1):
        shuffled = torch.randperm(len(training.examples), generator=order)
        for chosen in shuffled.split(config.batch_size)[:steps_per_epoch]:  # the rest is dropped
            batch = [training.examples[i] for i in world.shard(chosen).tolist()]
            rate = rate_at(step, steps_per_epoch * config.epochs)
            loss = train_step(model, optimiser, collate(batch, world.device), rate, world)
            step += 1
            average(averaged, model, decay=min(config.ema_decay, step / (step + 10)))
        synchronise(world.device)
        yield Phase.EVAL
        check_loss(world.mean(loss).item(), epoch=epoch)
        answers = predict(averaged, tests, world.device)
        quality = mean_over_questions(f1_score, answers, tests.golds())
        yield Measurement(epoch=epoch, samples=step * config.batch_size, quality=quality)
        if epoch < config.epochs:
            yield Phase.TRAIN


@dataclass(frozen=True)
class Batch:
    """Questions on contexts as tensors. PADDING fills short ones."""

    context: Tensor  # (B, C)
    question: Tensor  # (B, Q)
    spans: Tensor  # (B, 2): first and last word of the answer


def collate(examples: Sequence[Example], device: str) -> Batch:
    """Examples as one batch on a device."""
    contexts = [torch.tensor(example.context_words) for example in examples]
    questions = [torch.tensor(example.question_words) for example in examples]
    return Batch(
        context=pad_sequence(contexts, batch_first=True, padding_value=PADDING).to(device),
        question=pad_sequence(questions, batch_first=True, padding_value=PADDING).to(device),
        spans=torch.tensor([example.span for example in examples]).to(device),
    )


class Reader(nn.Module):  # type: ignore[misc]  # mypy does not follow torch
    """Find where in a context the answer to a question begins and ends."""

    def __init__(self, vocabulary: Vocabulary, config: SquadConfig, vectors: Tensor | None) -> None:
        super().__init__()
        width = config.width
        self.known = vocabulary.known
        self.register_buffer("letters_of", torch.tensor(vocabulary.letters))
        self.register_buffer("folded", torch.tensor(vocabulary.folded))
        self.vectors = nn.Embedding(self.known, VECTOR_WIDTH, padding_idx=PADDING)
        if vectors is not None:
            self.vectors.weight.data.copy_(vectors)
            self.vectors.weight.requires_grad_(False)
        self.letters = nn.Embedding(LETTERS, LETTER_WIDTH, padding_idx=PADDING)
        self.spelling = nn.Conv1d(LETTER_WIDTH, LETTER_FEATURES, 5, padding=2)
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = Lstm(VECTOR_WIDTH + LETTER_FEATURES + 1, width)
        self.similarity = nn.Linear(2 * width, 1)
        self.similarity_of_question = nn.Linear(2 * width, 1, bias=False)
        self.together = nn.Parameter(torch.full((2 * width,), 1 / (2 * width)))
        self.first_layer, self.second_layer = Lstm(8 * width, width), Lstm(2 * width, width)
        self.end_layer = Lstm(2 * width, width)
        self.starts, self.ends = nn.Linear(10 * width, 1), nn.Linear(10 * width, 1)

    def forward(self, context: Tensor, question: Tensor) -> tuple[Tensor, Tensor]:
        """Words (B, C) and (B, Q) to log probabilities of start and end, (B, C) each."""
        # 1 for each context word that the question has too, in small letters.
        same = self.folded[context][:, :, None] == self.folded[question][:, None, :]  # (B, C, Q)
        shared = same.any(dim=2).float() * (context != PADDING)  # (B, C)
        asked = torch.zeros_like(question, dtype=shared.dtype)
        there = context != PADDING
        lengths, asked_lengths = there.sum(dim=1).cpu(), (question != PADDING).sum(dim=1).cpu()
        read = self.encoder(self._words(context, shared), lengths)  # (B, C, 2W)
        query = self.encoder(self._words(question, asked), asked_lengths)  # (B, Q, 2W)
        attended = self._attend(read, query, context, question)  # (B, C, 8W)
        modelled = self.first_layer(self.dropout(attended), lengths)  # (B, C, 2W)
        modelled = self.second_layer(self.dropout(modelled), lengths)
        last = self.end_layer(self.dropout(modelled), lengths)
        starts = self.starts(self.dropout(torch.cat([attended, modelled], dim=2))).squeeze(2)
        ends = self.ends(self.dropout(torch.cat([attended, last], dim=2))).squeeze(2)
        return _log_probabilities(starts, there), _log_probabilities(ends, there)

    def _words(self, numbers: Tensor, shared: Tensor) -> Tensor:
        """(B, T) to (B, T, vector + letter features + 1)."""
        vectors = self.vectors(torch.where(numbers < self.known, numbers, 1))
        letters = self.letters(self.letters_of[numbers].flatten(0, 1))  # (B*T, 16, L)
        spelled = self.spelling(letters.transpose(1, 2)).relu().amax(dim=2)  # (B*T, F)
        spelled = spelled.unflatten(0, numbers.shape)
        return self.dropout(torch.cat([vectors, spelled, shared[:, :, None]], dim=2))

    def _attend(self, read: Tensor, query: Tensor, context: Tensor, question: Tensor) -> Tensor:
        """Attention from each context word to the question and back (Seo et al. 2017)."""
        scores = (
            self.similarity(read)
            + self.similarity_of_question(query).transpose(1, 2)
            + (read * self.together) @ query.transpose(1, 2)
        )  # (B, C, Q)
        scores = scores.masked_fill((question == PADDING)[:, None, :], -1e9)
        asked = scores.softmax(dim=2) @ query  # (B, C, 2W)
        best = scores.amax(dim=2).masked_fill(context == PADDING, -1e9)  # (B, C)
        told = best.softmax(dim=1)[:, None, :] @ read  # (B, 1, 2W)
        return torch.cat([read, asked, read * asked, read * told], dim=2)


class Lstm(nn.Module):  # type: ignore[misc]  # mypy does not follow torch
    """A bidirectional LSTM that skips padding."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(inputs, width, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """(B, T, inputs) to (B, T, 2 * width)."""
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        read, _ = self.lstm(packed)
        return pad_packed_sequence(read, batch_first=True, total_length=x.shape[1])[0]


def _log_probabilities(scores: Tensor, there: Tensor) -> Tensor:
    return scores.masked_fill(~there, -1e9).log_softmax(dim=1)


def best_spans(starts: Tensor, ends: Tensor) -> Tensor:
    """Find the likeliest first and last word, (B, 2), of answers of up to LONGEST_ANSWER words."""
    together = starts[:, :, None] + ends[:, None, :]  # (B, C, C)
    allowed = torch.ones_like(together[0], dtype=torch.bool).triu().tril(LONGEST_ANSWER - 1)
    best = together.masked_fill(~allowed, -math.inf).flatten(1).argmax(dim=1)
    width = starts.shape[1]
    return torch.stack([best // width, best % width], dim=1)


def make_optimiser(model: nn.Module, config: SquadConfig) -> torch.optim.Adam:
    """Adam on the trained parameters. The rate is set before each step."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return torch.optim.Adam(trained, lr=config.learning_rate)


def train_step(
    model: nn.Module, optimiser: torch.optim.Adam, batch: Batch, rate: float, world: World
) -> Tensor:
    """Take one step at the given learning rate. The loss of this process stays on the device."""
    set_rate(optimiser, rate)
    starts, ends = model(batch.context, batch.question)
    loss = nn.functional.nll_loss(starts, batch.spans[:, 0])
    loss = loss + nn.functional.nll_loss(ends, batch.spans[:, 1])
    optimiser.zero_grad()
    loss.backward()
    world.average_gradients(model.parameters())
    nn.utils.clip_grad_norm_(model.parameters(), GRADIENT_CLIP)
    optimiser.step()
    return loss.detach()


def predict(model: nn.Module, tests: Encoded, device: str) -> dict[str, str]:
    """Return the answer to each question. Questions of like length go together, to pad less."""
    ordered = sorted(tests.examples, key=lambda example: len(example.context_words))
    answers: dict[str, str] = {}
    for begin in range(0, len(ordered), EVALUATION_BATCH):
        part = ordered[begin : begin + EVALUATION_BATCH]
        batch = collate(part, device)
        with torch.no_grad():
            spans = best_spans(*model(batch.context, batch.question)).tolist()
        for example, (first, last) in zip(part, spans, strict=True):
            answers[example.question_id] = tests.answer(example, first, last)
    return answers


def load(data_dir: Path, config: SquadConfig) -> tuple[Encoded, Encoded, Vocabulary, Tensor | None]:
    """Training and test questions as numbers, their vocabulary, and word vectors if asked for."""
    train_file, test_file = (
        read_questions(read_whole("squad", file, data_dir), file=str(data_dir / file.name))
        for file in NEEDS["squad"].files[:2]
    )
    train_words, test_words = words_of(train_file), words_of(test_file)
    glove: dict[str, list[float]] = {}
    if config.pretrained_vectors:
        wanted = {form for w in (*train_words, *test_words) for form in (w, w.lower())}
        glove = read_vectors(data_dir / "squad" / GLOVE_FILE, wanted)
    vocabulary = make_vocabulary(train_words, test_words, fewest=FEWEST_SIGHTINGS, named=glove)
    training = encode(train_file, vocabulary, longest_context=config.longest_context)
    tests = encode(test_file, vocabulary, longest_context=None)
    return training, tests, vocabulary, matrix_of(vocabulary, glove) if glove else None


def read_vectors(path: Path, wanted: Container[str]) -> dict[str, list[float]]:
    """Read vectors of wanted words: a word and 100 numbers a line. Raises DataSetError."""
    vectors: dict[str, list[float]] = {}
    expected = f"a word and {VECTOR_WIDTH} numbers; download glove.6B.zip and unpack {GLOVE_FILE}"
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                word, *numbers = line.rstrip("\n").split(" ")
                if len(numbers) != VECTOR_WIDTH:
                    raise DataSetError(
                        f"{len(numbers)} numbers", file=str(path), line=number, expected=expected
                    )
                if word in wanted:
                    vectors[word] = [float(value) for value in numbers]
    except OSError as error:
        raise DataSetError(
            f"the word vectors cannot be read: {error.strerror}",
            file=str(path),
            expected=f"{expected}, or set pretrained_vectors = 0",
        ) from error
    return vectors


def matrix_of(vocabulary: Vocabulary, vectors: Mapping[str, list[float]]) -> Tensor:
    """Return the vector of each known word, else of its small-letter form, else zeros."""
    matrix = torch.zeros(vocabulary.known, VECTOR_WIDTH)
    for word, number in vocabulary.numbers.items():
        found = vectors.get(word) or vectors.get(word.lower())
        if number < vocabulary.known and found is not None:
            matrix[number] = torch.tensor(found)
    return matrix


def warm_up(config: SquadConfig, world: World) -> None:
    """Run one step and one evaluation of another model on meaningless words."""
    items = world.part_of_batch(config.batch_size)
    model = made_up_reader(config, words=50).to(world.device)
    batch = made_up_batch(config, items=items, words=50, device=world.device)
    train_step(model, make_optimiser(model, config), batch, config.learning_rate, world)
    with torch.no_grad():
        best_spans(*model.eval()(batch.context, batch.question))


def synthetic(config: SquadConfig, device: str) -> Synthetic:
    """Return one step with averaging, and one inference of an evaluation batch, on made-up words.

    Contexts have a usual number of words without padding. A real step is as wide as its longest
    context, so it takes somewhat longer.
    """
    model = made_up_reader(config, words=MADE_UP_WORDS).to(device)
    averaged = deepcopy(model).requires_grad_(False).eval()
    optimiser, world = make_optimiser(model, config), alone(device)
    batch = made_up_batch(config, items=config.batch_size, words=MADE_UP_WORDS, device=device)
    tests = made_up_batch(config, items=EVALUATION_BATCH, words=MADE_UP_WORDS, device=device)

    def step() -> Tensor:
        loss = train_step(model, optimiser, batch, config.learning_rate, world)
        average(averaged, model, decay=config.ema_decay)
        return loss

    return Synthetic(
        batch_size=config.batch_size,
        steps_per_epoch=max(1, TRAIN_QUESTIONS // config.batch_size),
        train_step=step,
        inference_items=EVALUATION_BATCH,
        infer=torch.no_grad()(lambda: best_spans(*averaged(tests.context, tests.question))),
    )


def made_up_reader(config: SquadConfig, *, words: int) -> Reader:
    """Build an untrained reader of a made-up vocabulary. Its vectors train if a run's do."""
    vocabulary = make_vocabulary([f"w{i}" for i in range(words)], [], fewest=1)
    vectors = torch.zeros(vocabulary.known, VECTOR_WIDTH) if config.pretrained_vectors else None
    return Reader(vocabulary, config, vectors)


def made_up_batch(config: SquadConfig, *, items: int, words: int, device: str) -> Batch:
    """Questions of 12 made-up words on contexts of up to 150, the usual lengths in SQuAD."""
    draw = torch.Generator().manual_seed(0)
    length = min(config.longest_context, 150)
    return Batch(
        context=torch.randint(2, words, (items, length), generator=draw).to(device),
        question=torch.randint(2, words, (items, 12), generator=draw).to(device),
        spans=torch.randint(length, (items, 2), generator=draw).to(device),
    )
