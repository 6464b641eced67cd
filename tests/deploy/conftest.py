"""The compose file and the Dockerfile, parsed."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def compose():
    """docker-compose.yml, its anchors and merges resolved."""
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text())


@pytest.fixture(scope="session")
def dockerfile():
    """The instructions of each stage of the Dockerfile, FROM first, continuation lines joined."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    stages = {}
    for line in text.splitlines():
        if start := re.match(r"FROM \S+ AS ([\w-]+)", line):
            stages[start.group(1)] = []
        if line and not line.startswith("#"):
            stages[list(stages)[-1]].append(line.strip())
    return stages
