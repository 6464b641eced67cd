"""What a rule says when the input is wrong: what, where, and what was expected."""


class RuleError(ValueError):
    """A rule cannot accept this input.

    Carries the place (`file`, 1-based `line`, dotted `field`) and what was `expected`, each None
    where it does not apply, so that a terminal, a page and an API answer can all show the same.
    """

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        line: int | None = None,
        field: str | None = None,
        expected: str | None = None,
    ) -> None:
        self.message = message
        self.file = file
        self.line = line
        self.field = field
        self.expected = expected
        super().__init__(message)

    def __str__(self) -> str:
        place = " ".join(
            part
            for part in (self.file, f"line {self.line}" if self.line is not None else None)
            if part is not None
        )
        if self.field is not None:
            place = f"{place}, field {self.field}" if place else f"field {self.field}"
        expected = f"; expected {self.expected}" if self.expected is not None else ""
        return f"{place}: {self.message}{expected}" if place else f"{self.message}{expected}"


class BenchmarkError(RuleError):
    """A benchmark definition is not one."""


class ClaimError(RuleError):
    """The JSON that describes a submission breaks a rule."""


class LogFormatError(RuleError):
    """A run log cannot be read, or says something impossible."""
