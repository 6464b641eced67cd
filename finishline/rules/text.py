"""Read texts of strangers: misspelt names, UTF-16, bounded TOML. Write counts in words."""

import math
import re
import tomllib
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from itertools import islice
from typing import Any

from finishline.rules.errors import RuleError


def count_text(number: int, noun: str, plural: str | None = None) -> str:
    """Write a count with its noun: 1 run, 1,688 runs. `plural` where it takes more than an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def names_text(names: Sequence[str], *, most: int = 3) -> str:
    """Write the first names of a list, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def shown(value: object) -> str:
    """Show a stranger's value in an error: as Python writes it, at most 60 characters."""
    try:
        text = repr(value)
    except ValueError:  # an int of more digits than Python converts to text
        return "(a number of thousands of digits)"
    return text if len(text) <= 60 else text[:57] + "..."


def unseen_gap_text(percent: float) -> str:
    """Describe the least gap that runs show, in percent."""
    digits = f"{percent:,.0f}" if 99.5 <= percent < 1e6 else f"{percent:.2g}"
    return f"these runs show gaps of {digits} % and more"


# Below this share of letters in common are pairs of real names, such as min_runs and max_runs.
ALIKE = 0.8
# Comparing takes the product of both lengths, and a stranger's table may have any number of names.
LONGEST_NAME = 100
MOST_NAMES = 200


def near_miss(name: str, known: Iterable[str]) -> str | None:
    """Return the first of the nearest names, in any case, hyphens and order of letters."""
    if len(name) > LONGEST_NAME:
        return None
    others = [other for other in islice(known, MOST_NAMES) if len(other) <= LONGEST_NAME]
    near = {other: _likeness(name, other) for other in others}
    best = max(near, key=lambda other: near[other], default=None)
    return best if best is not None and near[best] >= ALIKE else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Ask about an unknown name, with a space before the question. Empty without a guess."""
    meant = near_miss(name, known)
    return "" if meant is None else f" (did you mean {meant!r}?)"


def _likeness(*names: str) -> float:
    name, other = (each.casefold().replace("-", "_").replace(" ", "_") for each in names)
    if sorted(name) == sorted(other):
        return 1.0
    compared = SequenceMatcher(None, name, other)
    return compared.ratio() if compared.real_quick_ratio() >= ALIKE else 0.0


def refuse_utf16(content: bytes, *, file: str, error: type[RuleError] = RuleError) -> None:
    """Raise `error` for a text in UTF-16 or UTF-32, with or without a byte order mark.

    In them nearly every first or second byte of Latin text is zero, but only one of the two.
    """
    start = content[:1024]
    zeros = [start[at::4].count(0) for at in range(4)]
    low, high = sorted((min(zeros[::2]), min(zeros[1::2])))
    marked = start.startswith((b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff"))
    if marked or high > max(len(start) / 16, 20 * low):
        name = "UTF-32" if sum(zeros) > 0.6 * len(start) else "UTF-16"
        message = f"{name}; save it as UTF-8"
        raise error(message, file=file, expected="UTF-8 text", code="not_utf8")


MOST_BYTES = 256 * 1024
MOST_KEY_PARTS = 16
DEEPEST = 16
LONGEST_WORD = 200
LONGEST_NUMBER = 40
# Texts and comments first: their content is skipped. Possessive, so that even an open part
# is read once.
PIECE = re.compile(
    r"""
    (?P<text> \"{3} [^\\"]*+ (?: (?: \\. | "{1,2}+(?!") ) [^\\"]*+ )*+ "{3,5}+
            | '{3} (?: [^']++ | '{1,2}+(?!') )*+ '{3,5}+
            | " (?: [^\\"\n]++ | \\. )*+ " | ' [^'\n]*+ ' )
    | (?P<comment> \#[^\n]*+ )
    | (?P<dot> \. )
    | (?P<open> [\[{] ) | (?P<close> [\]}] )
    | (?P<end> [\n=,] )
    | (?P<word> [^\s"'#.\[\]{}=,]++ )
    """,
    re.VERBOSE | re.DOTALL,
)


def parse_toml(content: bytes, *, file: str, error: type[RuleError] = RuleError) -> dict[str, Any]:
    """Read TOML text. Raises `error` naming the file and, where known, the line."""
    if len(content) > MOST_BYTES:
        message = f"{len(content)} bytes"
        raise error(message, file=file, expected=f"TOML of at most {MOST_BYTES} bytes")
    refuse_utf16(content, file=file, error=error)
    try:
        text = content.decode("utf-8")
        _check_bounds(text, file, error)
        return tomllib.loads(text)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as wrong:
        told = re.search(r"at line (\d+)", str(wrong))
        line = int(told[1]) if told else None
        raise error(f"not TOML: {wrong}", file=file, line=line, expected="a TOML file") from wrong


def _check_bounds(text: str, file: str, error: type[RuleError]) -> None:
    depth = parts = 0
    for piece in PIECE.finditer(text):
        kind, found = piece.lastgroup, piece[0]
        if kind == "dot":
            parts += 1
        elif kind in ("open", "close"):
            depth, parts = depth + (1 if kind == "open" else -1), 0
        elif kind == "end":
            parts = 0
        problem = _problem(kind, found, depth=depth, parts=parts)
        if problem is not None:
            message, expected = problem
            line = text.count("\n", 0, piece.start()) + 1
            raise error(message, file=file, line=line, expected=expected)


def _problem(kind: str | None, found: str, *, depth: int, parts: int) -> tuple[str, str] | None:
    if parts >= MOST_KEY_PARTS:
        return "a key with too many dots", f"at most {MOST_KEY_PARTS} parts"
    if depth > DEEPEST:
        return "lists or tables nested too deeply", f"at most {DEEPEST} levels"
    if kind != "word":
        return None
    if len(found) > LONGEST_NUMBER and found.lstrip("+-")[:1].isdigit():
        return f"a number of {len(found)} characters", f"at most {LONGEST_NUMBER}"
    if len(found) > LONGEST_WORD:
        return f"a name of {len(found)} characters", f"at most {LONGEST_WORD}"
    return None


HEADER = re.compile(r"\[+\s*([\w.\"-]+)\s*\]+\s*(#.*)?")


def line_of(content: bytes, field: str) -> int | None:
    """Find the 1-based line of a dotted field or of its table in TOML text."""
    table, best, length = "", None, 0
    for number, line in enumerate(content.decode(errors="replace").splitlines(), start=1):
        header = HEADER.fullmatch(line.strip())
        if header:
            table = header[1]
            name = table
        else:
            key = line.partition("=")[0].strip().strip('"') if "=" in line else ""
            name = f"{table}.{key}" if table and key else key
        is_part = name and (field == name or field.startswith(f"{name}."))
        if is_part and len(name) > length:
            best, length = number, len(name)
    return best


# Written out, values beyond these would fill a page with digits.
SMALLEST_PLAIN, LARGEST_PLAIN = 1e-15, 1e15


def significant(value: float, digits: int) -> str:
    """Write so many significant digits in decimal, or scientifically beyond real sizes."""
    if value == 0:
        return "0"
    if not SMALLEST_PLAIN <= abs(value) <= LARGEST_PLAIN:
        return f"{value:.{digits}g}"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{places}f}"
