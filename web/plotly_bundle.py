"""Where the installed plotly package keeps its browser bundle."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

BUNDLE_NAME = "plotly.min.js"


@cache
def plotly_bundle() -> Path:
    """The plotly.min.js of the installed package, found without importing plotly.

    Raises FileNotFoundError if the package or its bundle is missing.
    """
    spec = find_spec("plotly")
    folders = spec.submodule_search_locations if spec is not None else None
    for folder in folders or ():
        bundle = Path(folder) / "package_data" / BUNDLE_NAME
        if bundle.is_file():
            return bundle
    raise FileNotFoundError(f"{BUNDLE_NAME} is not in the installed plotly package: install plotly")
