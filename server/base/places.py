"""Folders and files that the server reads, in a checkout and in a wheel."""

from pathlib import Path

from finishline.places import find_folder

PACKAGE = Path(__file__).resolve().parents[1]
SOURCE = PACKAGE.parent
BENCHMARKS = find_folder(PACKAGE, "benchmarks")
DOCS = find_folder(PACKAGE, "docs")
MIGRATIONS = SOURCE / "migrations"
