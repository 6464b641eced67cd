"""Problems and oddities of a submission, file by file."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from finishline.rules.errors import RuleError
from finishline.rules.scoring.violations import Violation

Severity = Literal["error", "warning"]
MAX_PROBLEMS_OF_A_FILE = 25


@dataclass(frozen=True)
class Problem:
    """One problem. An error breaks a rule; a warning is odd, or good to know."""

    file: str | None
    line: int | None
    field: str | None
    code: str
    message: str
    expected: str | None
    severity: Severity


class _Told(NamedTuple):
    """A problem without its place in the file."""

    file: str | None
    field: str | None
    code: str
    message: str
    expected: str | None
    severity: Severity


class Problems:
    """The problems of one submission, in the order they were found."""

    def __init__(self) -> None:
        self._times: dict[_Told, int] = {}
        self._lines: dict[_Told, int | None] = {}
        self._counts: dict[str | None, int] = defaultdict(int)

    def __iter__(self) -> Iterator[Problem]:
        for told, times in self._times.items():
            more = "" if times == 1 else f" (and in {times - 1} more lines)"
            yield Problem(
                told.file,
                self._lines[told],
                told.field,
                told.code,
                told.message + more,
                told.expected,
                told.severity,
            )

    @property
    def has_error(self) -> bool:
        """Whether a rule is broken."""
        return any(told.severity == "error" for told in self._times)

    def add(
        self,
        code: str,
        message: str,
        *,
        file: str | None = None,
        line: int | None = None,
        field: str | None = None,
        expected: str | None = None,
        severity: Severity = "error",
    ) -> None:
        """Note a problem; keep only so many of one file, and count repetitions."""
        told = _Told(file, field, code, message, expected, severity)
        if line is not None and told in self._times:
            self._times[told] += 1
            return
        self._counts[file] += 1
        if self._counts[file] == MAX_PROBLEMS_OF_A_FILE:
            told = _Told(file, None, "more", "and more problems", None, severity)
        if self._counts[file] <= MAX_PROBLEMS_OF_A_FILE:
            self._times[told] = 1
            self._lines[told] = line

    def take(self, problem: Problem) -> None:
        """Note a problem that was found before."""
        self.add(**vars(problem))

    def report(self, error: RuleError) -> None:
        """Note a rule's exception as an error."""
        self.reporter("error")(error)

    def reporter(self, severity: Severity) -> Callable[[RuleError], None]:
        """Callback that notes the problems that rules raise, with a severity."""

        def report(error: RuleError) -> None:
            self.add(
                error.code or "bad_value",
                error.message,
                file=error.file,
                line=error.line,
                field=error.field,
                expected=error.expected,
                severity=severity,
            )

        return report

    def violate(
        self, violation: Violation, *, file: str | None, severity: Severity = "error"
    ) -> None:
        """Note a rule that runs break together."""
        self.add(
            violation.code,
            violation.message,
            file=violation.file or file,
            line=violation.line,
            field=violation.field,
            expected=violation.expected,
            severity=severity,
        )
