"""`training.toml`: the name, module, environment, licence and factors of a training package."""

from collections.abc import Mapping
from typing import Annotated, Literal, get_args

from pydantic import Field, StringConstraints

from finishline.rules.benchmarks.definition_tables import MANIFEST as FILE
from finishline.rules.errors import RuleError
from finishline.rules.table import Table, Text
from finishline.rules.text import parse_toml

__all__ = ["FILE", "Manifest", "PackageError", "read_manifest"]

A_LINE = "one line of at most 100 characters"
Line = Annotated[Text, StringConstraints(max_length=100, pattern=r"^[^\n]*$")]
Precision = Literal["fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8", "mixed"]
Factor = Annotated[str, StringConstraints(pattern="^[a-z][a-z0-9_]{0,31}$")]


class PackageError(RuleError):
    """A training package breaks a rule."""


class Manifest(Table):
    """A package's manifest. `factors` are ideas that can be switched off, with their words."""

    schema_: int = Field(alias="schema", ge=1, le=1, description="1", exclude=True, repr=False)
    benchmark: Line = Field(description=A_LINE)
    title: Line = Field(description=A_LINE)
    module: Annotated[
        Text, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$")
    ] = Field(description="a dotted name, as in train or mine.train")
    environment: Line = Field(description=A_LINE)
    licence: Annotated[Text, StringConstraints(pattern="^[A-Za-z0-9][A-Za-z0-9.+-]{0,63}$")] = (
        Field(alias="license", description="an SPDX identifier, as in MIT")
    )
    based_on: Annotated[Text, StringConstraints(pattern="^sha256:[0-9a-f]{64}$")] | None = Field(
        None, description="sha256: and 64 hex digits"
    )
    deterministic: bool = Field(default=False, description="true or false")
    precision: Precision | None = Field(None, description=" or ".join(get_args(Precision)))
    factors: Mapping[Factor, Line] | None = Field(
        None, max_length=8, description="lower case, as in muon"
    )


def read_manifest(content: bytes, *, file: str = FILE) -> Manifest:
    """Read `training.toml`. Raises a RuleError that lists every problem with file and field."""
    return Manifest.read(
        parse_toml(content, file=file, error=PackageError), file=file, error=PackageError
    )
