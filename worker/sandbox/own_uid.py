"""A uid of its own for the boxes of a worker that runs as root.

Under bubblewrap started by root, the box's inner user is root outside: it could write the kernel's
settings, and no limit to processes would hold.
"""

import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

# The uid that a box of a root worker has on the host: no file and no other process is its own.
BOX_UID = 64_999
# Of a box's programs; nothing of the worker's own path.
SEARCHED = "/usr/sbin:/usr/bin:/sbin:/bin"
# A private mount namespace in which root shows the box's uid files below folders closed to it.
STAGE = """
set -e
mount -t tmpfs -o mode=755,size=1m stage "$1"
stage=$1; shift
n=0
while [ "$1" != -- ]; do
    if [ -d "$1" ]; then mkdir "$stage/$n"; else : > "$stage/$n"; fi
    mount --bind "$1" "$stage/$n"
    mount -o remount,bind,ro "$stage/$n"
    n=$((n+1)); shift
done
shift
exec "$@"
"""


def through(command: list[str], sources: Iterable[Path], stage: str) -> list[str]:
    """The command through the uid, after root has staged these files for it by their numbers."""
    return [
        "unshare", "--mount", "--propagation", "private",
        "/bin/sh", "-c", STAGE, "stage", stage, *map(str, sources), "--",
        "setpriv", f"--reuid={BOX_UID}", f"--regid={BOX_UID}", "--clear-groups",
        "--inh-caps=-all", "--bounding-set=-all", "--",
        *command,
    ]  # fmt: skip


def is_allowed() -> bool:
    """Whether root may start a program through the uid on this host."""
    with tempfile.TemporaryDirectory() as stage:
        try:
            tried = subprocess.run(
                through(["true"], [Path(__file__)], stage),
                env={"PATH": SEARCHED},
                stderr=subprocess.DEVNULL,
                check=False,
            )
        except OSError:
            return False
    return tried.returncode == 0
