"""Rescoring: a batch to ask for, and the figures it changed."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StrictBool

from finishline.api.schema import NO_FLAG, Schema
from finishline.api.submissions import CURSOR_PATTERN

BATCH_SUBMISSIONS = 50


class RescoreRequest(Schema):
    """Submissions to rescore: all, or those of one benchmark.

    Each under the definition its result names ("stored"), or under the server's ("current"). A dry
    run stores nothing. `cursor` continues after an earlier answer.
    """

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"benchmark": "digits", "dry_run": True}]},
    )

    benchmark: str | None = Field(default=None, max_length=100)
    dry_run: StrictBool = False
    definition: Literal["stored", "current"] = "stored"
    limit: Annotated[int, Field(ge=1, le=200), NO_FLAG] = BATCH_SUBMISSIONS
    cursor: str | None = Field(default=None, pattern=CURSOR_PATTERN)


class ChangeView(Schema):
    """A stored figure that changed; a long list is shown by its length."""

    field: str
    before: Any
    after: Any


class ChangedView(Schema):
    """A submission with figures that changed."""

    id: str
    changes: list[ChangeView]


class FailedView(Schema):
    """A submission that could not be rescored and is left as it is."""

    id: str
    error: str


class RescoreView(Schema):
    """Result of one batch. `total` counts all requested submissions, in every batch.

    `next_cursor` requests the next batch; it is null when all are done.
    """

    definition: str
    dry_run: bool
    submissions: int
    unchanged: int
    changed: list[ChangedView]
    failed: list[FailedView]
    total: int
    next_cursor: str | None
