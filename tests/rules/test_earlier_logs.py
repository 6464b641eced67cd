"""Whose training it is: by bytes, by curve and timing, and by who withdrew what."""

from dataclasses import replace

import pytest

from rules.earlier_logs import EarlierRun, LoggedRun, find_copies, own_again

MINE = LoggedRun("run_0.log", log_sha256="aa", training_sha256="t1")
REWRITTEN = LoggedRun("old.log", log_sha256="bb", training_sha256="t1")
THEIRS = EarlierRun(replace(MINE, file="theirs.log"), submission_id="s1", is_own=False)
OWN = replace(THEIRS, is_own=True)


def test_the_same_bytes_are_named_before_the_same_training() -> None:
    earlier = [replace(THEIRS, run=REWRITTEN, submission_id="s0"), THEIRS]
    (copy,) = find_copies([MINE], earlier)

    assert (copy.file, copy.same, copy.earlier.submission_id) == ("run_0.log", "bytes", "s1")
    (copy,) = find_copies([MINE], earlier[:1])
    assert (copy.same, copy.earlier.run.file) == ("training", "old.log")


def test_curves_too_short_to_tell_are_the_same_by_their_bytes_alone() -> None:
    short = replace(MINE, training_sha256=None)
    other = replace(THEIRS, run=replace(short, log_sha256="cc"))

    assert find_copies([short], [other]) == []
    assert len(find_copies([short], [replace(THEIRS, run=short)])) == 1


def test_each_run_that_its_submitter_handed_in_before_is_a_problem_naming_submission_and_file() -> (
    None
):
    fresh = LoggedRun("run_1.log", log_sha256="dd", training_sha256="t2")
    (problem,) = own_again(find_copies([MINE, fresh], [OWN]))

    assert (problem.file, problem.field) == ("run_0.log", "runs")
    assert problem.message == "byte for byte theirs.log of submission s1"
    assert own_again(find_copies([MINE], [THEIRS])) == []


@pytest.mark.parametrize(
    ("earlier", "is_copy"),
    [
        (replace(OWN, withdrawn_by="submitter"), False),
        (replace(OWN, withdrawn_by="submitter", status="rejected"), True),
        (replace(OWN, withdrawn_by="submitter", status="inconclusive"), True),
        (replace(OWN, withdrawn_by="submitter", status="verified"), False),
        (replace(OWN, withdrawn_by="submitter", cut_short=True), True),
        (replace(OWN, withdrawn_by="organiser"), True),
        (replace(THEIRS, withdrawn_by="submitter"), True),
        (replace(THEIRS, withdrawn_by="organiser"), False),
        (replace(THEIRS, is_after_own=True), False),
        (replace(THEIRS, is_after_own=True, withdrawn_by="submitter"), False),
    ],
)
def test_a_withdrawal_gives_logs_back_to_whose_they_are(earlier: EarlierRun, is_copy: bool) -> None:
    assert bool(find_copies([MINE], [earlier])) is is_copy
    assert find_copies([MINE], [earlier], archive=True) == []
