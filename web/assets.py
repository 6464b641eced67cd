"""Static files under names that change with their content, Plotly's bundle among them."""

import gzip
import hashlib
import re
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path

BUNDLE_NAME = "plotly.min.js"
# Bundle that `make charts` puts beside the code: scatter, bar and pie, a quarter of the whole one.
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


STATIC_PREFIX = "/static/"
STATIC_FOLDER = Path(__file__).parent / "static"
MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
}
_FINGERPRINTED = re.compile(r"([0-9a-f]{16})/([^/]+)")


@dataclass(frozen=True)
class Asset:
    """A file ready to be sent, as it is or with `Content-Encoding: gzip`.

    `immutable` tells that the address it was asked for names its content, so that a browser may
    keep it for ever; otherwise it has to ask again with `etag`.
    """

    name: str
    content: bytes
    gzip_content: bytes
    media_type: str
    etag: str
    immutable: bool


def static_asset(path: str) -> Asset | None:
    """The asset at a path below /static/, or None if there is none.

    `<fingerprint>/style.css` is immutable while the fingerprint fits; `style.css` and an outdated
    fingerprint (a page that was open during an update) give the current file, to be asked again.
    """
    match = _FINGERPRINTED.fullmatch(path)
    asked, name = match.groups() if match else (None, path)
    if name not in asset_names():
        return None
    return replace(_asset(name), immutable=asked == _fingerprint_of(name))


def static_url(name: str) -> str:
    """The immutable address of a static file. Raises FileNotFoundError on an unknown name."""
    if name not in asset_names():
        raise FileNotFoundError(f"no static file is named {name!r}")
    return f"{STATIC_PREFIX}{_fingerprint_of(name)}/{name}"


@cache
def asset_names() -> frozenset[str]:
    """Every name that can be asked for: a closed list, so no path can lead out of it."""
    ours = {path.name for path in STATIC_FOLDER.iterdir() if path.suffix in MEDIA_TYPES}
    return frozenset(ours | {BUNDLE_NAME})


def fingerprint(content: bytes) -> str:
    """16 hex digits that stand for the content."""
    return hashlib.sha256(content).hexdigest()[:16]


def make_asset(name: str, content: bytes) -> Asset:
    """A file's content made ready to be sent."""
    return Asset(
        name=name,
        content=content,
        gzip_content=gzip.compress(content, compresslevel=9, mtime=0),
        media_type=MEDIA_TYPES[Path(name).suffix],
        etag=f'"{fingerprint(content)}"',
        immutable=False,
    )


def _path_of(name: str) -> Path:
    return plotly_bundle() if name == BUNDLE_NAME else STATIC_FOLDER / name


@cache
def _fingerprint_of(name: str) -> str:
    return fingerprint(_path_of(name).read_bytes())


@cache
def _asset(name: str) -> Asset:
    return make_asset(name, _path_of(name).read_bytes())
