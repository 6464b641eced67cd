from dataclasses import FrozenInstanceError, asdict, fields, replace
from typing import Any

import pytest

from finishline.rules.scoring.run import Evaluation, Ledger, Phase


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


@pytest.mark.parametrize("kind", [Ledger, Evaluation])
def test_what_is_built_at_once_is_a_frozen_dataclass_like_any_other(kind: Any) -> None:
    names = [field.name for field in fields(kind)]
    values = [float(place) for place in range(len(names))]

    built = kind(*values)

    assert asdict(built) == dict(zip(names, values, strict=True))
    assert built == kind(**asdict(built))
    assert hash(built) == hash(kind(*values))
    for name in names:
        assert replace(built, **{name: -1.0}) != built
        with pytest.raises(FrozenInstanceError):
            setattr(built, name, 0.0)


def test_a_phase_without_seconds_and_what_a_log_does_not_tell_need_no_naming() -> None:
    assert asdict(Ledger()) == dict.fromkeys((phase.value for phase in Phase), 0.0)
    assert asdict(Evaluation(1.0, 2.0, 3.0)) == {
        "epoch": 1.0,
        "seconds": 2.0,
        "quality": 3.0,
        "samples": None,
        "ledger": None,
        "line": None,
        "others": None,
    }
