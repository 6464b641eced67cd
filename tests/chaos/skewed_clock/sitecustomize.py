"""A clock that runs half as fast again in training processes, while a file says so.

Python imports this module at its start where its folder is on the path.
"""

import os
import sys
import time
from pathlib import Path

if any("child" in argument for argument in sys.orig_argv):
    skew_file = Path(os.environ.get("CHAOS_SKEW_FILE", "/nonexistent"))
    if skew_file.exists():
        skew_file.unlink(missing_ok=True)
        real = time.perf_counter
        time.perf_counter = lambda: 1.5 * real()
