"""Submissions compared pair by pair."""

from finishline.api.schema import Schema


class Named(Schema):
    """A submission, by its id and the names of its submitter."""

    submission_id: str
    submitter: str
    display_name: str | None = None


class ComparedView(Named):
    """A compared submission. `run_seconds` has the runs that reached the target."""

    model: str
    hardware: str
    division: str
    tta_seconds: float | None
    runs_started: int
    run_seconds: list[float]
    single_run: bool
    withdrawn: bool = False


class PairedView(Schema):
    """Latest head-to-head of two submissions: the challenger's time over the holder's.

    `ratio` is the geometric mean over its `pairs`, with its 95 % interval and one-sided p-value.
    """

    id: str
    outcome: str
    challenger: str
    ratio: float
    low: float
    high: float
    pairs: int
    p_value: float | None


class ComparedPairView(Schema):
    """The first submission against the second, over all their runs.

    `ratio` is of the geometric means of their times, below 1 where the first is faster, with its 95
    % interval. `p_faster` is the confidence in the first being faster on average (1 less the
    one-sided p-value of Welch's test on log times). `p_one_run_faster` is the share of pairs of
    runs in which it is. `p_adjusted` is the two-sided p-value by Holm over all pairs of the answer.
    `runs_needed` is the runs of each to tell a gap of this size. `head_to_head` trains both in
    turn, and says more.
    """

    first: str
    second: str
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    p_value: float | None
    p_adjusted: float | None
    p_faster: float | None
    p_one_run_faster: float | None
    runs_needed: int | None
    told_apart: bool
    sentence: str
    head_to_head: PairedView | None = None


class SubmissionComparison(Schema):
    """All pairs of two to six submissions of one benchmark."""

    benchmark: str
    submissions: list[ComparedView]
    pairs: list[ComparedPairView]
