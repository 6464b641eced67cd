"""Run logs that were handed in before: whose training it is, and what becomes of it.

A training is one result of one submitter. Handed in again by them it would rank twice, or under
whatever claim looks best; handed in by somebody else it is no result of theirs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from rules.errors import LogFormatError

Sameness = Literal["bytes", "training"]
WithdrawnBy = Literal["submitter", "organiser"]
# With these a verdict has gone against the logs, and a withdrawal does not clear them.
DOUBTED = ("rejected", "inconclusive")


@dataclass(frozen=True)
class LoggedRun:
    """A run by its log and its training (rules.fingerprint); None where that proves nothing."""

    file: str
    log_sha256: str
    training_sha256: str | None


@dataclass(frozen=True)
class EarlierRun:
    """A run of an earlier submission to the same benchmark, `is_own` if by the same submitter.

    `cut_short` is whether its submitter withdrew it while it was being replayed, `is_after_own`
    whether whoever hands it in at present had handed it in before this one did.
    """

    run: LoggedRun
    submission_id: str
    is_own: bool
    status: str = "claimed"
    withdrawn_by: WithdrawnBy | None = None
    cut_short: bool = False
    is_after_own: bool = False


@dataclass(frozen=True)
class Copy:
    """A run that is an earlier one: the same `bytes`, or the same `training` written otherwise."""

    file: str
    same: Sameness
    earlier: EarlierRun

    @property
    def in_words(self) -> str:
        """What is the same as what."""
        other = f"{self.earlier.run.file} of submission {self.earlier.submission_id}"
        if self.same == "bytes":
            return f"byte for byte {other}"
        return f"the training of {other}: every quality and time is the same"


def find_copies(
    runs: Iterable[LoggedRun], earlier: Sequence[EarlierRun], *, archive: bool = False
) -> list[Copy]:
    """For each run the first of the earlier ones that it is; the same bytes come first.

    A submission that its submitter withdrew before a verdict went against it leaves its logs to
    them, so that a claim can be put right; but not from under a replay, which everybody watches
    live: the same logs would be drawn other seeds until a replay goes well. One that an organiser
    withdrew takes nobody's logs, nor does one that was made of them: logs are public, and a claim
    is put right by withdrawing it and handing its logs in again.
    Beside an `archive` none counts that was withdrawn.
    """
    standing = [each for each in earlier if _stands(each, archive=archive)]
    found = []
    for run in runs:
        same_bytes = (e for e in standing if e.run.log_sha256 == run.log_sha256)
        same_training = (e for e in standing if _is_same_training(e.run, run))
        first = next(same_bytes, None)
        if first is not None:
            found.append(Copy(run.file, "bytes", first))
        elif (other := next(same_training, None)) is not None:
            found.append(Copy(run.file, "training", other))
    return found


def own_again(copies: Iterable[Copy]) -> list[LogFormatError]:
    """A problem for each run that its submitter handed in before."""
    return [
        LogFormatError(
            copy.in_words,
            file=copy.file,
            field="runs",
            expected="a training that is in no other submission of yours to this benchmark, or "
            "that submission withdrawn before a worker began to replay it",
            code="log_handed_in_before",
        )
        for copy in copies
        if copy.earlier.is_own
    ]


def _stands(earlier: EarlierRun, *, archive: bool) -> bool:
    if earlier.withdrawn_by is None:
        return not earlier.is_after_own
    if archive:
        return False
    if earlier.is_own:
        is_doubted = earlier.status in DOUBTED or earlier.cut_short
        return earlier.withdrawn_by == "organiser" or is_doubted
    return not earlier.is_after_own and earlier.withdrawn_by == "submitter"


def _is_same_training(one: LoggedRun, other: LoggedRun) -> bool:
    return one.training_sha256 is not None and one.training_sha256 == other.training_sha256
