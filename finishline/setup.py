"""The benchmark definitions: beside this folder in a checkout, within it in a source archive."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.sdist import sdist

HERE = Path(__file__).parent
BESIDE, WITHIN = "../benchmarks", "files/benchmarks"
FOUND = WITHIN if (HERE / WITHIN).is_dir() else BESIDE


class SourceArchive(sdist):
    """A source archive with the definitions within, so that a wheel can be built of it alone."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Copy the sources, then the definitions."""
        super().make_release_tree(base_dir, files)
        shutil.copytree(HERE / FOUND, Path(base_dir) / WITHIN, dirs_exist_ok=True)


setup(
    cmdclass={"sdist": SourceArchive},
    script_name="setup.py",  # Which is no module of the package.
    package_dir={"finishline": ".", "finishline.files.benchmarks": FOUND},
)
