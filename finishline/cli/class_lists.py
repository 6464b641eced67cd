"""Lists of a class as CSV: read as spreadsheets write them, and written with a link for each."""

import csv
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from finishline.cli.errors import CliError, ExitCode, Problem
from finishline.rules.text import refuse_utf16

LIMIT_BYTES = 1024 * 1024
MOST_PEOPLE = 2000
DELIMITERS = ",;\t"
NAMES = {"name", "full name", "student", "user", "login"}
EMAILS = {"email", "e-mail", "mail", "e-mail address", "email address"}
EMAIL = re.compile(r"[^@\s,;]+@[^@\s,;]+\.[^@\s,;]+")
NOT_IN_A_NAME = re.compile(r"[^\w.@ -]+")
LONGEST_NAME = 100


@dataclass(frozen=True)
class Student:
    """A line of a list: a name to propose and a mail address, at least one of them."""

    line: int
    name: str | None
    email: str | None


def read_class(path: Path, *, domain: str | None = None) -> tuple[list[Student], list[str]]:
    """Read the people of a list, and say which lines were left out.

    With a header the columns `name` and `email` count, without one a column with @ is the address.
    Raises CliError with every line that is wrong; nobody is invited then.
    """
    students, notes, problems = [], [], []
    seen: dict[str, int] = {}
    for line, table in _rows(path):
        email, name = table.get("email"), _as_name(table.get("name"))
        if email is not None and not EMAIL.fullmatch(email):
            problems.append(_problem(path, line, "email", f"{email!r}", "one mail address"))
        elif email and domain and not email.lower().endswith(f"@{domain.lower()}"):
            problems.append(_problem(path, line, "email", f"{email!r}", f"one at {domain}"))
        elif email is None and name is None:
            problems.append(_problem(path, line, None, "neither name nor address", "one of them"))
        else:
            key = (email or name or "").casefold()
            if key in seen:
                notes.append(f"line {line} repeats line {seen[key]} ({email or name})")
                continue
            seen[key] = line
            students.append(Student(line, name, email))
    if problems or not students or len(students) > MOST_PEOPLE:
        why = "" if problems else f" It names {len(students)} people; expected 1 to {MOST_PEOPLE}."
        raise CliError(
            f"Nobody was invited from {path}.{why}", exit_code=ExitCode.REFUSED, problems=problems
        )
    return students, notes


def _rows(path: Path) -> Iterator[tuple[int, Mapping[str, str]]]:
    try:
        if path.stat().st_size > LIMIT_BYTES:
            raise ValueError(f"more than {LIMIT_BYTES} bytes")
        content = path.read_bytes()
        refuse_utf16(content, file=path.name)
        text = _decoded(content)
        first = text.partition("\n")[0]
        delimiter = max(DELIMITERS, key=first.count)
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        columns: list[str] | None = None
        for cells in reader:
            found = [cell.strip() for cell in cells]
            if not any(found):
                continue
            if columns is None:
                columns = _columns(found)
                if "@" not in "".join(found) and {"name", "email"} & set(columns):
                    continue  # The header.
                columns = _guessed(found)
            yield (
                reader.line_num,
                {key: cell for key, cell in zip(columns, found, strict=False) if key and cell},
            )
    except (OSError, ValueError, csv.Error) as error:
        why = getattr(error, "strerror", None) or error
        raise CliError(
            f"Cannot read {path} ({why}). Expected a CSV with columns name and email.",
            exit_code=ExitCode.REFUSED,
        ) from error


def _decoded(content: bytes) -> str:
    """UTF-8, else the encoding in which spreadsheets of Windows save CSV."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("cp1252")


def _columns(header: list[str]) -> list[str]:
    words = [cell.casefold() for cell in header]
    return ["name" if w in NAMES else "email" if w in EMAILS else "" for w in words]


def _guessed(cells: list[str]) -> list[str]:
    """Columns of a list without a header: the address has an @, the name is the first other."""
    columns = ["email" if "@" in cell else "" for cell in cells]
    if "" in columns:
        columns[columns.index("")] = "name"
    return columns


def _as_name(text: str | None) -> str | None:
    """A name as accounts have one: other characters become spaces."""
    name = " ".join(NOT_IN_A_NAME.sub(" ", text or "").split()).lstrip(".")
    return name[:LONGEST_NAME].strip() or None


def _problem(path: Path, line: int, field: str | None, found: str, expected: str) -> Problem:
    return Problem(found, path.name, line, field, expected)


def csv_line(*cells: str | None) -> str:
    """A line of CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow([cell or "" for cell in cells])
    return text.getvalue()
