"""Calibration: train the reference to its last epoch, to judge others by."""

import hashlib
import itertools
from collections.abc import Iterator, Sequence

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.submissions.claim import Claim
from finishline.rules.verification.job import Case, Draw, Purpose, Request, Words, trainings_of
from finishline.rules.verification.messages import Training


def plan_calibration(request: Request) -> list[Training]:
    """Plan `runs` trainings at one `batch_size`, from seeds that are not `taken`.

    The wish `precision` is that of them all, and the worker then finds out whether they were
    trained in it; None for the reference's own.
    """
    wishes, seeds = request.wishes, dict[int, None]()  # an ordered set
    for seed in _draw_seeds(b"finishline calibration" + request.entropy):
        if len(seeds) == wishes["runs"]:
            break
        if seed not in wishes["taken"]:
            seeds[seed] = None
    drawn = Draw(seeds=tuple(seeds), nonce=request.entropy.hex())
    settings = {"batch_size": float(wishes["batch_size"])}
    precision = wishes.get("precision")
    return trainings_of(
        drawn,
        request.package,
        settings,
        stop_at="end",
        measure=("tta",) if precision is None else ("tta", "profile"),
        precision=precision,
    )


def _draw_seeds(entropy: bytes) -> Iterator[int]:
    for index in itertools.count():
        digest = hashlib.sha256(entropy + index.to_bytes(4, "big")).digest()
        yield int.from_bytes(digest[:4], "big")


def judge_calibration(case: Case) -> None:
    """End without a verdict: the runs are the measure of others."""


def _why_not(benchmark: Benchmark, claims: Sequence[Claim]) -> str | None:
    if benchmark.replay is None:
        return f"{benchmark.benchmark_id} has no reference model to calibrate yet"
    return None


CALIBRATION = Purpose(
    name="calibration",
    plan=plan_calibration,
    judge=judge_calibration,
    why_not=_why_not,
    unable="cannot be calibrated",
    words=Words(
        to_do="train the reference in",
        doing="Training the reference in",
        endings={"": "The reference was measured in {runs}."},
        subject="the reference",
    ),
    claims=0,
    seals_settings=True,
)
