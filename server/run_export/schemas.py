"""The runs of a benchmark as flat records, one for each, for programs that study many."""

from datetime import date, datetime
from typing import Annotated

from fastapi import Query
from pydantic import BaseModel

from server.submissions.schemas import SystemView

# The moment and id of a submission, then the index of a run.
CURSOR_PATTERN = r"^[0-9]{1,17}\.[a-z0-9]{1,20}\.[0-9]{1,5}$"

LimitDep = Annotated[int, Query(ge=1, le=1000)]
CursorDep = Annotated[str | None, Query(pattern=CURSOR_PATTERN)]


class ParameterSetting(BaseModel):
    """A hyperparameter as the submission states it."""

    name: str
    value: float


class RunMeasure(BaseModel):
    """The best value a run had of a measure, and when it reached the target.

    `seconds` are on the benchmark's clock. They and `epoch` are None for a run that missed it.
    """

    measure: str
    value: float | None
    seconds: float | None
    epoch: float | None


class RunRecord(BaseModel):
    """One run with all that says what it is a run of.

    `status` is that of its submission, which may be `withdrawn`. `parameter_setting` has what the
    submission states; what is left out has the reference's value. The definition of the benchmark
    that it was scored by is named by `benchmark_sha256`.
    """

    benchmark: str
    benchmark_version: str
    benchmark_sha256: str
    division: str
    submission_id: str
    submitter: str
    submitted_at: datetime
    submitted_on: date | None
    archive: bool
    status: str
    withdrawn: bool = False
    run: int
    seed: int | None
    batch_size: int | None
    reached: bool
    model: str
    framework: str
    parameter_setting: list[ParameterSetting]
    evaluations: list[RunMeasure]
    system: SystemView
    log_sha256: str


class RunExport(BaseModel):
    """A page of runs, those of the newest submission first; `next_cursor` asks for the next."""

    benchmark: str
    next_cursor: str | None
    runs: list[RunRecord]
