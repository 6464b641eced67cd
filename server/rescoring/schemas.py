"""Scoring again as it crosses the API."""

from dataclasses import asdict
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool

from server.rescoring.service import BATCH_SUBMISSIONS, Batch, Choice
from server.submissions.queries import CURSOR_PATTERN


class RescoreRequest(BaseModel):
    """Which submissions to score again: all, or those of one benchmark.

    Each under the definition its result names ("stored"), or under the server's ("current"). A dry
    run keeps nothing. `cursor` goes on after an earlier answer.
    """

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"benchmark": "digits", "dry_run": True}]},
    )

    benchmark: str | None = Field(default=None, max_length=100)
    dry_run: StrictBool = False
    definition: Literal["stored", "current"] = "stored"
    limit: int = Field(default=BATCH_SUBMISSIONS, ge=1, le=200)
    cursor: str | None = Field(default=None, pattern=CURSOR_PATTERN)

    @property
    def choice(self) -> Choice:
        """What is asked for."""
        return Choice(
            benchmark_id=self.benchmark,
            current=self.definition == "current",
            dry_run=self.dry_run,
        )


class ChangeView(BaseModel):
    """A stored figure that came out differently; a long list is told by its length."""

    field: str
    before: Any
    after: Any


class ChangedView(BaseModel):
    """A submission with figures that came out differently."""

    id: str
    changes: list[ChangeView]


class FailedView(BaseModel):
    """A submission that could not be scored again and is left as it is."""

    id: str
    error: str


class RescoreView(BaseModel):
    """What one batch came to. `total` counts all that were asked for, in every batch.

    `next_cursor` asks for the next batch; it is null when all are done.
    """

    definition: str
    dry_run: bool
    submissions: int
    unchanged: int
    changed: list[ChangedView]
    failed: list[FailedView]
    total: int
    next_cursor: str | None


def rescore_view(batch: Batch) -> RescoreView:
    """A batch as the API shows it."""
    return RescoreView(**asdict(batch.summary), total=batch.total, next_cursor=batch.next_cursor)
