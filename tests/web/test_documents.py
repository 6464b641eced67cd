"""Documents as pages, and the static files of pages."""

import gzip
import hashlib
import re

import pytest

from web.assets import (
    BUNDLE_NAME,
    STATIC_FOLDER,
    asset_names,
    static_asset,
    static_url,
    style_ids,
)
from web.documents import site_address
from web.markdown import anchor_of, markdown_page

NAMES = {"README", "rules", "decisions/0001-one"}


@pytest.mark.parametrize(
    ("href", "expected"),
    [
        ("rules.md", "/docs/rules"),
        ("rules.md#what-if-views", "/docs/rules#what-if-views"),
        ("README.md", "/docs"),
        ("./decisions/0001-one.md", "/docs/decisions/0001-one"),
        ("images/p.svg", "/docs/images/p.svg"),
        ("#here", "#here"),
        ("/workers", "/workers"),
        ("https://example.org/rules.md", "https://example.org/rules.md"),
        ("../../rules.md", "../../rules.md"),
        ("rules.txt", "rules.txt"),
    ],
)
def test_link_of_the_index_leads(href, expected):
    assert site_address(href, origin="README", names=NAMES, images={"p.svg"}) == expected


TEXT = """# A title with `code`

The first paragraph, over
two lines, with a [link](other.md#part).

## Run logs

| key | seconds |
|---|---:|
| `eval_start` | 12 |

## Run logs

```sh
finishline submit runs/mine --set batch_size=32 --set x=1
```

![what it shows](images/a.svg)
"""


def test_text_has_title_and_description():
    page = markdown_page(TEXT)

    assert page.title == "A title with code"
    assert page.description == "The first paragraph, over two lines, with a link."
    assert "<h1" not in page.html
    assert page.html.startswith("<p>The first paragraph")


def test_equal_headings_have_their_own_anchors():
    page = markdown_page(TEXT)

    assert [heading.anchor for heading in page.headings] == ["run-logs", "run-logs-1"]
    assert '<h2 id="run-logs">' in page.html
    assert '<h2 id="run-logs-1">' in page.html


def test_anchor_is_githubs():
    # Of headings with links to them on GitHub: spaces to hyphens, other marks gone.
    assert anchor_of("What is in it?") == "what-is-in-it"
    assert anchor_of("`up --json`, twice") == "up---json-twice"


def test_heading_takes_no_address_of_the_page():
    assert [h.anchor for h in markdown_page("## Main\n\n## ?\n").headings] == ["main-1", "-1"]


def test_links_and_images_are_led():
    page = markdown_page(TEXT, address_of=lambda href: f"/here/{href}")

    assert 'href="/here/other.md#part"' in page.html
    assert '<img src="/here/images/a.svg" alt="what it shows"' in page.html


def test_code_is_text():
    html = markdown_page("```\na < b && c\n```\n").html

    assert html == '<pre class="command" tabindex="0"><code>a &lt; b &amp;&amp; c\n</code></pre>\n'


def test_option_keeps_its_hyphens():
    html = markdown_page("`verify A-B --dry-run <x> -q`").html

    assert html == (
        "<p><code>verify A-B <span>--dry-run</span> &lt;x&gt; <span>-q</span></code></p>\n"
    )


def test_no_tag_of_a_text_gets_through():
    page = markdown_page(
        "# <b>x</b>\n\n<script>alert(1)</script>\n\n[a](javascript:alert(1)) <img src=x>\n\n"
        '## <i onclick="x">\n\n| <b> |\n|---|\n| "><script> |\n'
    )

    for tag in ("<script", "<img", "<b>", "<i", 'href="javascript'):
        assert tag not in page.html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page.html
    assert page.title == "<b>x</b>"


def test_long_description_ends_at_a_word():
    description = markdown_page("word " * 100).description

    assert len(description) <= 202
    assert description.endswith("word …")


def test_assets_unpack_to_themselves():
    for name in asset_names():
        asset = static_asset(name)
        assert asset is not None
        assert gzip.decompress(asset.gzip_content) == asset.content
        if len(asset.content) > 1000:
            assert len(asset.gzip_content) < len(asset.content)


# Of plotly.js-basic-dist-min 4.1.1, as its authors publish it.
PLOTLY_SHA256 = "99784e3abfb07b142a15e521a439e6d9addceadb3f79553fd24c72774f0649ba"


def test_plotly_is_the_published_one():
    asset = static_asset(static_url(BUNDLE_NAME).removeprefix("/static/"))
    assert asset is not None
    assert asset.immutable
    assert asset.media_type == "text/javascript; charset=utf-8"
    assert hashlib.sha256(asset.content).hexdigest() == PLOTLY_SHA256
    assert len(asset.gzip_content) < 400_000
    licence = static_asset("plotly-LICENSE.txt")
    assert licence is not None
    assert licence.content.startswith(b"MIT License\n\nCopyright (c) 2016-2024 Plotly Technologies")


def test_styles_of_plotly_are_known():
    text = (STATIC_FOLDER / BUNDLE_NAME).read_text("utf-8")
    made = len(re.findall(r"""createElement\(["']style["']\)""", text))

    # One that its own rules are written into; the others are the sheets it carries whole.
    assert '"plotly.js-style-"' in text
    assert made == len(style_ids())


def test_outdated_address_gives_the_current_file():
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
def test_only_listed_names_are_served(path):
    assert static_asset(path) is None
