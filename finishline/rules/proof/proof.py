"""Contents of a proof bundle: all that a verification's verdict rests on, in one document."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from finishline.rules.canonical import canonical, sha256_of
from finishline.rules.scoring.measurements import PrecisionName
from finishline.rules.scoring.scoring import RunScore
from finishline.rules.submissions.claim import System, TrainedWith
from finishline.rules.untrusted import read_plain
from finishline.rules.verification.messages import ControlPoint, Failure, ReplayReport, ReplayRun
from finishline.rules.verification.report_stream import StreamedEvent

# Every part has its hash in `parts`. The rest of a document is its format and the hashes.
PARTS = (
    "verification", "benchmark", "calibration", "submission", "draw", "plan", "attempts", "report",
    "verdict", "code",
)  # fmt: skip

Table = dict[str, Any]
EndOutcome = Literal[
    "verified", "rejected", "inconclusive", "challenger_faster", "holder_faster", "not_separable"
]


@dataclass(frozen=True)
class VerificationPart:
    """The verification: its id, purpose and end."""

    id: str
    state: Literal["done", "failed", "cancelled"]
    reason: str | None
    created_at: str
    ended_at: str | None


@dataclass(frozen=True)
class BenchmarkPart:
    """The definition everything was scored and judged under: its text and the text's hash."""

    id: str
    sha256: str
    definition: str


@dataclass(frozen=True)
class CalibratedRun:
    """One run of the reference, as `benchmark.ReferenceRun` has it."""

    batch_size: int
    seed: int
    quality: list[float]


@dataclass(frozen=True)
class CalibrationPart:
    """The adopted calibration: its runs judged in place of the definition's own."""

    id: str
    runs: list[CalibratedRun]


@dataclass(frozen=True)
class ClaimPart:
    """Fields of the claim that a replay is planned and judged by.

    `trained_with` is None in proofs from before claims stated it: their verdicts compared times as
    those of reference code, with other numbers beside their reasons.
    """

    model: str
    framework: str
    hyperparameters: dict[str, float]
    system: System
    precision: PrecisionName | None = None
    trained_with: TrainedWith | None = None


@dataclass(frozen=True)
class LogFile:
    """One run log: its name, the hash of its bytes, how many they are."""

    file: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True)
class SubmissionPart:
    """The claim, the hashes of its files, and the scores of its logs.

    `curves` has the rows of each run's curve (rules.curve). `elsewhere` is in earlier proofs alone:
    their verdicts named a run's file if another user had submitted the same training. `waivers`
    are the rules that organisers had waived for it at its verdict. `against` is the holder that the
    challenger of a duel was trained in turn with; None in other proofs.
    """

    id: str
    submitter: str
    division: str
    submitted_at: str
    claim_sha256: str
    claim: ClaimPart
    logs: list[LogFile]
    runs: list[RunScore]
    curves: list[list[list[Any]]]
    result: dict[str, Any]
    elsewhere: dict[str, str] = field(default_factory=dict)
    waivers: list[dict[str, str]] = field(default_factory=list)
    against: "SubmissionPart | None" = None


@dataclass(frozen=True)
class DrawPart:
    """The seal that was public before the first run, and the nonce that opens it.

    `beside` has the other fields sealed with the draw, by name. The first `own_runs` of the seeds
    are the claim's own.
    """

    seal: str
    nonce: str
    runs: int
    seeds: list[int]
    beside: dict[str, Any]
    own_runs: int = 0


@dataclass(frozen=True)
class PlanPart:
    """The replays' control band, and their limits of time and tries."""

    control_points: list[ControlPoint]
    max_attempts: int
    lease_seconds: float
    limit_seconds: float


@dataclass(frozen=True)
class PostedEvaluation:
    """An evaluation as a worker posted it while it trained."""

    run: int
    epoch: float | None
    samples: int | None
    seconds: float | None
    quality: float | None


@dataclass(frozen=True)
class AttemptPart:
    """One try on one worker. One that left no report has the events posted before it ended.

    Of the one that ended with the report `posted` has when each event came, and
    `clock_slack_seconds` how far the server's clock could be from the report's; None in proofs
    that were made before both were kept.
    """

    number: int
    state: str
    worker: str | None
    started_at: str | None
    ended_at: str | None
    failure: Failure | None
    evaluations: list[PostedEvaluation] = field(default_factory=list)
    posted: list[StreamedEvent] | None = None
    clock_slack_seconds: float | None = None


@dataclass(frozen=True)
class ReasonPart:
    """One reason of the verdict."""

    code: str
    weight: str
    message: str
    numbers: dict[str, float]


@dataclass(frozen=True)
class VerdictPart:
    """Verdict of the verification; no outcome if it was cancelled.

    `own_again` are own seeds of the claim that a worker of another owner trained again.
    """

    outcome: EndOutcome | None
    reasons: list[ReasonPart]
    own_again: list[ReplayRun] = field(default_factory=list)


@dataclass(frozen=True)
class CodePart:
    """The code that judged: the package's version, and the commit where it is known."""

    version: str
    commit: str | None


@dataclass(frozen=True)
class SignaturePart:
    """The signer of a manifest, and the signature over all but itself; key and value in hex."""

    key_id: str
    algorithm: Literal["ed25519"]
    public_key: str
    value: str


@dataclass(frozen=True)
class Proof:
    """A proof's document, read: all but its format."""

    verification: VerificationPart
    benchmark: BenchmarkPart
    calibration: CalibrationPart | None
    submission: SubmissionPart
    draw: DrawPart
    plan: PlanPart
    attempts: list[AttemptPart]
    report: ReplayReport | None
    verdict: VerdictPart
    code: CodePart
    parts: dict[str, str]


def read_proof(document: Mapping[str, Any]) -> Proof:
    """Read a proof, the predicate of its statement. Raises RuleError naming the faulty field."""
    fields = {name: value for name, value in document.items() if name != "format"}
    return read_plain(Proof, fields, path="")


def part_hashes(document: Mapping[str, Any]) -> dict[str, str]:
    """SHA-256 over the RFC 8785 form of each part."""
    return {name: sha256_of(document.get(name)) for name in PARTS}


def signed_bytes(document: Mapping[str, Any]) -> bytes:
    """Bytes of a manifest that are signed: the RFC 8785 form of all but the signature."""
    return canonical({name: value for name, value in document.items() if name != "signature"})


def key_id_of(public_key: bytes) -> str:
    """The id of a public key: the first 16 hex digits of its SHA-256."""
    return hashlib.sha256(public_key).hexdigest()[:16]
