"""What came of one try to hand a message over, whichever way it went."""

from dataclasses import dataclass

ANSWER_CHARACTERS = 500


@dataclass(frozen=True)
class Answer:
    """What came of one try: a status and the start of the answer, or the error instead.

    `retry_after_seconds` is what the receiver asks for.
    """

    status: int | None
    milliseconds: float
    text: str = ""
    error: str | None = None
    retry_after_seconds: float | None = None

    @property
    def is_success(self) -> bool:
        """Whether the receiver took it: 200 to 299, and nothing else."""
        return self.status is not None and 200 <= self.status < 300
