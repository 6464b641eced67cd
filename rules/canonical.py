"""One text for one value: what hashes and signatures are made over."""

import hashlib
import json
from typing import Any

from rules.errors import RuleError


def canonical(value: Any) -> bytes:
    """The canonical JSON of a value: keys sorted, no spaces, UTF-8, numbers as Python writes them.

    Raises RuleError on what JSON has no word for: NaN, infinity, a lone surrogate.
    """
    try:
        text = json.dumps(
            value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
        return text.encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise RuleError(f"no canonical JSON: {error}", expected="values that JSON has") from error


def sha256_of(value: Any) -> str:
    """SHA-256 over the canonical JSON of a value, in hex."""
    return hashlib.sha256(canonical(value)).hexdigest()


def read_json(content: bytes, *, file: str) -> dict[str, Any]:
    """A JSON object that can be read in one way only.

    A name given twice, NaN and infinity are refused. Raises RuleError naming the file.
    """
    try:
        value = json.loads(content, object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
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
    raise ValueError(f"{name} is no JSON")
