"""Response models of runs as flat records."""

from datetime import date, datetime

from finishline.api.schema import Schema
from finishline.api.submissions import SystemView


class ParameterSetting(Schema):
    """A hyperparameter as the submission states it."""

    name: str
    value: float


class RunMeasure(Schema):
    """The best value a run had of a measure, and when it reached the target.

    `seconds` are on the benchmark's clock. They and `epoch` are None for a run that missed it.
    """

    measure: str
    value: float | None
    seconds: float | None
    epoch: float | None


class RunRecord(Schema):
    """One run, with its submission and the definition it was scored by.

    `status` is that of its submission, which may be `withdrawn`. `parameter_setting` has the
    values that the submission states; all others are the reference's. `benchmark_sha256` names the
    definition.
    """

    benchmark: str
    benchmark_version: str
    benchmark_sha256: str
    division: str
    submission_id: str
    submitter: str
    display_name: str | None = None
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


class RunExport(Schema):
    """A page of runs, those of the newest submission first; `next_cursor` asks for the next."""

    benchmark: str
    next_cursor: str | None
    runs: list[RunRecord]
