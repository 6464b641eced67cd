"""Which logs of a set are of one training."""

from collections.abc import Sequence

from rules.claim_checks import check_same_logs
from rules.run import Evaluation, Run

CURVE = [(1.0, 20.0), (2.0, 50.0), (3.0, 80.0), (4.0, 95.0)]


def run_of(name: str, curve: Sequence[tuple[float, float]], *, start: float = 0.0) -> Run:
    evaluations = (Evaluation(epoch, start + 10 * epoch, quality) for epoch, quality in curve)
    return Run(name, "mlperf", tuple(evaluations))


def same(*runs: Run) -> list[tuple[str | None, str]]:
    return [(found.file, found.message) for found in check_same_logs(runs)]


def test_each_copy_is_told_beside_the_first_of_its_training() -> None:
    other = [(epoch, quality + 1) for epoch, quality in CURVE]
    runs = [
        run_of("a", CURVE),
        run_of("b", other),
        run_of("c", CURVE, start=7.0),
        run_of("d", other),
        run_of("e", CURVE),
    ]

    assert same(*runs) == [
        ("c", "every quality and time is that of a"),
        ("d", "every quality and time is that of b"),
        ("e", "every quality and time is that of a"),
    ]


def test_logs_that_only_end_alike_are_of_two_trainings() -> None:
    assert same(run_of("a", CURVE), run_of("b", [(1.0, 20.5), *CURVE[1:]])) == []


def test_logs_of_few_evaluations_prove_nothing() -> None:
    assert same(run_of("a", CURVE[:3]), run_of("b", CURVE[:3])) == []
