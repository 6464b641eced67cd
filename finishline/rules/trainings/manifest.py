"""Read `training.toml`: name, module, environment, licence and factors of a code submission.

The name of an environment, such as `numpy-2.4` or `torch-2.13-cpu`, has a family, its version, and
for torch the device it was built for. A name ending in `-gcc` has a C++ compiler too. A worker
offers its installed environments.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from finishline.rules.errors import RuleError
from finishline.rules.table import Text, like, read_table
from finishline.rules.text import parse_toml

FILE = "training.toml"
Line = Annotated[Text, like(".{1,100}", "one line of at most 100 characters")]
Precision = Literal["fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8", "mixed"]
Factor = Annotated[str, like("[a-z][a-z0-9_]{0,31}", "lower case, as in muon")]
_MODULE = r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*"
Module = Annotated[Text, like(_MODULE, "a dotted name, as in train or mine.train")]
Licence = Annotated[Text, like("[A-Za-z0-9][A-Za-z0-9.+-]{0,63}", "an SPDX identifier, as in MIT")]
Parent = Annotated[Text, like("sha256:[0-9a-f]{64}", "sha256: and 64 hex digits")]


class PackageError(RuleError):
    """A code submission breaks a rule."""


class Manifest(BaseModel):
    """A code submission's manifest. `factors` are ideas that can be switched off, with words."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    schema_: int = Field(alias="schema", ge=1, le=1, description="1", exclude=True, repr=False)
    benchmark: Line
    title: Line
    module: Module
    environment: Line
    licence: Licence = Field(alias="license")
    based_on: Parent | None = None
    deterministic: bool = False
    precision: Precision | None = None
    factors: Mapping[Factor, Line] | None = Field(None, max_length=8)


def read_manifest(content: bytes) -> Manifest:
    """Read `training.toml`. Raises a RuleError that lists every problem with file and field."""
    table = parse_toml(content, file=FILE, error=PackageError)
    return read_table(Manifest, table, file=FILE, error=PackageError)


NAME = re.compile(
    r"(?P<family>[a-z]+)-(?P<version>\d+\.\d+)(-(?P<build>cpu|cuda|rocm))?(-(?P<compiler>gcc))?"
)


@dataclass(frozen=True)
class Family:
    """Packages that are installed together: distributions, import names, modules loaded early."""

    distributions: tuple[str, ...]
    imports: tuple[str, ...]
    preload: tuple[str, ...] = ()


FAMILIES: Mapping[str, Family] = {
    "numpy": Family(("numpy",), ("numpy",)),
    "torch": Family(
        ("torch", "numpy"),
        ("torch", "numpy", "sympy", "networkx"),
        preload=("torch", "torch._dynamo"),
    ),
}
EXAMPLES = "numpy-2.4 or torch-2.13-cpu"
COMPILING = "torch-2.13-cpu-gcc"


def family_of(environment: str) -> Family | None:
    """Return the family of an environment by its name, if it is known."""
    match = NAME.fullmatch(environment)
    return FAMILIES.get(match["family"]) if match is not None else None


def has_compiler(environment: str) -> bool:
    """Whether the name of an environment says that it has a compiler of C++."""
    match = NAME.fullmatch(environment)
    return match is not None and match["compiler"] is not None
