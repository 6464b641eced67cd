"""The entry point of the command: Ctrl-C is a sentence while the rest is imported, too."""

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
