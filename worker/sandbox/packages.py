"""The read-only files that a sandbox sees: interpreter, system libraries, packages, gcc.

Packages are listed one by one, because the labels of a benchmark may be in another package.
"""

import functools
import platform
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path, PurePosixPath

# Folder of packages in the sandbox.
SITE = "/packages"
# Below the interpreter's library folder: the host's packages, and parts without use in a training.
MASKED = ("site-packages", "dist-packages", "test", "idlelib", "tkinter", "turtledemo", "ensurepip")


class PackageMissingError(Exception):
    """A package of an environment is missing or has another version."""


@dataclass(frozen=True)
class Bind:
    """A file or folder of the host, and its path in the sandbox."""

    source: Path
    target: str


def package_binds(packages: dict[str, str | None]) -> list[Bind]:
    """Bind the packages' files. A version of None is any. Raises PackageMissingError."""
    binds: dict[str, Bind] = {}
    for name, version in packages.items():
        for bind in _binds_of(name, version):
            binds[bind.target] = bind
    return list(binds.values())


def _binds_of(name: str, version: str | None) -> list[Bind]:
    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        raise PackageMissingError(f"{name} is not installed") from None
    if version is not None and found.version != version:
        raise PackageMissingError(f"{name} {found.version} is installed; expected {version}")
    tops = {PurePosixPath(str(file)).parts[0] for file in found.files or ()}
    root = Path(str(found.locate_file("")))
    return [
        Bind(root / top, f"{SITE}/{top}")
        for top in sorted(tops)
        if top not in ("..", "__pycache__") and not top.endswith(".pth") and (root / top).exists()
    ]


def requirements_of(names: Iterable[str]) -> dict[str, str]:
    """Return the installed versions of packages and all their requirements."""
    found: dict[str, str] = {}
    todo = list(names)
    while todo:
        name = re.sub(r"[-_.]+", "-", todo.pop()).lower()
        if name in found:
            continue
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        found[name] = package.version
        for requirement in package.requires or ():
            if "extra ==" not in requirement:
                todo.append(re.split(r"[\s;<>=!~\[(]", requirement, maxsplit=1)[0])
    return dict(sorted(found.items()))


def interpreter_binds() -> tuple[list[Bind], str]:
    """Bind this interpreter with its standard library. Returns its program in the sandbox too.

    An environment binds the interpreter that made it, because its own may be a copy.
    """
    program = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    base = Path(sys.base_prefix).resolve()
    if base == Path("/usr"):
        folders = [base / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}"]
    else:  # Parts of it: pyenv keeps environments, with labels in them, in other folders below.
        folders = [base / name for name in ("lib", "lib64", "include")]
    return [Bind(program, str(program)), *_existing(folders)], str(program)


def _existing(folders: Iterable[Path]) -> list[Bind]:
    return [Bind(folder, str(folder)) for folder in folders if folder.is_dir()]


def masked_folders(binds: Iterable[Bind]) -> list[str]:
    """List folders of packages inside the binds, which empty folders will cover."""
    found = []
    for bind in binds:
        if not bind.source.is_dir():
            continue
        for folder in (bind.source, *bind.source.glob("python3*")):
            inside = PurePosixPath(bind.target) / folder.relative_to(bind.source)
            found += [str(inside / name) for name in MASKED if (folder / name).is_dir()]
    return list(dict.fromkeys(found))


def library_binds() -> tuple[list[Bind], list[tuple[str, str]]]:
    """Bind the system's shared libraries. Also returns the root folder's links: (goal, link).

    `/usr/local`, which has an image's own packages, is left out.
    """
    multiarch = sysconfig.get_config_var("MULTIARCH") or f"{platform.machine()}-linux-gnu"
    folders = [Path("/usr/lib") / multiarch]
    if not folders[0].is_dir():
        folders = [Path("/usr/lib64"), Path("/usr/lib")]
    elif Path("/usr/lib64").is_dir():
        folders.append(Path("/usr/lib64"))
    links = [
        (str(path.readlink()), str(path))
        for path in (Path("/lib"), Path("/lib64"))
        if path.is_symlink()
    ]
    cache = Path("/etc/ld.so.cache")
    return _existing(folders) + ([Bind(cache, str(cache))] if cache.exists() else []), links


PROGRAM = "/usr/bin/g++"
# Bound by name, because their links lead out of the sandbox.
PROGRAMS = (PROGRAM, "/usr/bin/as", "/usr/bin/ld")
FOLDERS = ("/usr/lib/gcc", "/usr/libexec/gcc", "/usr/include")
COMPILER_VARIABLES = {
    "PATH": "/usr/bin",  # In a sandbox only these programs.
    "CXX": PROGRAM,
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",  # It would need the program openssl.
}


@functools.cache
def gcc_version() -> str | None:
    """Return the version of the host's gcc in three numbers, if gcc and its linker are there."""
    if not all(Path(name).is_file() for name in PROGRAMS):
        return None
    told = subprocess.run(
        [PROGRAM, "-dumpfullversion"], capture_output=True, text=True, check=False
    )
    return told.stdout.strip() or None


def compiler_binds() -> list[Bind]:
    return [
        *(Bind(Path(name).resolve(), name) for name in PROGRAMS),
        *(Bind(Path(name), name) for name in FOLDERS if Path(name).is_dir()),
    ]
