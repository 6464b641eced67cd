"""Which MLPerf round a package belongs to, where no folder says so.

Logs of the present format do not name their round, but packages of one round stand together, and
each round has benchmarks that another has not.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from rules.archive.definitions import Definitions
from rules.archive.files import Place, version_of
from rules.archive.submissions import ResultSet, Submission


def tell_rounds(found: Iterable[Submission], definitions: Definitions) -> Mapping[Place, str]:
    """The round of each folder of packages, and of each package, whose benchmarks tell it.

    Of a set, ask for its organisation's folder first, then for the one that folder is in.
    """
    names: dict[Place, set[str]] = defaultdict(set)
    for each in found:
        if isinstance(each, ResultSet) and each.in_package:
            for folder in folders_of(each):
                names[folder].add(each.place[-1])
    rounds = {folder: definitions.rounds_of(benchmarks) for folder, benchmarks in names.items()}
    return {folder: versions[0] for folder, versions in rounds.items() if len(versions) == 1}


def folders_of(found: ResultSet) -> tuple[Place, Place]:
    """The folder of a set's organisation, and the one it is in."""
    return found.place[:-3], found.place[:-4]


def round_of(found: ResultSet, rounds: Mapping[Place, str]) -> str | None:
    """The round of a set by the folders it is in, else by the benchmarks beside it, else None.

    The folders of systems and benchmarks have versions of their own in their names.
    """
    if not found.in_package:
        return version_of(found.place)
    told = (rounds[folder] for folder in folders_of(found) if folder in rounds)
    return version_of(found.place[:-3]) or next(told, None)
