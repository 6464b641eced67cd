"""Records of a benchmark."""

from typing import Literal

from finishline.api.comparisons import Named
from finishline.api.schema import Schema
from finishline.rules.ranking import Evidence


class RecordTry(Named):
    """A submission with a lower time than the holder of its day."""

    model: str
    hardware: str
    status: str
    evidence: str = "claimed"
    check: str | None = None
    date: str
    tta_seconds: float
    p_value: float | None


class RecordView(RecordTry):
    """A submission that took the record of its division.

    `p_value` is the one-sided p-value of being no faster than the holder it beat, None where that
    was not tested: for the first, and where the holder had a single run.
    `verification_id` is the head-to-head that decided it. `ended` says how a holder lost its place
    without one. One that `returned` was the holder before, until that happened to the next ones.
    """

    single_run: bool
    beaten: str | None
    margin_percent: float | None
    verification_id: str | None = None
    ended: Literal["withdrawn", "retired"] | None = None
    returned: bool = False


class NoRecordView(RecordTry):
    """A submission with a lower time than the `holder` of its day that took no record, and why."""

    holder: str
    reason: str


class DivisionRecords(Schema):
    """The records of one division in the order they were set; the last one stands.

    Times measured here, on each hardware class, and times published in archives (`evidence`) are
    separate lists. The holder of first place has the last record.
    """

    division: str
    hardware_class: str | None = None
    evidence: Evidence = "measured"
    records: list[RecordView]
    not_records: list[NoRecordView]


class RecordList(Schema):
    """The records of a benchmark, division by division."""

    benchmark: str
    divisions: list[DivisionRecords]
