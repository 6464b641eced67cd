"""The evidence behind a time, as board entries and submissions have it."""

from finishline.api.schema import Schema
from finishline.rules.ranking.evidence import Check, Evidence
from finishline.rules.submissions.claim import TrainedWith, Tuning


class SourceView(Schema):
    """Known archive of a published result, and the commit that holds it."""

    name: str
    url: str
    commit: str


class EvidenceFields(Schema):
    """`evidence` says which time is ranked, and `check` how far a claimed one was checked.

    `check` is null unless the row is claimed. `rank` is null unless the row is numbered; a claim
    that is not contradicted, withdrawn or ineligible has a `provisional_rank`, among all rows by
    time. `claimed_seconds` is the time of the submitter's own logs, `measured_seconds` that
    of the `measured_runs` sealed runs of the configuration `pool_id`, with its interval of 95 %.
    `owners` counts the owners of the workers behind these runs, 0 for a row that is not measured:
    the organisers count as one, and `by_organisers` says whether they are among them. `also_by`
    names the other submitters of that configuration. `not_separated_from` is the number of the
    better row that these runs cannot tell from this one; a gap under `visible_gap_percent` could
    not be seen. `trained_with` is "reference" or "own", `tuning` null if it is not stated, and
    `source` that of a published result, null if no known archive was named."""

    evidence: Evidence = "claimed"
    check: Check | None = None
    provisional_rank: int | None = None
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
    trained_with: TrainedWith = "own"
    tuning: Tuning | None = None
    source: SourceView | None = None
