from rules.run import Ledger, Phase


def test_a_ledger_adds_up_all_its_phases() -> None:
    ledger = Ledger()
    for phase in Phase:
        ledger = ledger.plus(phase, 1.5)

    assert ledger.total() == 1.5 * 8


def test_seconds_are_added_to_one_phase_and_the_old_ledger_stays() -> None:
    before = Ledger(train=2.0, eval=1.0)

    after = before.plus(Phase.TRAIN, 0.5)

    assert after == Ledger(train=2.5, eval=1.0)
    assert before == Ledger(train=2.0, eval=1.0)
