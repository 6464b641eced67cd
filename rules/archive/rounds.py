"""Which MLPerf round a package belongs to, where no folder says so.

Logs of the present format do not name their round, but packages of one round stand together, and
each round has benchmarks that another has not.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from rules.archive.definitions import Definitions
from rules.archive.files import Place, version_of
from rules.archive.submissions import ResultSet, Submission


def tell_rounds(
    found: Iterable[Submission], definitions: Definitions
) -> Mapping[Place, tuple[str, ...]]:
    """The rounds that each folder of packages, and each package, may be of by its benchmarks."""
    names: dict[Place, set[str]] = defaultdict(set)
    for each in found:
        if isinstance(each, ResultSet) and each.in_package:
            for folder in folders_of(each):
                names[folder].add(each.place[-1])
    rounds = {folder: definitions.rounds_of(benchmarks) for folder, benchmarks in names.items()}
    return {folder: possible for folder, possible in rounds.items() if possible}


def folders_of(found: ResultSet) -> tuple[Place, Place]:
    """The folder of a set's organisation, and the one it is in."""
    return found.place[:-3], found.place[:-4]


def possible_rounds(found: ResultSet, rounds: Mapping[Place, tuple[str, ...]]) -> tuple[str, ...]:
    """The rounds that a set may be of, oldest first; none where nothing tells.

    The one that its folders name, else those of the benchmarks beside it: in the folder of its
    organisation or, where that leaves fewer, in the one around it. The folders of systems and
    benchmarks have versions of their own in their names.
    """
    named = version_of(found.place[:-3] if found.in_package else found.place)
    if named is not None:
        return (named,)
    told = [rounds[folder] for folder in folders_of(found) if folder in rounds]
    return min(told, key=len, default=())
