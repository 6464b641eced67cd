"""Runs as flat records."""

from datetime import date, datetime

from finishline.api.submissions import SystemView
from finishline.client.views.view import Page, View


class ParameterSetting(View):
    """A hyperparameter as the submission states it."""

    name: str
    value: float


class RunMeasure(View):
    """The best value of a measure; `seconds` and `epoch` of reaching the target, if it did."""

    measure: str
    value: float | None
    seconds: float | None
    epoch: float | None


class RunRecord(View):
    """One run of a benchmark, with the submission, system and settings it belongs to."""

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
    parameter_setting: tuple[ParameterSetting, ...]
    evaluations: tuple[RunMeasure, ...]
    system: SystemView
    log_sha256: str


class RunPage(Page):
    """Runs, those of the newest submission first."""

    benchmark: str
    runs: tuple[RunRecord, ...]
