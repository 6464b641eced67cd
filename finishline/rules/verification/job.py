"""A job of trainings: its purpose, its seeds and their seal, and its verdict."""

import hashlib
import itertools
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.canonical import sha256_of
from finishline.rules.errors import RuleError
from finishline.rules.measurements import PrecisionName
from finishline.rules.run import Evaluation
from finishline.rules.scoring.scoring import RunScore
from finishline.rules.statistics.aggregate import Spread
from finishline.rules.submissions.claim import Claim
from finishline.rules.verification.messages import (
    PACKAGE_PREFIX,
    Measure,
    ReplayReport,
    StopAt,
    TargetSpec,
    Training,
)
from finishline.rules.verification.verdict import Verdict

REPEAT = "repeat"  # Sealed with a draw that has a repeated run.
DRAW = 3  # How runs and seeds are drawn, sealed with them.


@dataclass(frozen=True)
class Request:
    """The claims of planned trainings, 32 random bytes, and wishes by name."""

    benchmark: Benchmark
    entropy: bytes
    claims: Sequence[Claim] = ()
    wishes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def package(self) -> str:
        """Return the code to train. Raises RuleError for a benchmark without a reference."""
        if self.benchmark.replay is None:
            raise RuleError(
                "no replay policy", file=self.benchmark.benchmark_id, expected="[replay]"
            )
        return self.benchmark.replay.reference


def target_spec(benchmark: Benchmark) -> TargetSpec:
    return TargetSpec(
        metric=benchmark.target.metric,
        value=benchmark.target.value,
        direction=benchmark.target.direction,
        evaluations_in_a_row=benchmark.reach.evaluations,
        fixed_stop=not benchmark.reach.is_at_quality,
        budget_seconds=benchmark.reach.budget_seconds,
    )


@dataclass(frozen=True)
class Contest:
    """The rule of a head-to-head. With few pairs the larger `spread` of the class counts."""

    most_pairs: int = 30
    threshold: float = 0.01 / 12
    earlier: Sequence[ReplayReport] = ()
    spread: Spread | None = None

    @property
    def numbers(self) -> dict[str, float]:
        """Return the figures that a verdict keeps: they change with new challengers and runs."""
        numbers = {"threshold": self.threshold}
        if self.spread is not None:
            numbers["class_stdev"] = self.spread.stdev
            numbers["class_freedom"] = self.spread.degrees_of_freedom
        return numbers


@dataclass(frozen=True)
class Case:
    """A report with everything needed to judge it. `runs`, `curves`, `latency_ms` are claimed.

    `checked` is the report that an independent rerun repeats a run of.
    """

    benchmark: Benchmark
    trainings: Sequence[Training]
    report: ReplayReport
    claim: Claim | None = None
    runs: Sequence[RunScore] = ()
    curves: Sequence[Sequence[Evaluation]] = ()
    latency_ms: float | None = None
    checked: ReplayReport | None = None
    contest: Contest | None = None

    def require_claim(self) -> Claim:
        """Return the claim. Raises ValueError for a job without one."""
        if self.claim is None:
            raise ValueError("a job without a submission has no claim to judge")
        return self.claim


@dataclass(frozen=True)
class Words:
    """Words for a purpose on pages and in the command, with a `name` for lists if needed.

    `endings` has a sentence for each outcome, "" for any other. {runs} means "3 runs".
    """

    to_do: str
    doing: str
    endings: Mapping[str | None, str]
    about: str = ""
    subject: str = "the submission"
    name: str | None = None


Track = Literal["evidence", "comparison", "calibration"]


@dataclass(frozen=True)
class Purpose:
    """Purpose of trainings: how they are planned, and the verdict on their report.

    Its `track` says how a job ends: evidence is the word about a claim, a comparison is stored, and
    a calibration ends without verdict. `why_not` says in one sentence why the claims can't be
    trained, and `unable` puts it in words after the submission's name. `judge` raises RuleError for
    a report that differs from the order. `claims` counts its submissions, 0 where the server starts
    it. Evidence `checks_claims` of one kind, and moves their status. `in_box` trains code
    submissions: its runs count evaluations instead of epochs.
    """

    name: str
    track: Track
    plan: Callable[[Request], list[Training]]
    judge: Callable[[Case], Verdict | None]
    why_not: Callable[[Benchmark, Sequence[Claim]], str | None]
    unable: str
    words: Words
    claims: int = 1
    checks_claims: str | None = None
    in_box: bool = False

    @property
    def is_replay(self) -> bool:
        """Whether the adopted calibration judges it, and another owner trains it again."""
        return self.checks_claims == "train"

    @property
    def fills_pool(self) -> bool:
        """Whether its runs measure the time of a configuration."""
        return self.checks_claims in ("train", "package")


