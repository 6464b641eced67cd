"""Find the benchmark definitions: next to this folder in a checkout, inside it in an sdist."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.sdist import sdist

HERE = Path(__file__).parent
BESIDE, WITHIN = "../benchmarks", "files/benchmarks"
FOUND = WITHIN if (HERE / WITHIN).is_dir() else BESIDE


class SourceArchive(sdist):
    """Add the definitions to the sdist, so you can build a wheel from it."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        shutil.copytree(HERE / FOUND, Path(base_dir) / WITHIN, dirs_exist_ok=True)


setup(
    cmdclass={"sdist": SourceArchive},
    script_name="setup.py",  # Outside the package.
    package_dir={"finishline": ".", "finishline.files.benchmarks": FOUND},
)
