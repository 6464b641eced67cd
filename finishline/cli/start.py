"""Enter the command: Ctrl-C is a sentence even while the rest is imported."""

import sys
from importlib import import_module


def main() -> int:
    """Run one command. Returns its exit code."""
    try:
        command = import_module("finishline.cli.main")
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted by Ctrl-C.\n")
        return 130
    return int(command.main())
