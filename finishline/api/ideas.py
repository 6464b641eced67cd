"""Response models of ideas: packages of a benchmark, and the seconds gained on their parents."""

from pydantic import Field

from finishline.api.schema import Schema


class GainView(Schema):
    """Seconds that a package takes less than its parent, below 0 if more, with a 95 % interval.

    `ratio` is the parent's time over the package's. `pairs` counts runs on equal seeds and data;
    None where the runs of two measurements were compared, `runs` and `parent_runs`.
    """

    seconds: float
    low: float
    high: float
    ratio: float
    pairs: int | None = None
    runs: int
    parent_runs: int


class IdeaView(Schema):
    """A package whose source is public, with its measured time; None without one.

    `parent` is the SHA-256 of the package that it is based on, if the source of that is public too.
    `gain` is on that parent, measured on the same hardware class; None where a run missed the
    target or a time is absent. `record_date` is when it took the record of its division.
    """

    submission_id: str
    submitter: str
    display_name: str | None = None
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
    """The packages that were measured on one hardware class, oldest first."""

    hardware_class: str
    packages: list[IdeaView]


class IdeaList(Schema):
    """The latest packages of a benchmark, by hardware class; times compare within one alone."""

    benchmark: str
    classes: list[IdeaClassView]
