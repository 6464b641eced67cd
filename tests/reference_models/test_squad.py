"""Properties of the SQuAD reference on small files, and the published scores."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from finishline.rules.benchmarks.benchmark import load_benchmark
from reference_models import DataSetError, squad
from reference_models.squad_files import Answer, read_questions
from reference_models.squad_metric import f1_score, mean_over_questions, normalise
from reference_models.squad_text import cover, encode, make_vocabulary, split_words, text_of
from tests.reference_models.small_squad import SMALL, publish, questions_file
from tests.support.curves import curve

BENCHMARK = load_benchmark(Path(__file__).parents[2] / "benchmarks" / "squad.toml")


@pytest.fixture
def facts(monkeypatch, tmp_path):
    """A data folder with 256 questions to train on and 40 to test."""
    test = questions_file(40, seed=2)
    publish(monkeypatch, tmp_path / "squad", train=questions_file(256, seed=1), test=test)
    return tmp_path


def start(data_dir, *, seed=0, **hyperparameters):
    config = squad.configure(SMALL | hyperparameters)
    return squad.train(config, seed=seed, device="cpu", data_dir=data_dir)


def test_the_reader_learns_to_find_what_a_question_asks_for(facts):
    qualities = curve(start(facts, epochs=6))
    assert qualities[0] < BENCHMARK.target.value < qualities[-1] <= 1


def test_training_on_shuffled_answers_does_not_reach_the_target(monkeypatch, tmp_path):
    """One of three things at random: a third is all there is to be had."""
    train = questions_file(256, seed=1, shuffled=True)
    publish(monkeypatch, tmp_path / "squad", train=train, test=questions_file(100, seed=2))
    assert max(curve(start(tmp_path, epochs=6))) < 0.6


def test_padding_changes_no_answer(facts):
    torch.manual_seed(0)
    config = squad.configure(SMALL)
    training, _, vocabulary, _ = squad.load(facts, config)
    model = squad.Reader(vocabulary, config, None).eval()
    short = training.examples[0]
    question = [*short.question_words, *short.question_words]
    long = replace(short, context_words=short.context_words * 3, question_words=question)
    alone = squad.collate([short], "cpu")
    padded = squad.collate([short, long], "cpu")
    size = len(short.context_words)
    for one, both in zip(
        model(alone.context, alone.question), model(padded.context, padded.question), strict=True
    ):
        torch.testing.assert_close(both[0, :size], one[0])
        assert both[0, size:].max() < -1e8


def test_best_span_is_the_likeliest_that_is_neither_backwards_nor_too_long():
    starts = torch.tensor([[0.1, 0.2, 0.7], [0.8, 0.1, 0.1]]).log()
    ends = torch.tensor([[0.6, 0.3, 0.1], [0.1, 0.2, 0.7]]).log()
    assert squad.best_spans(starts, ends).tolist() == [[2, 2], [0, 2]]  # 0.07, not 0.42 backwards
    starts, ends = torch.full((1, 60), -9.0), torch.full((1, 60), -9.0)
    starts[0, 0] = ends[0, 59] = 0.0
    ends[0, 19] = -1.0
    assert squad.best_spans(starts, ends).tolist() == [[0, 19]]


def test_word_vectors_of_a_file_are_used_and_stay_as_they_are(facts):
    words = ["likes", "namea", "unheard"]
    lines = [f"{word} " + " ".join([f"{number}.5"] * 100) for number, word in enumerate(words)]
    (facts / "squad" / "glove.6B.100d.txt").write_text("\n".join(lines) + "\n")
    config = squad.configure(SMALL | {"pretrained_vectors": 1})
    training, _, vocabulary, vectors = squad.load(facts, config)
    numbers = vocabulary.numbers
    assert vectors[numbers["likes"]].tolist() == [0.5] * 100
    assert vectors[numbers["Namea"]].tolist() == [1.5] * 100  # by its small-letter form
    assert "unheard" not in numbers
    assert vectors[numbers["What"]].abs().max() == 0
    model = squad.Reader(vocabulary, config, vectors)
    batch = squad.collate(training.examples[:16], "cpu")
    squad.train_step(model, squad.make_optimiser(model, config), batch, 0.1, squad.join("cpu"))
    assert torch.equal(model.vectors.weight, vectors)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, r"glove\.6B\.zip.*pretrained_vectors = 0"),
        ("likes " + " ".join(["0.5"] * 100) + "\nnamea 0.5 0.", r"line 2: 2 numbers"),
    ],
    ids=["missing", "cut off"],
)
def test_word_vectors_that_are_not_whole_say_what_to_do(facts, content, said):
    if content is not None:
        (facts / "squad" / "glove.6B.100d.txt").write_text(content)
    with pytest.raises(DataSetError, match=said):
        curve(start(facts, pretrained_vectors=1))


def small_file(context, text, start, **others):
    qas = [{"id": "q", "question": "Who?", "answers": [{"text": text, "answer_start": start}]}]
    paragraph = {"context": context, "qas": qas} | others
    return json.dumps({"data": [{"title": "t", "paragraphs": [paragraph]}]}).encode()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (small_file("Ann reads.", "Ann", 1), "'Ann' is not at character 1"),
        (small_file("Ann reads.", "", 0), "is not at character 0"),
        (small_file("Ann reads.", "Ann", 0, qas=[]), "no question"),
        (
            small_file("Ann reads.", "Ann", 0, qas=[{"id": "q", "question": "?", "answers": []}]),
            "no answer",
        ),
        (b'{"data": [{"paragraphs": [{"context": "x"}]}]}', "KeyError"),
        (b"[]", "TypeError"),
        (b'{"data": [', "JSONDecodeError"),
    ],
)
def test_a_file_in_another_format_is_refused_with_the_place(content, told):
    with pytest.raises(DataSetError) as refused:
        read_questions(content, file="dev.json")
    assert told in str(refused.value)
    assert refused.value.file == "dev.json"
    assert refused.value.expected


@pytest.mark.parametrize(
    ("context", "text", "start", "covered"),
    [
        ("Ann read 1,000 books.", "1,000", 9, "1,000"),
        ("The Broncos' win", "Broncos", 4, "Broncos"),
        ("a pre-war car", "war", 6, "war"),
        ("seen in the 1950s", "1950", 12, "1950"),
        ("unbelievable", "believ", 2, "unbelievable"),  # within a word: the word that covers it
        ("cost  £5m  then", " £5m ", 5, "£5m"),  # white space belongs to no word
        ("naïve café Ω Ångström", "café Ω", 6, "café Ω"),
        ("漢字 and 🙂 here", "🙂", 7, "🙂"),
        ("e\u0301te\u0301 x", "e\u0301te\u0301", 0, "e\u0301te\u0301"),  # letters and accents apart
    ],
)
def test_an_answer_is_covered_by_whole_words(context, text, start, covered):
    assert context[start : start + len(text)] == text
    words = split_words(context)
    span = cover(words, Answer(text, start))
    assert span is not None
    assert text_of(context, words, *span) == covered


def test_an_answer_of_white_space_alone_has_no_words():
    assert cover(split_words("a  b"), Answer(" ", 1)) is None


def test_every_character_but_white_space_is_in_exactly_one_word():
    text = "Zoë's 3rd “test”_case: x² ≠ 🙂\u200d, 漢字!\u00a0end"
    words = split_words(text)
    told = "".join(text[word.start : word.end] for word in words)
    assert told == "".join(text.split())


def test_training_leaves_out_answers_beyond_the_longest_context():
    reading = read_questions(small_file("one two three four", "four", 14), file="f")
    vocabulary = make_vocabulary(["one"], ["two", "three", "four"], fewest=1)
    assert encode(reading, vocabulary, longest_context=3).examples == []
    [example] = encode(reading, vocabulary, longest_context=4).examples
    assert example.span == (3, 3)
    assert len(encode(reading, vocabulary, longest_context=None).examples) == 1


def test_rare_words_share_one_vector_and_keep_their_letters():
    vocabulary = make_vocabulary(["the", "the", "rare"], ["Odd"], fewest=2)
    numbers = vocabulary.numbers
    assert numbers["the"] < vocabulary.known
    assert min(numbers["rare"], numbers["Odd"]) >= vocabulary.known
    assert vocabulary.letters[numbers["rare"]] != vocabulary.letters[numbers["Odd"]]
    assert vocabulary.folded[numbers["Odd"]] == numbers["odd"]
    assert vocabulary.encode(split_words("the unheard")) == [numbers["the"], 1]


@pytest.mark.parametrize(
    ("answer", "compared"),
    [
        ("Denver Broncos", "denver broncos"),
        ("The Denver Broncos!", "denver broncos"),
        ("a an the", ""),
        ("theatre an anthem", "theatre anthem"),  # articles are whole words
        ("  two\t words\n", "two words"),
        ("U.S.A.", "usa"),  # signs go without a space in their place
        ("the-end", "theend"),  # so that an article before a hyphen is none
        ("$1,000", "1000"),
        ("l'été – “quoted”", "lété – “quoted”"),  # only ASCII signs are punctuation
        ("ÉCOLE", "école"),
        ("", ""),
    ],
)
def test_answers_are_compared_in_their_normal_form(answer, compared):
    assert normalise(answer) == compared


@pytest.mark.parametrize(
    ("prediction", "gold", "f1"),
    [
        ("Santa Clara", "Santa Clara, California", 2 * (2 / 2) * (2 / 3) / (2 / 2 + 2 / 3)),
        ("the Santa Clara", "Santa Clara", 1.0),
        ("Levi's", "Levis Stadium", 2 * (1 / 1) * (1 / 2) / (1 + 1 / 2)),
        ("very very good", "very good", 2 * (2 / 3) * (2 / 2) / (2 / 3 + 1)),
        ("gold", "silver", 0.0),
        ("the", "a", 0.0),  # nothing is left of either
    ],
)
def test_f1_is_the_harmonic_mean_over_shared_words(prediction, gold, f1):
    assert f1_score(prediction, gold) == pytest.approx(f1)
    assert f1_score(gold, prediction) == pytest.approx(f1)


def test_a_question_counts_with_the_best_of_its_gold_answers():
    golds = {"q1": ["Santa Clara, California", "Levi's Stadium", "Santa Clara"], "q2": ["gold"]}
    predictions = {"q1": "Santa Clara", "q2": "the gold medal"}
    assert mean_over_questions(f1_score, predictions, golds) == pytest.approx((1 + 2 / 3) / 2)
    assert mean_over_questions(f1_score, {"q2": "gold", "other": "x"}, golds) == 0.5
    with pytest.raises(ValueError, match="no question"):
        mean_over_questions(f1_score, {}, {})
