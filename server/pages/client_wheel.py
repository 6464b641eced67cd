"""The wheel of finishline-tta, made of the package that this server itself runs."""

import base64
import hashlib
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path, PurePath

from finishline.places import find_folder

DISTRIBUTION = "finishline-tta"
# Of an installed distribution: how and whence it was installed, which a wheel does not say.
OF_AN_INSTALLATION = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}
SHIPPED = {".py", ".toml", ".example", ".typed"}
# Beside the package in a checkout.
OF_A_CHECKOUT = {"setup.py", "pyproject.toml", "build", "files"}
DEFINITIONS = ("*.toml", "*/task.py", "*/reference/*")
# Of every file, so that the same files make the same wheel.
MADE_AT = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Wheel:
    """A wheel: its file name, its bytes and their SHA-256."""

    name: str
    content: bytes
    sha256: str


@cache
def client_wheel() -> Wheel:
    """The participant's distribution for pip, with the code that runs here."""
    found = distribution(DISTRIBUTION)
    stem = f"{DISTRIBUTION.replace('-', '_')}-{found.version}"
    record = f"{stem}.dist-info/RECORD"
    lines: list[str] = []
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted({**_package_files(), **_metadata_files()}.items()):
            _write(archive, name, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            lines.append(f"{name},sha256={digest.decode()},{len(content)}\n")
        _write(archive, record, "".join([*lines, f"{record},,\n"]).encode())
    content = target.getvalue()
    return Wheel(f"{stem}-py3-none-any.whl", content, hashlib.sha256(content).hexdigest())


def _write(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, MADE_AT), content, zipfile.ZIP_DEFLATED)


def _package_folder() -> Path:
    spec = find_spec("finishline")
    if spec is None or spec.origin is None:  # This module came with it.
        raise ModuleNotFoundError("The package finishline has no folder.")
    return Path(spec.origin).parent


def _package_files() -> dict[str, bytes]:
    """Modules and data of the package, with the definitions of benchmarks within."""
    root = _package_folder()
    definitions = find_folder(root, "benchmarks")
    named = {
        f"finishline/{path.relative_to(root).as_posix()}": path for path in _shipped_files(root)
    }
    for pattern in DEFINITIONS:
        for path in definitions.glob(pattern):
            inside = path.relative_to(definitions).as_posix()
            named[f"finishline/files/benchmarks/{inside}"] = path
    return {name: path.read_bytes() for name, path in named.items() if path.is_file()}


def _shipped_files(root: Path) -> Iterator[Path]:
    for path in root.rglob("*"):
        if path.suffix in SHIPPED and path.relative_to(root).parts[0] not in OF_A_CHECKOUT:
            yield path


def _metadata_files() -> dict[str, bytes]:
    """The files of the distribution's .dist-info that every installation has."""
    found = distribution(DISTRIBUTION)
    files = [PurePath(file) for file in found.files or ()]
    return {
        file.as_posix(): Path(str(found.locate_file(file))).read_bytes()
        for file in files
        if file.parts[0].endswith(".dist-info") and file.name not in OF_AN_INSTALLATION
    }
