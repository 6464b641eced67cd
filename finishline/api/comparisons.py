"""Submissions compared pair by pair, and code submissions with their parents."""

from pydantic import Field

from finishline.api.schema import Schema


class Named(Schema):
    """A submission, by its id and the names of its submitter."""

    submission_id: str
    submitter: str
    display_name: str | None = None


class ComparedView(Named):
    """A submission that is compared. `run_seconds` of the runs that reached the target."""

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
    `runs_needed` is how many runs each would need to tell a gap of this size apart.
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


class GainView(Schema):
    """Seconds that a code submission gained on its parent, with a 95 % interval.

    `ratio` is the parent's time over the code submission's. `pairs` counts runs on equal seeds and
    data. None where the runs of two measurements were compared, `runs` and `parent_runs`.
    """

    seconds: float
    low: float
    high: float
    ratio: float
    pairs: int | None = None
    runs: int
    parent_runs: int


class IdeaView(Named):
    """A code submission whose source is public, with its measured time.

    `parent` is the SHA-256 of the code submission that it is based on, if the source of that is
    public too. `gain` is on that parent, measured on the same hardware class; None where a run
    missed the target or a time is absent. `record_date` is when it took the record of its division.
    """

    sha256: str
    title: str
    factors: dict[str, str] = Field(default_factory=dict)
    parent: str | None = None
    seconds: float | None = None
    low_seconds: float | None = None
    high_seconds: float | None = None
    runs: int = 0
    gain: GainView | None = None
    record_date: str | None = None


class IdeaClassView(Schema):
    """The code submissions that were measured on one hardware class, oldest first."""

    hardware_class: str
    packages: list[IdeaView]


class IdeaList(Schema):
    """The latest code submissions of a benchmark, by hardware class. Times compare within one."""

    benchmark: str
    classes: list[IdeaClassView]
