"""TOML of strangers: bounded before it is parsed, because the parser itself has no bounds.

tomllib takes time with the square of a dotted key's parts, recurses into nested values, and gives
up on long numbers with errors of other kinds than its own.
"""

import re
import tomllib
from typing import Any

from rules.errors import RuleError

MOST_BYTES = 256 * 1024
MOST_KEY_PARTS = 16
DEEPEST = 16
LONGEST_WORD = 200
LONGEST_NUMBER = 40
# Texts and comments first: nothing counts that lies in them. Possessive, so that nothing is read
# twice whatever is left open.
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


def parse_toml(
    content: bytes, *, file: str, error: type[RuleError] = RuleError, most_bytes: int = MOST_BYTES
) -> dict[str, Any]:
    """The table that TOML text holds. Raises `error` naming the file and, where known, the line."""
    if len(content) > most_bytes:
        message = f"{len(content)} bytes"
        raise error(message, file=file, expected=f"TOML of at most {most_bytes} bytes")
    try:
        text = content.decode("utf-8")
        _check_bounds(text, file, error)
        return tomllib.loads(text)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as wrong:
        raise error(f"not TOML: {wrong}", file=file, expected="a TOML file") from wrong


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
    """What is wrong with a piece of the text, and what was expected instead."""
    if parts >= MOST_KEY_PARTS:
        return "a key with too many dots", f"at most {MOST_KEY_PARTS} parts"
    if depth > DEEPEST:
        return "lists or tables nested too deeply", f"at most {DEEPEST} within each other"
    if kind != "word":
        return None
    if len(found) > LONGEST_NUMBER and found.lstrip("+-")[:1].isdigit():
        return f"a number of {len(found)} characters", f"at most {LONGEST_NUMBER}"
    if len(found) > LONGEST_WORD:
        return f"a name of {len(found)} characters", f"at most {LONGEST_WORD}"
    return None
