"""The settings and the page that lists them."""

import re
from pathlib import Path

from server.settings import Settings

PAGE = Path(__file__).parents[2] / "docs" / "running.md"


def test_the_documents_list_every_setting_and_no_other() -> None:
    listed = re.findall(r"^\| `FINISHLINE_([A-Z0-9_]+)`", PAGE.read_text(), re.MULTILINE)

    assert sorted(listed) == sorted(name.upper() for name in Settings.model_fields)
