"""Static files under names that change with their content, Plotly's bundle among them."""

import gzip
import hashlib
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

# Plotly's smallest bundle. Its licence is in the same folder.
BUNDLE_NAME = "plotly-basic.min.js"
# The style element of Plotly's own rules, and those it carries whole, which it looks for by id.
GLOBAL_STYLE = "plotly.js-style-global"
_STYLE_OF_ITS_OWN = re.compile(
    r'getElementById\("([0-9a-f]{64})"\)\)\{var \w+=document\.createElement\("style"\)'
)


@cache
def style_ids() -> tuple[str, ...]:
    """Ids of the style elements that the bundle adds unless the page has them already."""
    bundle = (STATIC_FOLDER / BUNDLE_NAME).read_text("utf-8")
    return (GLOBAL_STYLE, *_STYLE_OF_ITS_OWN.findall(bundle))


STATIC_PREFIX = "/static/"
STATIC_FOLDER = Path(__file__).parent / "static"
MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}
_OF_FILE = re.compile(r"url\(([\w-]+\.woff2)\)")
_FINGERPRINTED = re.compile(r"([0-9a-f]{16})/([^/]+)")


@dataclass(frozen=True)
class Asset:
    """A file ready to be sent, as it is or with `Content-Encoding: gzip`.

    A browser may keep an `immutable` one for ever, and asks again with `etag` for any other.
    """

    name: str
    content: bytes
    gzip_content: bytes
    media_type: str
    etag: str
    immutable: bool


def static_asset(path: str) -> Asset | None:
    """The asset at a path below /static/, if there is one.

    `<fingerprint>/style.css` is immutable while the fingerprint fits. `style.css` and an outdated
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
    return frozenset(p.name for p in STATIC_FOLDER.iterdir() if p.suffix in MEDIA_TYPES)


def fingerprint(content: bytes) -> str:
    """16 hex digits of the content."""
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


@cache
def _fingerprint_of(name: str) -> str:
    return fingerprint(_content_of(name))


@cache
def _asset(name: str) -> Asset:
    return make_asset(name, _content_of(name))


def _content_of(name: str) -> bytes:
    """A file, in which a style sheet names other files by their immutable addresses."""
    content = (STATIC_FOLDER / name).read_bytes()
    if not name.endswith(".css"):
        return content
    return _OF_FILE.sub(lambda found: f"url({static_url(found[1])})", content.decode()).encode()
