"""Find the submissions of a listing: DAWNBench entries, MLPerf result sets, single logs."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from finishline.rules.archive.files import Archive, ArchiveFile, Place
from finishline.rules.errors import LogFormatError

TASKS = {task.lower(): task for task in ("CIFAR10", "ImageNet", "SQuAD")}
KINDS = ("train", "inference")
# Most are numbered from 0. Some have a time stamp and a number, or a word before it.
RESULT_NAME = re.compile(r"result_[A-Za-z0-9_-]{1,80}\.txt")
_NUMBER = re.compile(r"[0-9]{1,30}")
LOG_SUFFIXES = (".txt", ".log", ".out")
LOG_MARK = b":::ML"
# MLPerf HPC: ORG/results/SYSTEM/weak/BENCHMARK, in its first round without "weak" or "strong".
SCALINGS = ("strong", "weak")
HPC_BENCHMARKS = ("cosmoflow", "deepcam", "oc20", "openfold")


@dataclass
class EntryFiles:
    """The files of a DAWNBench entry. `task` and `kind` are None where its path omits them."""

    task: str | None
    kind: str | None
    json: ArchiveFile | None = None
    tsv: ArchiveFile | None = None

    @property
    def path(self) -> str:
        """Return the path of its JSON, if it has one, else of its TSV."""
        return next((file.path for file in (self.json, self.tsv) if file), "")


@dataclass
class ResultSet:
    """The logs of one MLPerf submission, by their numbers, or one log `alone` outside a package."""

    path: str
    place: Place
    runs: list[ArchiveFile] = field(default_factory=list)
    alone: bool = False

    @property
    def _in_results(self) -> bool:
        return len(self.place) > 3 and self.place[-3] == "results"

    @property
    def in_package(self) -> bool:
        """Whether the folder is in a package: ORG/results/SYSTEM/BENCHMARK."""
        return self._in_results and not self.alone

    @property
    def scaling(self) -> str | None:
        """Return the scaling in the path of an MLPerf HPC set."""
        in_system = len(self.place) > 4 and self.place[-4] == "results"
        return self.place[-2] if in_system and self.place[-2] in SCALINGS else None

    @property
    def is_hpc(self) -> bool:
        named = any(part in HPC_BENCHMARKS for part in self.place[-1:]) or any(
            part.startswith("hpc_results") for part in self.place
        )
        return self.scaling is not None or (self._in_results and named)

    @property
    def system_place(self) -> Place:
        """Return the folder of its system, ORG/results/SYSTEM, in a package."""
        return self.place[: -1 if self.scaling is None else -2]


Submission = EntryFiles | ResultSet


def find_submissions(archive: Archive, *, asked_for_file: bool = False) -> list[Submission]:
    """Find the submissions of an archive, in order of their paths.

    A file `asked_for_file` is read by its name. In a tree other files are left alone.
    """
    files = list(archive.files.values())
    if asked_for_file:
        return [_named(file, archive) for file in files]
    sets = _result_sets(files, archive)
    # A package also holds code. Texts next to code are documentation.
    packages = {each.system_place[:-2] for each in sets if each.in_package or each.is_hpc}
    packages |= {found.place for found in sets}
    loose = [
        file
        for file in files
        if not packages.intersection(file.place[:i] for i in range(len(file.place)))
    ]
    entries = list(_entries(loose))
    texts = [file for file in loose if file.name.lower().endswith(LOG_SUFFIXES)]
    marked = {file.place[:-1] for file in texts if _is_marked(file, archive)}
    # A broken log among others is reported. A requirements.txt near entries is ignored.
    is_any = not sets and not entries and not marked
    logs = [_alone(file) for file in texts if is_any or file.place[:-1] in marked]
    found: list[Submission] = [*entries, *sets, *logs]
    return sorted(found, key=lambda submission: submission.path)


def _alone(file: ArchiveFile) -> ResultSet:
    return ResultSet(file.path, file.place[:-1], [file], alone=True)


def _named(file: ArchiveFile, archive: Archive) -> Submission:
    suffix = PurePosixPath(file.name).suffix.lower()
    if suffix not in (".json", ".tsv"):
        return _alone(file)
    entry = EntryFiles(*task_and_kind(file.place))
    for name in (".json", ".tsv"):
        partner = (*file.place[:-1], PurePosixPath(file.name).stem + name)
        setattr(entry, name[1:], file if name == suffix else archive.find(partner))
    return entry


def _entries(files: Iterable[ArchiveFile]) -> Iterator[EntryFiles]:
    """Yield every JSON and TSV below TASK/KIND. Elsewhere every TSV with its JSON."""
    entries: dict[Place, EntryFiles] = {}
    loose: dict[Place, ArchiveFile] = {}
    for file in files:
        if not file.name.endswith((".json", ".tsv")) or file.name.startswith("."):
            continue
        stem, _, suffix = file.name.rpartition(".")
        base = (*file.place[:-1], stem)
        task, kind = task_and_kind(file.place)
        if kind is None and suffix == "json":
            loose[base] = file
            continue
        entry = entries.setdefault(base, EntryFiles(task, kind))
        setattr(entry, suffix, file)
    for base, entry in entries.items():
        entry.json = entry.json or loose.get(base)
        yield entry


def task_and_kind(place: Place) -> tuple[str | None, str | None]:
    """Return the DAWNBench task and kind in a path, if it has both."""
    for i in range(len(place) - 2, 0, -1):
        if place[i] in KINDS and place[i - 1].lower() in TASKS:
            return TASKS[place[i - 1].lower()], place[i]
    return None, None


def _result_sets(files: Iterable[ArchiveFile], archive: Archive) -> list[ResultSet]:
    """Find sets by the names of their logs, and package folders with logs of other names."""
    sets: dict[Place, ResultSet] = {}
    for file in files:
        if not RESULT_NAME.fullmatch(file.name):
            continue
        if _NUMBER.search(file.name) or _is_marked(file, archive):  # Else it is about the results.
            _add_run(sets, file)
    known = set(sets)
    for file in files:
        place = file.place[:-1]
        in_package = place not in known and len(place) > 3 and place[-3] == "results"
        if in_package and file.name.lower().endswith(LOG_SUFFIXES) and _is_marked(file, archive):
            _add_run(sets, file)
    for found in sets.values():
        found.runs.sort(key=lambda file: ([int(n) for n in _NUMBER.findall(file.name)], file.name))
    return list(sets.values())


def _add_run(sets: dict[Place, ResultSet], file: ArchiveFile) -> None:
    place, path = file.place[:-1], file.path.rpartition("/")[0] or "."
    sets.setdefault(place, ResultSet(path, place)).runs.append(file)


def _is_marked(file: ArchiveFile, archive: Archive) -> bool:
    try:
        return LOG_MARK in next(iter(archive.chunks(file)), b"")
    except LogFormatError:
        return True  # Scoring reports refused files.
