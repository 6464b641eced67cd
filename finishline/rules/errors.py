"""Errors of rules: the fault, its place and the expectation."""

# A stranger's table may have names and texts of any length.
LONGEST_FIELD = 300
LONGEST_TEXT = 2_000


class RuleError(ValueError):
    """A rule cannot accept this input: its place and the `expected` value, for any display.

    Of `file`, 1-based `line` and dotted `field` some may be None. `code` is for programs.
    """

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        line: int | None = None,
        field: str | None = None,
        expected: str | None = None,
        code: str | None = None,
    ) -> None:
        self.message = message[:LONGEST_TEXT]
        self.code = code
        self.file = file
        self.line = line
        self.field = field if field is None else field[:LONGEST_FIELD]
        self.expected = expected if expected is None else expected[:LONGEST_TEXT]
        super().__init__(self.message)

    @property
    def problems(self) -> "list[RuleError]":
        return [self]

    def __str__(self) -> str:
        line = None if self.line is None else f"line {self.line}"
        field = None if self.field is None else f"field {self.field}"
        place = " ".join(part for part in (self.file, line) if part is not None)
        place = ", ".join(part for part in (place, field) if part)
        expected = "" if self.expected is None else f"; expected {self.expected}"
        return f"{place}: {self.message}{expected}" if place else f"{self.message}{expected}"


class StatisticsMissingError(Exception):
    """SciPy is missing. Unlike after a RuleError, the input may be fine."""

    def __init__(self) -> None:
        super().__init__(
            "Tests and intervals by Student's t need SciPy, which is not installed; "
            "install it with `pip install 'finishline-tta[stats]'`."
        )


class BenchmarkError(RuleError):
    """A benchmark definition breaks a rule."""


class ClaimError(RuleError):
    """The JSON of a submission breaks a rule."""


class LogFormatError(RuleError):
    """A run log is unreadable, or says something impossible."""


class SubmissionError(RuleError):
    """A submission or its code breaks several rules. `problems` has one error for each."""

    def __init__(self, problems: "list[RuleError]") -> None:
        first, *others = problems
        more = f" (and {len(others)} more)" if others else ""
        super().__init__(
            first.message + more,
            file=first.file,
            line=first.line,
            field=first.field,
            expected=first.expected,
        )
        self._problems = problems

    @property
    def problems(self) -> "list[RuleError]":
        """Return one error for each broken rule, in the order they were found."""
        return self._problems


def joined(problems: list[RuleError]) -> RuleError:
    """Return one error that lists all problems, at least one."""
    return SubmissionError(problems) if len(problems) > 1 else problems[0]
