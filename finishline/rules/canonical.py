"""Write all hashed and signed JSON in one form, RFC 8785, and read it strictly.

Equal values have equal bytes in every language: 64 and 64.0 are one number. Different numbers have
different bytes: a whole number beyond 2^53 - 1 is refused, as by I-JSON (RFC 7493, section 2.2).
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import rfc8785

from finishline.rules.errors import RuleError
from finishline.rules.text import refuse_utf16, shown

LARGEST_EXACT = 2**53 - 1
DEEPEST = 100


def canonical(value: Any) -> bytes:
    """Return the RFC 8785 form of a value. Raises RuleError on values without one.

    For example NaN, a whole number beyond 2^53 - 1, a lone surrogate, deep nesting.
    """
    try:
        return rfc8785.dumps(_checked(value, DEEPEST))
    except (ValueError, UnicodeError) as error:
        raise RuleError(f"no RFC 8785 form: {error}", expected="only JSON values") from error


def _checked(value: Any, depth: int) -> Any:
    if depth == 0:
        raise ValueError(f"nested deeper than {DEEPEST} levels")
    if isinstance(value, Mapping):
        return {name: _checked(item, depth - 1) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_checked(item, depth - 1) for item in value]
    if isinstance(value, int) and abs(value) > LARGEST_EXACT:
        raise ValueError(f"{shown(value)} is a whole number beyond {LARGEST_EXACT}")
    return value


def sha256_of(value: Any) -> str:
    """Return the SHA-256 of a value's RFC 8785 form, in hex."""
    return hashlib.sha256(canonical(value)).hexdigest()


def read_json(content: bytes, *, file: str) -> dict[str, Any]:
    """Read a JSON object that every reader understands alike. Raises RuleError for others.

    For example a repeated name, NaN, an inexact whole number, bytes outside UTF-8.
    """
    try:
        value = json.loads(
            content.decode(),
            object_pairs_hook=_once,
            parse_constant=_no_constant,
            parse_int=_whole_number,
        )
    except (ValueError, RecursionError) as error:
        refuse_utf16(content, file=file)
        raise RuleError(f"not JSON: {error}", file=file, expected="a JSON object") from error
    if not isinstance(value, dict):
        raise RuleError("not a JSON object", file=file, expected="a JSON object")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a name is given twice")
    return table


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _whole_number(text: str) -> float:
    """Read an integer. Beyond 2^53 - 1 it has to be written as the form writes a double."""
    number = int(text)
    if abs(number) <= LARGEST_EXACT:
        return number
    double = float(text)
    if rfc8785.dumps(double).decode() != text:
        raise ValueError(f"{shown(number)} is a whole number beyond {LARGEST_EXACT}")
    return double
