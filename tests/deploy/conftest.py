"""The compose file and the Dockerfile, parsed."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def compose() -> dict[str, Any]:
    """docker-compose.yml, its anchors and merges resolved."""
    parsed: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return parsed


@pytest.fixture(scope="session")
def dockerfile() -> dict[str, list[str]]:
    """The instructions of each stage of the Dockerfile, FROM first, continuation lines joined."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    stages: dict[str, list[str]] = {}
    for line in text.splitlines():
        if start := re.match(r"FROM \S+ AS ([\w-]+)", line):
            stages[start.group(1)] = []
        if line and not line.startswith("#"):
            stages[list(stages)[-1]].append(line.strip())
    return stages
