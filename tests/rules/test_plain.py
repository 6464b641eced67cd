"""Tables into dataclasses: what fits is read, what does not is named."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import pytest

from finishline.rules.errors import RuleError
from finishline.rules.untrusted import read_plain
from finishline.rules.verification.messages import (
    Failure,
    ReplayEvaluation,
    ReplayReport,
    ReplayRun,
    WorkerSystem,
)


@dataclass(frozen=True)
class Leaf:
    seconds: float
    kind: Literal["a", "b"] = "a"


@dataclass(frozen=True)
class Tree:
    name: str
    count: int
    leaves: list[Leaf]
    pairs: tuple[Leaf, ...] = ()
    numbers: dict[str, float] = field(default_factory=dict)
    note: str | None = None
    first: Leaf | None = None
    anything: Any = None


GOOD: dict[str, Any] = {"name": "oak", "count": 2, "leaves": [{"seconds": 1}]}


def test_a_table_is_read_with_its_defaults() -> None:
    tree = read_plain(Tree, GOOD | {"first": {"seconds": 0.5, "kind": "b"}}, path="")

    assert tree == Tree("oak", 2, [Leaf(1.0)], first=Leaf(0.5, "b"))
    assert isinstance(tree.leaves[0].seconds, float)


def test_a_report_comes_back_as_it_was_written() -> None:
    evaluation = ReplayEvaluation(1.0, 1152, 0.5, 45.5, {"train": 0.5})
    failure = Failure("time_limit", "run_time_limit", "too long", "nothing")
    run = ReplayRun(0, 7, "failed", [evaluation], {"train": 0.5}, failure=failure)
    system = WorkerSystem("w", "cpu", "any", 2, 24.0, None, 0, 1, {"torch": "2.13.0"})
    report = ReplayReport([run], system)

    assert read_plain(ReplayReport, asdict(report), path="report") == report


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"name": 1}, "tree.name"),
        ({"name": None}, "tree.name"),
        ({"count": True}, "tree.count"),
        ({"count": 1.0}, "tree.count"),
        ({"leaves": {}}, "tree.leaves"),
        ({"leaves": [1]}, "tree.leaves[0]"),
        ({"leaves": [{}]}, "tree.leaves[0].seconds"),
        ({"leaves": [{"seconds": "1"}]}, "tree.leaves[0].seconds"),
        ({"leaves": [{"seconds": True}]}, "tree.leaves[0].seconds"),
        ({"leaves": [{"seconds": 10**400}]}, "tree.leaves[0].seconds"),
        ({"leaves": [{"seconds": float("inf")}]}, "tree.leaves[0].seconds"),
        ({"leaves": [{"seconds": 1, "kind": "c"}]}, "tree.leaves[0].kind"),
        ({"leaves": [{"seconds": 1, "kind": []}]}, "tree.leaves[0].kind"),
        ({"pairs": [{"seconds": None}]}, "tree.pairs[0].seconds"),
        ({"numbers": {"x": "y"}}, "tree.numbers.x"),
        ({"numbers": [1]}, "tree.numbers"),
        ({"note": 3}, "tree.note"),
        ({"strange": 3}, "tree.strange"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, Any], where: str) -> None:
    with pytest.raises(RuleError) as refused:
        read_plain(Tree, GOOD | change, path="tree")
    assert refused.value.field == where
