"""Which bundle of Plotly is served, and what it would add to a page."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from web import assets as plotly_bundle

ROOT = Path(__file__).parents[2]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(plotly_bundle, "ROOT", tmp_path)
    plotly_bundle.plotly_bundle.cache_clear()
    yield tmp_path
    plotly_bundle.plotly_bundle.cache_clear()


def test_the_basic_bundle_is_served_where_it_is_installed(root: Path) -> None:
    basic = root / "node_modules" / "plotly.js-basic-dist-min" / "plotly-basic.min.js"
    basic.parent.mkdir(parents=True)
    basic.write_text("// plotly")

    assert plotly_bundle.plotly_bundle() == basic


def test_without_npm_the_bundle_of_the_python_package_is_served(root: Path) -> None:
    served = plotly_bundle.plotly_bundle()

    assert served.parts[-3:] == ("plotly", "package_data", "plotly.min.js")
    assert b"plotly.js v" in served.read_bytes()[:200]


def installed_bundles() -> list[Path]:
    basic = ROOT / plotly_bundle.BASIC_BUNDLE
    return [plotly_bundle.packaged_bundle(), *([basic] if basic.is_file() else [])]


@pytest.mark.parametrize("bundle", installed_bundles(), ids=lambda path: path.name)
def test_every_style_element_a_bundle_would_add_is_known(bundle: Path) -> None:
    text = bundle.read_text("utf-8")
    made = len(re.findall(r"""createElement\(["']style["']\)""", text))

    # One that its own rules are written into; the others are the sheets it carries whole.
    assert '"plotly.js-style-"' in text
    assert made == 1 + len(plotly_bundle.styles_in(text))


def test_npm_and_python_install_the_same_plotly() -> None:
    pinned = json.loads((ROOT / "package.json").read_text())["dependencies"]
    packaged = plotly_bundle.packaged_bundle().read_text("utf-8")[:300]

    assert f"plotly.js v{pinned['plotly.js-basic-dist-min']}\n" in packaged
