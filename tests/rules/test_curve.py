import json

from finishline.rules.scoring.run import Evaluation, Ledger, curve_row, ledger_of


def test_a_row_has_the_phases_that_took_seconds() -> None:
    evaluation = Evaluation(2.0, 5.5, 94.0, 128, Ledger(init=1.5, train=5.0, eval=0.5), line=7)

    row = curve_row(evaluation)

    assert row == [2.0, 5.5, 94.0, 128, {"init": 1.5, "train": 5.0, "eval": 0.5}]
    assert ledger_of(json.loads(json.dumps(row))) == evaluation.ledger


def test_a_row_of_a_log_that_does_not_tell_ends_before_the_ledger() -> None:
    assert curve_row(Evaluation(None, 5.5, 94.0)) == [None, 5.5, 94.0, None]
    assert ledger_of([None, 5.5, 94.0, None]) is None


def test_a_ledger_of_no_seconds_is_one_all_the_same() -> None:
    assert ledger_of(curve_row(Evaluation(0.0, 0.0, 10.0, 0, Ledger()))) == Ledger()
