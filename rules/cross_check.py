"""Which finished runs another owner's worker trains again, and whether the two trainings agree."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from rules.canonical import sha256_of
from rules.equal_seeds import curve_distance
from rules.judge_convergence import evaluations_of
from rules.messages import ReplayRun

ORGANISERS_SHARE = 10  # One run in so many of an organisers' worker.
PACE_SHARE = 0.05
PACE_SECONDS = 0.25


@dataclass(frozen=True)
class Agreement:
    """How far apart two trainings of one seed are: in quality, and in time at one evaluation."""

    agrees: bool
    distance: float
    seconds: float
    other_seconds: float


def drawn_runs(nonce: str, report: object, *, among: Sequence[int], organisers: bool) -> list[int]:
    """The indexes of the runs to train again: a function of the opened nonce and the report.

    One of every report of a worker that is not the organisers'; of the organisers' each run with a
    chance of one in ten. Nobody can foresee it: the report comes after the seal of the nonce, and
    the nonce is not known to its worker.
    """
    if not among:
        return []
    seed = bytes.fromhex(nonce) + bytes.fromhex(sha256_of(report))
    if not organisers:
        return [among[_number(seed, 0) % len(among)]]
    return [index for index in among if _number(seed, index) % ORGANISERS_SHARE == 0]


def _number(seed: bytes, index: int) -> int:
    digest = hashlib.sha256(b"finishline cross-check" + seed + index.to_bytes(4, "big")).digest()
    return int.from_bytes(digest[:8], "big")


def compare_runs(run: ReplayRun, other: ReplayRun, *, limit: float | None) -> Agreement | None:
    """Whether two trainings of one seed agree: their curves, and the seconds of what both did.

    Curves agree within `limit`, the distance that calibrations measured for equal seeds; None
    compares the pace alone. The pace agrees within 5 % and 0.25 s at the last evaluation that both
    have. A run that missed the target ends no earlier than the other. None where they have fewer
    than three evaluations in common.
    """
    distance = curve_distance(evaluations_of(run), evaluations_of(other))
    if distance is None:
        return None
    times = {item.epoch: item.seconds for item in other.evaluations}
    common = (item for item in reversed(run.evaluations) if item.epoch in times)
    seconds, other_seconds = next((item.seconds, times[item.epoch]) for item in common)
    most = PACE_SHARE * max(seconds, other_seconds) + PACE_SECONDS
    paced = abs(seconds - other_seconds) <= most
    return Agreement(
        paced
        and (limit is None or distance <= limit)
        and not _stops_short(run, other)
        and not _stops_short(other, run),
        distance,
        seconds,
        other_seconds,
    )


def _stops_short(run: ReplayRun, other: ReplayRun) -> bool:
    return run.status != "reached" and len(run.evaluations) < len(other.evaluations)
