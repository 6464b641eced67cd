"""`training.toml`: the name, module, environment, licence and factors of a training package."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from finishline.rules.errors import RuleError
from finishline.rules.fields import Fields, read_whole
from finishline.rules.text import parse_toml

FILE = "training.toml"
SCHEMA = 1
LONGEST_TITLE = 100
MOST_FACTORS = 8
PRECISIONS = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8", "mixed")
_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_FACTOR = re.compile(r"[a-z][a-z0-9_]{0,31}")
_SHA256 = re.compile(r"sha256:[0-9a-f]{64}")
_LICENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]{0,63}")


class PackageError(RuleError):
    """A training package breaks a rule."""


@dataclass(frozen=True)
class Manifest:
    """A package's manifest. `factors` are ideas that can be switched off, with their words."""

    benchmark: str
    title: str
    module: str
    environment: str
    licence: str
    based_on: str | None = None
    deterministic: bool = False
    precision: str | None = None
    factors: Mapping[str, str] | None = None


def read_manifest(content: bytes, *, file: str = FILE) -> Manifest:
    """Read `training.toml`. Raises a RuleError that lists every problem with file and field."""
    root = Fields(parse_toml(content, file=file, error=PackageError), file=file, error=PackageError)
    dotted = "a dotted name, as in train or mine.train"
    spdx = "an SPDX identifier, as in MIT"
    digest = "sha256: and 64 hex digits"
    return read_whole(
        root,
        lambda _schema, **told: Manifest(**told),
        {
            "_schema": lambda: _schema(root),
            "benchmark": lambda: _short(root, "benchmark"),
            "title": lambda: _short(root, "title"),
            "module": lambda: _matching(root, "module", _MODULE, dotted),
            "environment": lambda: _short(root, "environment"),
            "licence": lambda: _matching(root, "license", _LICENCE, spdx),
            "based_on": lambda: _optional(root, "based_on", _SHA256, digest),
            "deterministic": lambda: root.boolean("deterministic", default=False),
            "precision": lambda: _precision(root),
            "factors": lambda: _factors(root.optional_table("factors")),
        },
    )


def _schema(root: Fields) -> int:
    schema = root.integer("schema")
    if schema != SCHEMA:
        raise root.fail("schema", "another schema", expected=str(SCHEMA))
    return schema


def _precision(root: Fields) -> str | None:
    return root.choice("precision", PRECISIONS) if root.has("precision") else None


def _short(root: Fields, name: str) -> str:
    text = root.text(name)
    if len(text) > LONGEST_TITLE or "\n" in text:
        expected = f"one line of at most {LONGEST_TITLE} characters"
        raise root.fail(name, f"{len(text)} characters", expected=expected)
    return text


def _matching(root: Fields, name: str, pattern: re.Pattern[str], expected: str) -> str:
    text = root.text(name)
    if not pattern.fullmatch(text):
        raise root.fail(name, f"got {text[:80]!r}", expected=expected)
    return text


def _optional(root: Fields, name: str, pattern: re.Pattern[str], expected: str) -> str | None:
    return _matching(root, name, pattern, expected) if root.has(name) else None


def _factors(table: Fields | None) -> dict[str, str] | None:
    if table is None:
        return None
    names = [name for name, _ in table.items()]
    if len(names) > MOST_FACTORS:
        raise table.fail(
            names[MOST_FACTORS], "too many factors", expected=f"at most {MOST_FACTORS}"
        )
    return read_whole(table, dict, {name: partial(_factor, table, name) for name in names})


def _factor(table: Fields, name: str) -> str:
    if not _FACTOR.fullmatch(name):
        raise table.fail(name, "not a factor's name", expected="lower case, as in muon")
    return _short(table, name)
