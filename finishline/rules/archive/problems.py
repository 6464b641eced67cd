"""Collect problems and oddities of a submission, file by file."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partialmethod
from typing import Any, Literal

from finishline.rules.errors import RuleError
from finishline.rules.scoring.violations import Violation

Severity = Literal["error", "warning"]
MAX_PROBLEMS_OF_A_FILE = 25


@dataclass(frozen=True)
class Problem(Violation):
    """One problem. An error breaks a rule. A warning is odd, or good to know."""

    severity: Severity = "error"


class Problems:
    """The problems of one submission, in the order they were found."""

    def __init__(self) -> None:
        # By the problem without its line: how often it was found, and where first.
        self._found: dict[Problem, tuple[int, int | None]] = {}
        self._counts: dict[str | None, int] = defaultdict(int)

    def __iter__(self) -> Iterator[Problem]:
        for problem, (times, line) in self._found.items():
            more = "" if times == 1 else f" (and in {times - 1} more lines)"
            yield replace(problem, line=line, message=problem.message + more)

    @property
    def records(self) -> list[dict[str, Any]]:
        return [dict(vars(problem)) for problem in self]

    @property
    def has_error(self) -> bool:
        return any(problem.severity == "error" for problem in self._found)

    def add(
        self,
        code: str,
        message: str,
        file: str | None = None,
        field: str | None = None,
        expected: str | None = None,
        *,
        line: int | None = None,
        severity: Severity = "error",
    ) -> None:
        """Note a problem. Keeps only so many of one file, and counts repetitions."""
        problem = Problem(code, message, file, field, expected, severity=severity)
        if line is not None and problem in self._found:
            times, first = self._found[problem]
            self._found[problem] = times + 1, first
            return
        self._counts[file] += 1
        if self._counts[file] == MAX_PROBLEMS_OF_A_FILE:
            problem = Problem("more", "and more problems", file, severity=severity)
        if self._counts[file] <= MAX_PROBLEMS_OF_A_FILE:
            self._found[problem] = 1, line

    warn = partialmethod(add, severity="warning")  # Odd, or good to know.

    def report(self, error: RuleError, severity: Severity = "error") -> None:
        code, place = error.code or "bad_value", (error.file, error.field, error.expected)
        self.add(code, error.message, *place, line=error.line, severity=severity)

    @contextmanager
    def reported(self, severity: Severity = "error") -> Iterator[None]:
        """Note each problem of a rule's exception raised within."""
        try:
            yield
        except RuleError as error:
            for each in error.problems:
                self.report(each, severity)

    def violate(
        self, violation: Violation, *, file: str | None = None, severity: Severity = "error"
    ) -> None:
        """Note a rule that runs break together."""
        fields = vars(violation) | {"file": violation.file or file}
        self.add(**fields, severity=severity)
