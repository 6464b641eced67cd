"""The evidence behind a time, as board entries and submissions have it."""

from finishline.client.views.view import View


class Tuning(View):
    """The search behind a submission's settings."""

    trials: int
    seconds: float


class Source(View):
    """Source of a published result."""

    name: str
    url: str
    commit: str | None = None


class EvidenceFields(View):
    """`evidence` is "measured", "published" or "claimed"; `check` how far a claim was checked."""

    evidence: str = "claimed"
    check: str | None = None
    witnessed_by: str | None = None
    provisional_rank: int | None = None
    listed_rank: int | None = None
    claimed_seconds: float | None = None
    measured_seconds: float | None = None
    measured_low_seconds: float | None = None
    measured_high_seconds: float | None = None
    measured_runs: int = 0
    owners: int = 0
    by_organisers: bool = False
    pool_id: str | None = None
    also_by: tuple[str, ...] = ()
    not_separated_from: int | None = None
    visible_gap_percent: float | None = None
    trained_with: str = "own"
    tuning: Tuning | None = None
    source: Source | None = None