@dataclass(frozen=True)
class Draw:
    """Seeds of the runs of a verification, and the nonce that opens their seal."""

    seeds: tuple[int, ...]
    nonce: str


def draw(
    entropy: bytes, *, runs: int, label: bytes = b"finishline seed", taken: Container[int] = ()
) -> Draw:
    """Draw distinct seeds for so many runs, outside `taken`: a function of 32 random bytes."""
    seeds: dict[int, None] = {}  # An ordered set.
    for index in itertools.count():
        if len(seeds) == runs:
            break
        digest = hashlib.sha256(label + entropy + index.to_bytes(4, "big")).digest()
        if (seed := int.from_bytes(digest[:4], "big")) not in taken:
            seeds[seed] = None
    return Draw(seeds=tuple(seeds), nonce=entropy.hex())


def trainings_of(
    drawn: Draw,
    package: str,
    settings: Mapping[str, float],
    *,
    stop_at: StopAt = "target",
    measure: tuple[Measure, ...] = ("tta",),
    precision: PrecisionName | None = None,
) -> list[Training]:
    """Plan one training for each seed of a draw, with one package, settings and precision."""
    side = Training(package, dict(settings), 0, None, stop_at, measure, precision)
    return [replace(side, seed=seed) for seed in drawn.seeds]


def seal(
    benchmark: Benchmark,
    submission_id: str | None,
    sealed: Draw,
    *,
    beside: Mapping[str, Any] | None = None,
) -> str:
    """Hash everything drawn with SHA-256: public before the first run, checkable after it.

    `beside` is everything else settled by then, for example the settings of each run.
    """
    return sha256_of(
        dict(beside or {})
        | {
            "benchmark_sha256": benchmark.sha256,
            "draw": DRAW,
            "nonce": sealed.nonce,
            "runs": len(sealed.seeds),
            "seeds": list(sealed.seeds),
            "submission": submission_id,
        }
    )


def beside_of(
    purpose: Purpose, trainings: Sequence[Training], sealed: Mapping[str, Any]
) -> dict[str, Any]:
    """Return everything sealed with a draw: `sealed`, and other purposes than a replay."""
    beside = dict(sealed)
    if not purpose.is_replay:
        beside["kind"] = purpose.name
    if any(training.is_repeat for training in trainings):
        beside[REPEAT] = True
    if purpose.track != "evidence":
        beside["hyperparameters"] = [training.settings for training in trainings]
        if any(training.precision is not None for training in trainings):
            beside["precisions"] = [training.precision for training in trainings]
    return beside


_Side = TypeVar("_Side")


def in_turn(sides: Sequence[_Side], rounds: int) -> list[_Side]:
    """Return the sides that the runs train, in order: A B B A A B B A ...

    A linear drift cancels over two rounds. Of an odd number one round keeps the drift of one run.
    """
    return [side for turn in range(rounds) for side in sides[:: -1 if turn % 2 else 1]]


def package_side(sha256: str | None, settings: Mapping[str, float] | None = None) -> Training:
    """Plan code as a side of trainings, to be given a seed."""
    return Training(package=f"{PACKAGE_PREFIX}{sha256}", settings=dict(settings or {}), seed=0)


def plan_in_turn(entropy: bytes, sides: Sequence[Training], *, rounds: int) -> list[Training]:
    """Plan every side in each round, on one drawn seed, and code on one draw of the data."""
    seeds = draw(entropy, runs=rounds).seeds
    planned = []
    for index, side in enumerate(in_turn(sides, rounds)):
        turn = index // len(sides)
        data = data_nonce(entropy, turn).hex() if side.in_box else None
        planned.append(replace(side, seed=seeds[turn], data_nonce=data))
    return planned


DATA_LABEL = b"finishline data"


def data_nonce(entropy: bytes, index: int) -> bytes:
    """Return the nonce for the data of run `index`: SHA-256 over a label, the nonce and it."""
    return hashlib.sha256(DATA_LABEL + entropy + str(index).encode()).digest()
