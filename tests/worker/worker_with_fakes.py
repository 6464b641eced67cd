"""`python -m worker` whose training processes know the fake trainers, for tests only."""

import sys
from functools import partial
from pathlib import Path

import worker.__main__
from worker.child_process import Host

CHILD = (sys.executable, str(Path(__file__).with_name("child_with_fakes.py")))

if __name__ == "__main__":
    worker.__main__.Host = partial(Host, command=CHILD)
    sys.exit(worker.__main__.main())
