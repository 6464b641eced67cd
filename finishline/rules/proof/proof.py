"""Write proofs: a typed document, in an in-toto statement in RFC 8785 form, in a DSSE envelope.

The signature is checked elsewhere: these rules need only hashes.
"""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
)

from finishline.rules.benchmarks.definition_tables import ReferenceRun
from finishline.rules.canonical import LARGEST_EXACT, canonical, read_json, sha256_of
from finishline.rules.errors import RuleError
from finishline.rules.measurements import PrecisionName
from finishline.rules.run import PHASES
from finishline.rules.scoring.scoring import RunScore
from finishline.rules.statistics.aggregate import Spread
from finishline.rules.submissions.claim import System, TrainedWith
from finishline.rules.verification.messages import ControlPoint, Failure, ReplayReport, ReplayRun
from finishline.rules.verification.report_check import StreamedEvent
from finishline.rules.verification.verdict import HeadToHeadOutcome, Outcome

ENVELOPE_NAME = "proof.dsse.json"
LOGS_FOLDER = "logs/"
FORMAT = 2
PAYLOAD_TYPE = "application/vnd.in-toto+json"
LARGEST_FIGURE = 1e100  # Real runs measure less, and its square is finite.

# Every part has its hash in `parts`. The rest of a document is its format and the hashes.
PARTS = (
    "verification", "benchmark", "calibration", "submission", "draw", "plan", "attempts", "report",
    "verdict", "code",
)  # fmt: skip
Table = dict[str, Any]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Part(BaseModel):
    """A part of a proof, with strict types and known fields."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


PartType = TypeVar("PartType", bound=Part)


def read_part(kind: type[PartType], document: Mapping[str, Any]) -> PartType:
    """Read a document as a part. Raises RuleError naming the faulty field."""
    if _largest(document) > LARGEST_FIGURE:
        raise RuleError("a figure out of range", expected=f"at most {LARGEST_FIGURE:g}")
    try:
        # As JSON, in which a list is read as a tuple where a part has one.
        return kind.model_validate_json(json.dumps(document))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        if first["type"] == "missing":
            raise RuleError("missing", field=field, expected="a value") from error
        found, expected = str(first["input"])[:60], first["msg"].removeprefix("Input should be ")
        raise RuleError(f"got {found!r}", field=field, expected=expected) from error


def _largest(value: Any) -> float:
    if isinstance(value, Mapping):
        return max(map(_largest, value.values()), default=0.0)
    if isinstance(value, list):
        return max(map(_largest, value), default=0.0)
    return abs(value) if isinstance(value, int | float) else 0.0


Division = Literal["closed", "open"]


def _known(phases: dict[str, float]) -> dict[str, float]:
    if not phases.keys() <= set(PHASES):
        raise ValueError(f"expected seconds by phase, of {', '.join(PHASES)}")
    return phases


Phases = Annotated[dict[str, float], AfterValidator(_known)]
# As `curve_row` writes an evaluation: absent fields at the end are left out.
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
    """The definition of all scores and verdicts: its text and the text's hash."""

    id: str
    sha256: str
    definition: str


class CalibrationPart(Part):
    """The adopted calibration: its runs judged in place of the definition's own."""

    id: str
    runs: list[ReferenceRun]


class ClaimPart(Part):
    """Fields of the claim that a replay is planned and judged by."""

    model: str
    framework: str
    hyperparameters: dict[str, float]
    system: System
    precision: PrecisionName | None = None
    trained_with: TrainedWith


class LogFile(Part):
    """One run log: its name, hash and size."""

    file: str
    sha256: str
    size_bytes: int


def _with_number(run: Any) -> Any:
    if isinstance(run, dict) and isinstance(run.get("seed"), str):
        return run | {"seed": int(run["seed"])}
    return run


def _with_exact_seed(run: RunScore) -> dict[str, Any]:
    """Write a run's seed as text where JSON numbers lose its digits: a log's has 63 bits."""
    seed = run.seed
    return asdict(run) | {"seed": str(seed) if seed and abs(seed) > LARGEST_EXACT else seed}


class SubmissionPart(Part):
    """The claim, the hashes of its files, and the scores of its logs.

    `curves` has the rows of each run's curve. `waivers` are the rules waived for it at its verdict.
    `against` is the holder in a head-to-head.
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
    """The seal, public before the first run, and the nonce that opens it.

    `beside` has the other fields sealed with the draw, by name. The first `own_runs` of the seeds
    are the claim's own, as earlier versions trained them.
    """

    seal: str
    nonce: str
    runs: int
    seeds: list[int]
    beside: Table
    own_runs: Annotated[int, Field(ge=0, exclude=True)] = 0  # No longer written.

    @property
    def named_beside(self) -> Table:
        """Return the sealed fields, with the kind by its present name. It was "duel" before."""
        is_renamed = self.beside.get("kind") == "duel"
        return self.beside | ({"kind": "head_to_head"} if is_renamed else {})


class ContestPart(Part):
    """Causes of a head-to-head's result apart from its runs, as of the verdict.

    `earlier` has the reports of the pairs before these. `spread` is of the hardware class, where
    few pairs are planned.
    """

    threshold: float
    spread: Spread | None
    earlier: list[ReplayReport]


class PlanPart(Part):
    """The control band of replays, limits of time and tries, and the contest of a head-to-head."""

    control_points: list[ControlPoint]
    max_attempts: int
    lease_seconds: float
    limit_seconds: float
    contest: ContestPart | None = None


class PostedEvaluation(Part):
    """An evaluation as a worker posted it while it trained."""

    run: int
    epoch: float | None
    samples: int | None
    seconds: float | None
    quality: float | None


class AttemptPart(Part):
    """One try on one worker. Without a report it has the events posted before it ended.

    With the report, `posted` has when each event came, and `clock_slack_seconds` how far the
    server's clock could be from the report's.
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
    """Verdict of the verification. No outcome if it was cancelled."""

    outcome: Outcome | HeadToHeadOutcome | None
    reasons: list[ReasonPart]
    own_again: list[ReplayRun] = Field(default=[], exclude=True)  # No longer written.


