"""Code submissions: outcomes in words, the effects of factors, the tree of ideas."""

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from finishline.rules.verification.entry import names_of
from finishline.rules.verification.purposes import is_in_box
from finishline.rules.verification.verdict import outcome_text
from web.formats import TimeFormat, time_format

View = Mapping[str, Any]
OUTCOMES = {"verified": "measured", "rejected": "not measured", "inconclusive": "not measured"}
OF_REPLAYS = {"verified": "measured", "rejected": "contradicted", "inconclusive": "undecided"}


def outcome_word(verification: View) -> str:
    """The word for a verification's outcome, or for its state before there is one."""
    outcome = verification["outcome"]
    if outcome is None:
        return str(verification["state"])
    if is_in_box(verification["kind"]):
        return OUTCOMES[outcome]
    if outcome in OF_REPLAYS:
        return OF_REPLAYS[outcome]
    if "target" not in verification:  # A line of a list, of times or of qualities.
        return str(outcome).replace("faster", "ahead")
    by_quality = verification["target"]["budget_seconds"] is not None
    return outcome_text(outcome, by_quality=by_quality)


def says_code(verification: View, reason: View) -> bool:
    """Whether a reason's code is shown: one that names a replay says nothing of an entry."""
    return not (is_in_box(str(verification.get("kind"))) and reason["code"].startswith("replay"))


LARGEST_CLIP = 4.0  # An interval of few pairs may be so wide that nothing else could be seen.


def factor_rows(
    effects: Sequence[Mapping[str, Any]], words: Mapping[str, str]
) -> list[dict[str, Any]]:
    """An ablation's effects with their names, the manifest's `words`, and their bars.

    A bar has the places of the ratio, its 95 % interval and a ratio of 1 in percent of its width.
    """
    count = len({name for each in effects for name in each["off"]})
    known = [each for each in effects if each["ratio"] is not None]
    most: float = max([1.0, *(each["ratio"] for each in known)])
    widest = 1.05 * max([most, *(min(each["high"], LARGEST_CLIP * most) for each in known)])

    def bar(each: Mapping[str, Any]) -> dict[str, float] | None:
        if each["ratio"] is None:
            return None
        places = {name: min(100.0, 100 * each[name] / widest) for name in ("ratio", "low", "high")}
        return places | {"one": 100 / widest}

    return [
        {
            **each,
            "name": names_of(tuple(each["off"]), of=count),
            "words": words.get(each["off"][0], "") if len(each["off"]) == 1 else "",
            "bar": bar(each),
        }
        for each in effects
    ]


Name = TypeVar("Name", bound=Hashable)


@dataclass
class Line(Generic[Name]):
    """Packages each based on the one before. `branches` are lines that begin beside it."""

    names: list[Name] = field(default_factory=list)
    branches: dict[Name, "list[Line[Name]]"] = field(default_factory=dict)


def lines_of(parents: Mapping[Name, Name | None]) -> list[Line[Name]]:
    """Arrange packages by their parents: the child with most descendants continues a line.

    So no package lies deeper in branches than the logarithm of their number. Of equal children the
    first one in the order given goes on. A parent that is not among them counts as none.
    """
    children: dict[Name | None, list[Name]] = {}
    for name, parent in parents.items():
        children.setdefault(parent if parent in parents else None, []).append(name)
    sizes = _sizes(children)
    lines = []
    waiting = []
    for root in children.get(None, []):
        lines.append(Line[Name]())
        waiting.append((root, lines[-1]))
    while waiting:
        at: Name | None
        at, line = waiting.pop()
        while at is not None:
            line.names.append(at)
            following = children.get(at, [])
            heaviest = max(following, key=sizes.__getitem__, default=None)
            for branch in following:
                if branch != heaviest:
                    line.branches.setdefault(at, []).append(Line[Name]())
                    waiting.append((branch, line.branches[at][-1]))
            at = heaviest
    return lines


def _sizes(children: Mapping[Name | None, Sequence[Name]]) -> dict[Name, int]:
    order = list(children.get(None, []))
    for name in order:  # It grows: each package comes after its parent.
        order += children.get(name, [])
    sizes: dict[Name, int] = {}
    for name in reversed(order):
        sizes[name] = 1 + sum(sizes[child] for child in children.get(name, []))
    return sizes


def idea_lines(
    lines: Sequence[Sequence[View]], quality_unit: str | None = None
) -> list[list[dict[str, Any]]]:
    """Lines of code submissions, with their branches, ready to be drawn on one scale from 0.

    `quality_unit` is of the qualities, where these rank.
    """
    nodes = list(_all(lines))
    times = replace(time_format(node["seconds"] for node in nodes), quality_unit=quality_unit)
    slowest = max((node["seconds"] for node in nodes if node["seconds"]), default=1.0)
    # A whisker of few runs may be so wide that nothing else could be seen.
    longest = min(2 * slowest, max([slowest, *(node["high_seconds"] or 0.0 for node in nodes)]))
    measured = {node["sha256"] for node in nodes if node["seconds"] or node.get("quality")}
    return [[_row(node, times, longest, measured) for node in line] for line in lines]


def _all(lines: Sequence[Sequence[View]]) -> Iterator[View]:
    for line in lines:
        for node in line:
            yield node
            yield from _all(node["branches"])


def _row(
    node: View, times: TimeFormat, longest: float, measured: Collection[str]
) -> dict[str, Any]:
    return {
        **node,
        "times": times,
        "bar": _bar(node, longest),
        "why_no_gain": _why_no_gain(node, measured),
        "branches": [
            [_row(each, times, longest, measured) for each in branch] for branch in node["branches"]
        ],
    }


def _why_no_gain(node: View, measured: Collection[str]) -> str | None:
    """Why code with a parent has no gain. `measured` are the submissions with a figure."""
    if node["parent"] is None or node["gain"]:
        return None
    if node["sha256"] not in measured:
        return "it has no measured figure yet"
    if node["parent"] not in measured:
        return "its parent has no measured figure on this hardware class"
    return "a run of one of the two missed, and the others alone would favour that side"


def _bar(node: View, longest: float) -> dict[str, float] | None:
    """Places on a bar in percent of its width."""
    if node["seconds"] is None:
        return None
    ends = {name: node[name] for name in ("seconds", "low_seconds", "high_seconds")}
    return {
        name.removesuffix("_seconds"): round(min(100.0, 100 * seconds / longest), 1)
        for name, seconds in ends.items()
        if seconds is not None
    }
