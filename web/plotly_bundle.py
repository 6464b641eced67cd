"""Where the browser bundle of Plotly is installed: the smallest one that draws our charts."""

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

BUNDLE_NAME = "plotly.min.js"
# What `make charts` puts beside the code: scatter, bar and pie, a quarter of the whole bundle.
BASIC_BUNDLE = Path("node_modules/plotly.js-basic-dist-min/plotly-basic.min.js")
ROOT = Path(__file__).parent.parent
# The style element of Plotly's own rules, and those it carries whole, which it looks for by id.
GLOBAL_STYLE = "plotly.js-style-global"
_STYLE_OF_ITS_OWN = re.compile(
    r'getElementById\("([0-9a-f]{64})"\)\)\{var \w+=document\.createElement\("style"\)'
)


@cache
def plotly_bundle() -> Path:
    """The bundle to serve: the basic one where it is installed, else that of Python's plotly.

    Raises FileNotFoundError if neither is installed.
    """
    basic = ROOT / BASIC_BUNDLE
    return basic if basic.is_file() else packaged_bundle()


def packaged_bundle() -> Path:
    """The whole bundle that the installed plotly package has, found without importing plotly.

    Raises FileNotFoundError if the package or its bundle is missing.
    """
    spec = find_spec("plotly")
    folders = spec.submodule_search_locations if spec is not None else None
    for folder in folders or ():
        bundle = Path(folder) / "package_data" / BUNDLE_NAME
        if bundle.is_file():
            return bundle
    raise FileNotFoundError(f"{BUNDLE_NAME} is not in the installed plotly package: install plotly")


@cache
def style_ids() -> tuple[str, ...]:
    """Ids of the style elements that the bundle adds unless the page has them already."""
    return (GLOBAL_STYLE, *styles_in(plotly_bundle().read_text("utf-8")))


def styles_in(bundle: str) -> list[str]:
    """Ids of the style sheets that a bundle carries whole."""
    return _STYLE_OF_ITS_OWN.findall(bundle)