@dataclass(frozen=True)
class CodePart:
    """The code that judged: the package's version, and the commit where it is known."""

    version: str
    commit: str | None


class Proof(Part):
    """A proof's document, the predicate of its statement."""

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

    @property
    def kind(self) -> Literal["replay", "entry", "head_to_head"]:
        """Return the kind: a replay of logs, the runs of a code submission, or a head-to-head."""
        if self.draw.named_beside.get("kind") == "head_to_head":
            return "head_to_head"
        return "entry" if self.submission.claim.trained_with == "package" else "replay"

    @property
    def sides(self) -> list[SubmissionPart]:
        """Return the trained submissions: both of a head-to-head."""
        sides = (self.submission, self.submission.against)
        return [side for side in sides if side is not None]


def part_hashes(document: Mapping[str, Any]) -> dict[str, str]:
    """Hash the RFC 8785 form of each part with SHA-256."""
    return {name: sha256_of(document.get(name)) for name in PARTS}


def signed_bytes(document: Mapping[str, Any]) -> bytes:
    """Return the signed bytes of a manifest: the RFC 8785 form minus the signature."""
    return canonical({name: value for name, value in document.items() if name != "signature"})


def key_id_of(public_key: bytes) -> str:
    """Return the id of a public key: the first 16 hex digits of its SHA-256."""
    return hashlib.sha256(public_key).hexdigest()[:16]


def _from_base64(text: object) -> bytes:
    """Decode standard base64 in its only spelling: padded, without spaces or spare bits."""
    content = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    if base64.b64encode(content).decode() != text:
        raise ValueError("expected standard base64")
    return content


Base64 = Annotated[bytes, BeforeValidator(_from_base64)]


class Signature(Part, extra="ignore"):
    """A signature and the id of its key."""

    keyid: str
    sig: Base64


class Envelope(Part, extra="ignore"):
    """A DSSE envelope. Fields beyond DSSE's are ignored, as it asks."""

    payload: Base64
    payloadType: Literal["application/vnd.in-toto+json"]  # noqa: N815 - DSSE's name
    signatures: Annotated[list[Signature], Field(min_length=1)]

    @property
    def signed_bytes(self) -> bytes:
        return pre_authentication(self.payload)


def pre_authentication(payload: bytes) -> bytes:
    """Return DSSE's PAE: version, type and payload, the last two behind their lengths."""
    return b"DSSEv1 %d %s %d %s" % (
        len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload,
    )  # fmt: skip


class Digest(Part):
    """The digest of a file."""

    sha256: Sha256


class Subject(Part):
    """A file of a statement. Its name contains its hash."""

    name: str
    digest: Digest


class Statement(Part):
    """An in-toto statement on a proof's files and its predicate."""

    type: Annotated[Literal["https://in-toto.io/Statement/v1"], Field(alias="_type")]
    subject: list[Subject]
    predicateType: Literal["urn:finishline:proof:2"]  # noqa: N815 - in-toto's name
    predicate: Table

    @property
    def hashes(self) -> list[str]:
        return [subject.digest.sha256 for subject in self.subject]


def read_statement(payload: bytes) -> Statement:
    """Read a payload that is byte for byte the RFC 8785 form of a statement. Raises RuleError."""
    document = read_json(payload, file="payload")
    if canonical(document) != payload:
        raise RuleError("not canonical", field="payload", expected="its RFC 8785 form")
    statement = read_part(Statement, document)
    if statement.predicate.get("format") != FORMAT:
        found = str(statement.predicate.get("format"))[:60]
        raise RuleError(f"got {found!r}", field="predicate.format", expected=f"{FORMAT}")
    for subject in statement.subject:
        if subject.name != LOGS_FOLDER + subject.digest.sha256:
            raise RuleError(f"got {subject.name[:60]!r}", field="subject", expected="logs/SHA256")
    return statement


def check_subjects(subjects: Sequence[str], files: Mapping[str, bytes]) -> None:
    """Check that each file is a subject, once, and each subject a file. Raises RuleError."""
    if len(set(subjects)) != len(subjects):
        raise RuleError("a file is named twice", field="subject", expected="each file once")
    for sha256 in sorted(set(subjects) ^ set(files)):
        if sha256 in files:
            raise RuleError("no subject names it", file=LOGS_FOLDER + sha256, expected="a subject")
        raise RuleError("not in the bundle", file=LOGS_FOLDER + sha256, expected="every subject")
    for sha256 in subjects:
        if hashlib.sha256(files[sha256]).hexdigest() != sha256:
            raise RuleError("its bytes were changed", file=LOGS_FOLDER + sha256, expected=sha256)
