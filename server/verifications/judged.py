"""What the published verdict of a submission was reached on, where scoring again changed it."""

from datetime import datetime

from pydantic import BaseModel
from sqlalchemy.orm import Session

from finishline.rules.verification.verdict import changed_figures
from server.models import Evidence, Submission
from server.standing import claimed_runs, published_verification


class ChangedFigureView(BaseModel):
    """A figure of a run: as it was judged, and as it is."""

    file: str
    field: str
    judged: float | bool | None
    now: float | bool | None


class JudgedOnView(BaseModel):
    """The figures that the published verdict was reached on, where they are others today.

    `judged_at` is when; `figures` are the runs' that changed. `benchmark_sha256` is the definition
    it was judged under, None where that is the present one. The proof of `verification_id` keeps
    everything as it was.
    """

    verification_id: str
    judged_at: datetime
    benchmark_sha256: str | None
    figures: list[ChangedFigureView]


def judged_on_others(session: Session, submission: Submission) -> JudgedOnView | None:
    """What a verdict stood on if a submission's figures are others today, None if it stands."""
    published = published_verification(submission)
    evidence = None if published is None else session.get(Evidence, published.id)
    if published is None or evidence is None:
        return None
    figures = changed_figures(evidence.submission["runs"], claimed_runs(submission))
    same_definition = evidence.benchmark_sha256 == submission.benchmark_sha256
    if not figures and same_definition:
        return None
    return JudgedOnView(
        verification_id=published.id,
        judged_at=evidence.created_at,
        benchmark_sha256=None if same_definition else evidence.benchmark_sha256,
        figures=[ChangedFigureView(**vars(figure)) for figure in figures],
    )
