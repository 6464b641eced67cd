"""Why a submission is withdrawn, or comes back."""

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic_core import PydanticCustomError


class WithdrawalCreate(BaseModel):
    """The reason, which is shown on the submission's page and kept in the audit log."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"reason": "trained on the test set by mistake"}]},
    )

    reason: str = Field(min_length=1, max_length=2000)

    @field_validator("reason")
    @classmethod
    def _says_something(cls, value: str) -> str:
        if not value.strip() or "\0" in value:
            raise PydanticCustomError("no_reason", "expected a sentence")
        return value.strip()
