"""The host's gcc, as boxes see it whose environment names one: programs, headers, libraries."""

import functools
import subprocess
from pathlib import Path

from worker.box.packages import Bind

PROGRAM = "/usr/bin/g++"
# Found by their links, which lead out of what a box sees.
PROGRAMS = (PROGRAM, "/usr/bin/as", "/usr/bin/ld")
FOLDERS = ("/usr/lib/gcc", "/usr/libexec/gcc", "/usr/include")
VARIABLES = {
    "PATH": "/usr/bin",  # In a box these programs alone.
    "CXX": PROGRAM,
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",  # It needs the program openssl.
}


@functools.cache
def gcc_version() -> str | None:
    """The version of the host's gcc in three numbers, None if it or its linker is not here."""
    if not all(Path(name).is_file() for name in PROGRAMS):
        return None
    told = subprocess.run(
        [PROGRAM, "-dumpfullversion"], capture_output=True, text=True, check=False
    )
    return told.stdout.strip() or None


def compiler_binds() -> list[Bind]:
    """Binds of the compiler for a box."""
    return [
        *(Bind(Path(name).resolve(), name) for name in PROGRAMS),
        *(Bind(Path(name), name) for name in FOLDERS if Path(name).is_dir()),
    ]
