"""Response models of training packages."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from finishline.api.schema import Schema


class PackageFileView(Schema):
    """A file of a package; its text is at `/submissions/{id}/package/files/{name}`."""

    name: str
    size_bytes: int


class SpeedUpView(Schema):
    """Time of the benchmark's reference over that of a package, trained in turn on one worker.

    `low` and `high` bound the true ratio with 95 % confidence, from `pairs` of runs on equal seeds
    and data. Above 1 the package is faster.
    """

    ratio: float
    low: float
    high: float
    pairs: int


class PackageView(Schema):
    """A training package that was handed in as an entry.

    `environment_sha256` is of the exact versions on the workers that train it. `based_on` is the
    parent that its submitter names, `factors` the ideas that can be switched off.
    `compressed_bytes` is its size under xz. Its `files` and `factors` are its submitter's and the
    organisers' until `published_at`, the moment of its first verdict, and empty for others; None
    before. `same_program_as` is an earlier submission that differs in comments and layout alone:
    then it has no rank.

    One run of a package that says to be `deterministic` is repeated with equal seed and data: its
    `determinism` is "shown" if all predictions were equal, else "struck"; None for others.
    `speed_up` is over the benchmark's reference; None before it was measured.
    """

    sha256: str
    title: str
    module: str
    license: str
    environment: str
    environment_sha256: str
    based_on: str | None = None
    deterministic: bool = False
    determinism: Literal["shown", "struck", "not checked"] | None = None
    precision: str | None = None
    factors: dict[str, str] = Field(default_factory=dict)
    size_bytes: int
    compressed_bytes: int
    published_at: datetime | None = None
    speed_up: SpeedUpView | None = None
    same_program_as: str | None = None
    files: list[PackageFileView] = Field(default_factory=list)
