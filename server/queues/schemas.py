"""Pausing and resuming, as they cross the API."""

from pydantic import BaseModel, ConfigDict, Field

LONGEST_REASON = 2000
REASON = r"\S"


class Hold(BaseModel):
    """Why a worker takes nothing, or nothing of a queue starts; shown with it and kept."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"reason": "new fans on Saturday"}]}
    )

    reason: str = Field(min_length=1, max_length=LONGEST_REASON, pattern=REASON)


class Resume(BaseModel):
    """Why it goes on, if there is something to say."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{}]})

    reason: str | None = Field(default=None, max_length=LONGEST_REASON)


class QueueHold(Hold):
    """Which queue nothing starts of: that of a hardware class, or of all where none is named."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"hardware_class": None, "reason": "the database moves"}]},
    )

    hardware_class: str | None = Field(default=None, min_length=1, max_length=200)


class QueueResume(Resume):
    """Which pause ends: that of a hardware class, or that of all where none is named."""

    hardware_class: str | None = Field(default=None, min_length=1, max_length=200)
