"""SQuAD's scores, by the published rules of normalisation and by hand."""

import pytest

from reference_models.squad_metric import f1_score, mean_over_questions, normalise


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


def test_a_question_without_an_answer_has_nothing():
    golds = {"q1": ["gold"], "q2": ["silver"]}
    assert mean_over_questions(f1_score, {"q1": "gold", "other": "x"}, golds) == 0.5
    with pytest.raises(ValueError, match="no question"):
        mean_over_questions(f1_score, {}, {})
