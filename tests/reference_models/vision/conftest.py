"""Tests that need torchvision: `make test-vision` runs them in a virtual environment of its own."""

from importlib.util import find_spec

if find_spec("torchvision") is None:
    collect_ignore_glob = ["test_*.py"]
