"""Code submissions: outcomes in words, the effects of factors, the tree of ideas."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from finishline.rules.verification.entry import names_of
from finishline.rules.verification.purposes import is_in_box
from finishline.rules.verification.verdict import outcome_text

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


def factor_rows(effects: Sequence[View], words: Mapping[str, str]) -> list[dict[str, Any]]:
    """An ablation's effects with their names, the manifest's `words`, and the `widest` of a bar."""
    count = len({name for each in effects for name in each["off"]})
    known = [each for each in effects if each["ratio"] is not None]
    most: float = max([1.0, *(each["ratio"] for each in known)])
    widest = 1.05 * max([most, *(min(each["high"], LARGEST_CLIP * most) for each in known)])
    return [
        {
            **each,
            "name": names_of(tuple(each["off"]), of=count),
            "words": words.get(each["off"][0], "") if len(each["off"]) == 1 else "",
            "widest": widest,
        }
        for each in effects
    ]


def idea_lines(packages: Sequence[View]) -> list[list[dict[str, Any]]]:
    """Code submissions in lines, each based on the one before, with the `branches` beside it.

    A line goes on with the child that most descend from, so branches are never nested deeply.
    """
    known = {each["sha256"] for each in packages}
    children: defaultdict[str | None, list[View]] = defaultdict(list)
    for each in packages:
        children[each["parent"] if each["parent"] in known else None].append(each)
    order = [*children[None]]
    for each in order:  # It grows: each package comes after its parent.
        order += children[each["sha256"]]
    sizes: dict[str, int] = {}
    for each in reversed(order):
        sizes[each["sha256"]] = 1 + sum(sizes[one["sha256"]] for one in children[each["sha256"]])

    def line(node: View | None) -> list[dict[str, Any]]:
        found = []
        while node is not None:
            following = children[node["sha256"]]
            heaviest = max(following, key=lambda one: sizes[one["sha256"]], default=None)
            branches = [line(one) for one in following if one is not heaviest]
            found.append({**node, "branches": branches})
            node = heaviest
        return found

    return [line(root) for root in children[None]]


def why_no_gain(node: View, measured: Collection[str]) -> str | None:
    """Why code with a parent has no gain. `measured` are the submissions with a figure."""
    if node["parent"] is None or node["gain"]:
        return None
    if node["sha256"] not in measured:
        return "it has no measured figure yet"
    if node["parent"] not in measured:
        return "its parent has no measured figure on this hardware class"
    return "a run of one of the two missed, and the others alone would favour that side"
