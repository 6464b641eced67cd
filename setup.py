"""Packages of finishline-server; the files that the server reads become server.files.*."""

from setuptools import find_packages, setup

ROOMS = ["server*", "worker*", "web*", "reference_models*"]
FILES = {f"server.files.{name}": name for name in ("benchmarks", "docs")}

setup(
    packages=[*find_packages(include=ROOMS), "migrations", "migrations.versions", *FILES],
    package_dir=FILES,
)
