"""Submissions compared pair by pair, and a replay beside its ghosts."""

from typing import Literal

from finishline.api.schema import Schema


class ComparedView(Schema):
    """A submission that is compared; `run_seconds` of the runs that reached the target."""

    submission_id: str
    submitter: str
    display_name: str | None = None
    model: str
    hardware: str
    division: str
    tta_seconds: float | None
    runs_started: int
    run_seconds: list[float]
    single_run: bool
    withdrawn: bool = False


class ComparedPairView(Schema):
    """The first submission against the second.

    `ratio` is of the geometric means of their times, below 1 where the first is faster, with its
    95 % interval. `p_faster` is the confidence that the first is faster on average (1 less the
    one-sided p-value of Welch's test on log times), `p_one_run_faster` the share of pairs of runs
    in which it is. `p_adjusted` is the two-sided p-value by Holm over all pairs of the answer.
    `runs_needed` is how many runs each would need to tell a gap of this size apart. Absent figures
    are those that a single run cannot give.
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


class SubmissionComparison(Schema):
    """Every pair of two to six submissions of one benchmark."""

    benchmark: str
    submissions: list[ComparedView]
    pairs: list[ComparedPairView]


class GhostPointView(Schema):
    """A ghost at one of its evaluations; `index` (from 1) is the replay's that it stands beside.

    `index` is None where it stands between two. `runs` is how many runs it is the mean of.
    """

    index: int | None
    epoch: float | None
    seconds: float
    quality: float
    runs: int


class GhostView(Schema):
    """A curve the replay is held beside.

    "record" is the median run of the submission that holds the record of the division, which may
    be the claim itself (`is_own`); "claim" is the mean over the claim's runs.
    """

    role: Literal["record", "claim"]
    is_own: bool
    submission_id: str
    model: str
    submitter: str
    display_name: str | None = None
    hardware: str
    hardware_class: str
    points: list[GhostPointView]


class EvaluationSoFar(Schema):
    """One evaluation of a replay; `second_half` is the quality that stops no clock, if any."""

    epoch: float | None
    seconds: float
    quality: float
    second_half: float | None = None


class RunSoFar(Schema):
    """A run (`index` from 0) of the latest attempt; `status` is None while it goes on."""

    index: int
    status: str | None
    evaluations: list[EvaluationSoFar]


class RaceView(Schema):
    """A replay beside its ghosts. `attempt` is the number of the attempt its runs are of.

    `why_no_record` says why there is no ghost of a record. Only replays have ghosts.
    """

    verification_id: str
    attempt: int | None
    runs: list[RunSoFar]
    ghosts: list[GhostView]
    why_no_record: str | None
