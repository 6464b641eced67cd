import gzip

import pytest

from web.assets import asset_names, make_asset, plotly_bundle, static_asset, static_url


def test_every_asset_is_smaller_compressed_and_unpacks_to_itself() -> None:
    for name in asset_names():
        asset = static_asset(name)
        assert asset is not None
        assert gzip.decompress(asset.gzip_content) == asset.content
        if len(asset.content) > 1000:
            assert len(asset.gzip_content) < len(asset.content)


def test_the_plotly_bundle_that_is_installed_is_served() -> None:
    asset = static_asset(static_url("plotly.min.js").removeprefix("/static/"))
    assert asset is not None
    assert asset.immutable
    assert asset.media_type == "text/javascript; charset=utf-8"
    assert asset.content == plotly_bundle().read_bytes()
    assert len(asset.gzip_content) < 2_000_000


def test_addresses_change_with_the_content() -> None:
    first, second = make_asset("a.css", b"a{}"), make_asset("a.css", b"b{}")
    assert first.etag != second.etag
    assert first.etag == make_asset("a.css", b"a{}").etag


def test_an_outdated_address_gives_the_current_file_but_not_for_ever() -> None:
    asset = static_asset("0123456789abcdef/style.css")
    assert asset is not None
    assert not asset.immutable
    assert static_asset("style.css") == asset


@pytest.mark.parametrize(
    "path",
    [
        "",
        "nothing.css",
        "0123456789abcdef/nothing.css",
        "../render.py",
        "../templates/base.html",
        "0123456789abcdef/../../render.py",
        "0123456789abcdef/..%2Frender.py",
        "/etc/passwd",
        "0123456789abcdef//etc/passwd",
        "style.css/",
        "style.css\x00",
        "..\\render.py",
    ],
)
def test_nothing_but_the_listed_names_is_served(path: str) -> None:
    assert static_asset(path) is None


def test_an_unknown_name_has_no_address() -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing\.css"):
        static_url("nothing.css")
