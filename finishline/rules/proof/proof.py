"""Contents of a proof bundle: all that a verification's verdict rests on, in one document."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer

from finishline.rules.canonical import LARGEST_EXACT, canonical, sha256_of
from finishline.rules.measurements import PrecisionName
from finishline.rules.proof.envelope import Part, Table, read_part
from finishline.rules.run import PHASES
from finishline.rules.scoring.scoring import RunScore
from finishline.rules.submissions.claim import System, TrainedWith
from finishline.rules.verification.messages import ControlPoint, Failure, ReplayReport, ReplayRun
from finishline.rules.verification.report_stream import StreamedEvent
from finishline.rules.verification.verdict import DuelOutcome, Outcome

# Every part has its hash in `parts`. The rest of a document is its format and the hashes.
PARTS = (
    "verification", "benchmark", "calibration", "submission", "draw", "plan", "attempts", "report",
    "verdict", "code",
)  # fmt: skip

Division = Literal["closed", "open"]


def _known(phases: dict[str, float]) -> dict[str, float]:
    if not phases.keys() <= set(PHASES):
        raise ValueError(f"expected seconds by phase, of {', '.join(PHASES)}")
    return phases


Phases = Annotated[dict[str, float], AfterValidator(_known)]
# As `curve_row` writes an evaluation: without what is absent at the end.
Row = (
    tuple[float | None, float | None, float, int | None]
    | tuple[float | None, float | None, float, int | None, Phases]
    | tuple[float | None, float | None, float, int | None, Phases | None, dict[str, float]]
)


class VerificationPart(Part):
    """The verification: its id, purpose and end."""

    id: str
    state: Literal["done", "failed", "cancelled"]
    reason: str | None
    created_at: str
    ended_at: str | None


class BenchmarkPart(Part):
    """The definition everything was scored and judged under: its text and the text's hash."""

    id: str
    sha256: str
    definition: str


class CalibratedRun(Part):
    """One run of the reference, as `benchmark.ReferenceRun` has it."""

    batch_size: int
    seed: int
    quality: Annotated[list[float], Field(min_length=1)]


class CalibrationPart(Part):
    """The adopted calibration: its runs judged in place of the definition's own."""

    id: str
    runs: list[CalibratedRun]


class ClaimPart(Part):
    """Fields of the claim that a replay is planned and judged by."""

    model: str
    framework: str
    hyperparameters: dict[str, float]
    system: System
    precision: PrecisionName | None = None
    trained_with: TrainedWith


class LogFile(Part):
    """One run log: its name, the hash of its bytes, how many they are."""

    file: str
    sha256: str
    size_bytes: int


def _with_number(run: Any) -> Any:
    """Read the seed of a run that is text."""
    if isinstance(run, dict) and isinstance(run.get("seed"), str):
        return run | {"seed": int(run["seed"])}
    return run


def _with_exact_seed(run: RunScore) -> dict[str, Any]:
    """A run with its seed as text where JSON numbers lose its digits: a log's has 63 bits."""
    seed = run.seed
    return asdict(run) | {"seed": str(seed) if seed and abs(seed) > LARGEST_EXACT else seed}


class SubmissionPart(Part):
    """The claim, the hashes of its files, and the scores of its logs.

    `curves` has the rows of each run's curve (rules.run). `waivers` are the rules that organisers
    had waived for it at its verdict. `against` is the holder that the
    challenger of a duel was trained in turn with; None in other proofs.
    """

    id: str
    submitter: str
    division: Division
    submitted_at: str
    claim_sha256: str
    claim: ClaimPart
    logs: list[LogFile]
    runs: list[
        Annotated[RunScore, BeforeValidator(_with_number), PlainSerializer(_with_exact_seed)]
    ]
    curves: list[list[Row]]
    result: Table
    elsewhere: dict[str, str] = Field(default={}, max_length=0, exclude=True)  # No longer written.
    waivers: list[dict[str, str]] = Field(default=[])
    against: "SubmissionPart | None" = None


class DrawPart(Part):
    """The seal that was public before the first run, and the nonce that opens it.

    `beside` has the other fields sealed with the draw, by name. The first `own_runs` of the seeds
    are the claim's own.
    """

    seal: str
    nonce: str
    runs: int
    seeds: list[int]
    beside: Table
    own_runs: Annotated[int, Field(ge=0)]


class PlanPart(Part):
    """The replays' control band, and their limits of time and tries."""

    control_points: list[ControlPoint]
    max_attempts: int
    lease_seconds: float
    limit_seconds: float


class PostedEvaluation(Part):
    """An evaluation as a worker posted it while it trained."""

    run: int
    epoch: float | None
    samples: int | None
    seconds: float | None
    quality: float | None


class AttemptPart(Part):
    """One try on one worker. One that left no report has the events posted before it ended.

    Of the one that ended with the report `posted` has when each event came, and
    `clock_slack_seconds` how far the server's clock could be from the report's.
    """

    number: int
    state: str
    worker: str | None
    started_at: str | None
    ended_at: str | None
    failure: Failure | None
    evaluations: list[PostedEvaluation] = Field(default=[])
    posted: list[StreamedEvent] | None = None
    clock_slack_seconds: float | None = None


class ReasonPart(Part):
    """One reason of the verdict."""

    code: str
    weight: str
    message: str
    numbers: dict[str, float]


class VerdictPart(Part):
    """Verdict of the verification; no outcome if it was cancelled.

    `own_again` are own seeds of the claim that a worker of another owner trained again.
    """

    outcome: Outcome | DuelOutcome | None
    reasons: list[ReasonPart]
    own_again: list[ReplayRun] = Field(default=[])


@dataclass(frozen=True)
class CodePart:
    """The code that judged: the package's version, and the commit where it is known."""

    version: str
    commit: str | None


class SignaturePart(Part):
    """The signer of a manifest, and the signature over all but itself; key and value in hex."""

    key_id: str
    algorithm: Literal["ed25519"]
    public_key: str
    value: str


class Proof(Part):
    """A proof's document, read."""

    format: int
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
    return read_part(Proof, document)


def part_hashes(document: Mapping[str, Any]) -> dict[str, str]:
    """SHA-256 over the RFC 8785 form of each part."""
    return {name: sha256_of(document.get(name)) for name in PARTS}


def signed_bytes(document: Mapping[str, Any]) -> bytes:
    """Bytes of a manifest that are signed: the RFC 8785 form of all but the signature."""
    return canonical({name: value for name, value in document.items() if name != "signature"})


def key_id_of(public_key: bytes) -> str:
    """The id of a public key: the first 16 hex digits of its SHA-256."""
    return hashlib.sha256(public_key).hexdigest()[:16]
