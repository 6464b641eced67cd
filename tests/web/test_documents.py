"""Documents, citations, badges, feeds and files that pages need."""

import gzip
import hashlib
import re
from xml.etree import ElementTree
from xml.etree import ElementTree as ET

import pytest

from web.assets import (
    BUNDLE_NAME,
    STATIC_FOLDER,
    asset_names,
    make_asset,
    static_asset,
    static_url,
    style_ids,
)
from web.citation import badge_svg, bibtex, escape_tex, plain_citation, printable, text_width
from web.documents import read_documents, site_address
from web.feed import ATOM, Feed, FeedEntry, atom_feed, record_entry, verdict_entry
from web.markdown import anchor_of, markdown_page

NAMES = {"README", "rules", "decisions/0001-one"}


@pytest.fixture
def folder(tmp_path):
    """An index that names two of three documents, a decision and an image."""
    files = {
        "README.md": "# All\n\n[second](b.md) then [first](a.md)\n",
        "a.md": "# A\n\n![x](images/p.svg) [d](decisions/0001-one.md#why) [gone](gone.md)\n",
        "b.md": "# B\n",
        "aa.md": "# Not in the index\n",
        "decisions/0001-one.md": "# One\n\n[back](../a.md)\n",
        "images/p.svg": "<svg/>",
        "images/notes.txt": "no image",
        "secret.txt": "not a document",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_documents_stand_in_the_order_of_the_index(folder):
    documents = read_documents(folder)

    assert [document.name for document in documents.chapters()] == ["b", "a", "aa"]
    assert [document.name for document in documents.decisions()] == ["decisions/0001-one"]


def test_links_between_files_lead_to_pages_and_those_to_images_to_images(folder):
    documents = read_documents(folder)

    html = documents.by_name["a"].page.html
    assert '<img src="/docs/images/p.svg"' in html
    assert 'href="/docs/decisions/0001-one#why"' in html
    assert 'href="gone.md"' in html
    assert 'href="/docs/a"' in documents.by_name["decisions/0001-one"].page.html


def test_nothing_but_documents_and_images_is_in_the_list(folder):
    documents = read_documents(folder)

    assert set(documents.by_name) == {"README", "a", "aa", "b", "decisions/0001-one"}
    assert set(documents.images) == {"p.svg"}


def test_a_missing_folder_holds_nothing(tmp_path):
    assert read_documents(tmp_path / "nothing").by_name == {}


@pytest.mark.parametrize(
    ("href", "expected"),
    [
        ("rules.md", "/docs/rules"),
        ("rules.md#clock-lens", "/docs/rules#clock-lens"),
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
def test_a_link_of_the_index_leads(href, expected):
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


def test_a_text_becomes_a_title_a_description_and_what_follows():
    page = markdown_page(TEXT)

    assert page.title == "A title with code"
    assert page.description == "The first paragraph, over two lines, with a link."
    assert "<h1" not in page.html
    assert page.html.startswith("<p>The first paragraph")


def test_two_headings_alike_have_anchors_of_their_own():
    page = markdown_page(TEXT)

    assert [heading.anchor for heading in page.headings] == ["run-logs", "run-logs-1"]
    assert '<h2 id="run-logs">' in page.html
    assert '<h2 id="run-logs-1">' in page.html


def test_an_anchor_is_the_one_github_makes():
    # Of headings with links to them on GitHub: spaces to hyphens, other marks gone.
    assert anchor_of("What is in it?") == "what-is-in-it"
    assert anchor_of("`up --json`, twice") == "up---json-twice"


def test_a_heading_never_takes_an_address_of_the_page_itself():
    assert [h.anchor for h in markdown_page("## Main\n\n## ?\n").headings] == ["main-1", "-1"]


def test_links_and_images_are_led():
    page = markdown_page(TEXT, address_of=lambda href: f"/here/{href}")

    assert 'href="/here/other.md#part"' in page.html
    assert '<img src="/here/images/a.svg" alt="what it shows"' in page.html


def test_a_table_scrolls_alone_and_has_no_style_attribute():
    page = markdown_page(TEXT)

    label = 'role="group" aria-label="Table 1: key, seconds"'
    assert f'<div class="scroll" tabindex="0" {label}>\n<table>' in page.html
    assert '<td class="r num">12</td>' in page.html
    assert "style=" not in page.html


def test_code_is_text_as_it_was_written():
    page = markdown_page("```\na < b && c\n```\n")

    assert page.html == '<pre class="command"><code>a &lt; b &amp;&amp; c\n</code></pre>\n'


def test_an_option_keeps_its_hyphens_on_one_line():
    html = markdown_page("`verify A-B --dry-run <x> -q`").html

    assert html == (
        "<p><code>verify A-B <span>--dry-run</span> &lt;x&gt; <span>-q</span></code></p>\n"
    )


def test_code_too_wide_for_a_phone_can_be_scrolled_by_keyboard():
    assert '<pre class="command" tabindex="0"><code>finishline' in markdown_page(TEXT).html


def test_no_tag_and_no_script_of_a_text_gets_through():
    page = markdown_page(
        "# <b>x</b>\n\n<script>alert(1)</script>\n\n[a](javascript:alert(1)) <img src=x>\n\n"
        '## <i onclick="x">\n\n| <b> |\n|---|\n| "><script> |\n'
    )

    for tag in ("<script", "<img", "<b>", "<i", 'href="javascript'):
        assert tag not in page.html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page.html
    assert page.title == "<b>x</b>"


def test_a_long_description_ends_at_a_word():
    description = markdown_page("word " * 100).description

    assert len(description) <= 202
    assert description.endswith("word …")


ADDRESS = "https://example.org/submissions/sub-1"


def balanced(text):
    """Whether the braces that are not escaped close each other."""
    depth = 0
    for place, character in enumerate(text):
        if character in "{}" and (place == 0 or text[place - 1] != "\\"):
            depth += 1 if character == "{" else -1
        if depth < 0:
            return False
    return depth == 0


def test_a_citation_names_who_what_when_and_where(make):
    entry = bibtex(make["submission"](), ADDRESS)

    assert entry.startswith("@misc{finishline-sub-1,\n  author = {{alice}},\n")
    assert "title = {{digits-cnn on EPYC 7B13: time to accuracy on digits}}" in entry
    assert "year = {2026}" in entry
    assert r"howpublished = {\url{https://example.org/submissions/sub-1}}" in entry
    assert "Time to accuracy 0.853 s, closed division" in entry
    plain = plain_citation(make["submission"](submitted_on="2017-10-11"), ADDRESS)
    assert plain.startswith("alice (2017). digits-cnn on EPYC 7B13: time to accuracy on digits. ")
    assert plain.endswith(ADDRESS)


def test_a_citation_says_what_the_badge_says_of_the_status(make):
    unranked = {**make["submission"]()["result"], "tta_seconds": None}
    withdrawn = make["submission"](
        result=unranked,
        withdrawal={"by": "alice", "at": "2026-11-20T10:00:00Z", "reason": "wrong logs"},
    )
    assert "Target not reached, closed division, rules digits 1.0, withdrawn." in plain_citation(
        withdrawn, ADDRESS
    )
    agrees = make["submission"](evidence="claimed", check="epochs_agree")
    assert "rules digits 1.0, claimed · epochs agree." in plain_citation(agrees, ADDRESS)
    assert "rules digits 1.0, claimed · epochs agree." in bibtex(agrees, ADDRESS)


def test_no_name_is_a_command_or_ends_its_field(make):
    hostile = "}},\n note={\\input{/etc/passwd}} 100% of #1 & $x_2^3$ ~<é>\x07"
    entry = bibtex(make["submission"](model=hostile, submitter=hostile), ADDRESS)

    assert balanced(entry)
    assert len(entry.splitlines()) == 7
    assert r"\input" not in entry
    assert "\x07" not in entry


def test_each_special_character_of_tex_is_escaped():
    assert escape_tex(r"a_b & 5% #1 $x$ {y} ~ ^ \z") == (
        r"a\_b \& 5\% \#1 \$x\$ \{y\} \textasciitilde{} \textasciicircum{} \textbackslash{}z"
    )


def test_an_inference_is_cited_by_its_latency(make):
    assert "Latency 9.78 ms" in bibtex(make["inference_submission"](), ADDRESS)


SVG = "{http://www.w3.org/2000/svg}"


CLAIMED = {"evidence": "claimed", "check": "none"}


GREEN = "#126b3a"


def drawn(submission):
    return ElementTree.fromstring(badge_svg(submission).encode())  # noqa: S314  our own


def test_a_badge_says_benchmark_evidence_and_our_time(make):
    root = drawn(make["submission"](measured_seconds=0.9))

    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert texts == ["digits", "measured · 0.900 s"]
    assert root.get("role") == "img"
    title = root.find(f"{SVG}title")
    assert title is not None
    assert title.text == "EPYC 7B13 · alice two-core laptop on digits: measured · 0.900 s"
    assert root.get("aria-labelledby") == title.get("id")


@pytest.mark.parametrize("check", ["none", "epochs_agree", "undecided", "contradicted"])
def test_a_badge_of_a_claim_shows_no_time_and_is_never_green(make, check):
    svg = badge_svg(make["submission"](evidence="claimed", check=check, status="verified"))

    assert "0.853" not in svg
    assert GREEN not in svg
    assert "claimed" in svg


def test_a_badge_shows_no_time_of_what_may_not_rank(make):
    submission = make["submission"](**CLAIMED)
    submission["result"] = submission["result"] | {"eligible": False}

    words = "".join(drawn(submission).itertext())

    assert "claimed · not ranked" in words
    assert "0.853" not in words


def test_the_parts_of_a_badge_are_as_wide_as_their_texts(make):
    root = drawn(make["submission"]())
    left, right = root.iter(f"{SVG}text")
    label, state = list(root.iter(f"{SVG}rect"))[1:]

    width = float(left.get("textLength", ""))
    assert float(state.get("x", "")) == pytest.approx(width + 14, abs=0.11)
    assert float(right.get("x", "")) == pytest.approx(width + 21, abs=0.11)
    assert float(label.get("width", "")) == pytest.approx(float(root.get("width", "")), abs=0.01)


# By the advance widths of Verdana: i 562, W 2025, m 1992 of 2048 to the em, at 11 px.
@pytest.mark.parametrize(
    ("text", "pixels"), [("i", 3.02), ("W", 10.88), ("mm", 21.4), ("名", 11.0), ("e\u0301", 6.55)]
)
def test_a_text_is_as_wide_as_its_font_makes_it(text, pixels):
    assert text_width(text) == pytest.approx(pixels, abs=0.02)


def test_what_xml_cannot_hold_is_left_out():
    assert printable("a\x00b\x1f \n c\ud800") == "ab c"


def test_an_inference_shows_its_latency_and_a_miss_says_so(make):
    met = make["inference_submission"](result={"reached": True, "eligible": True}, **CLAIMED)
    assert "claimed" in badge_svg(met)
    assert "9.78" not in badge_svg(met)
    assert "target not reached" in badge_svg(make["inference_submission"]())
    assert "target not reached" in badge_svg(make["bare_submission"]())


ATOM_NAMES = {"a": ATOM}


DIGITS = {"id": "digits", "title": "Digits"}


def entry(**changes):
    known = {
        "subject": "record sub-1",
        "path": "/submissions/sub-1",
        "title": "Digits: record of 0.853 s by alice",
        "summary": "digits-cnn reached the target.",
        "author": "alice",
        "updated": "2026-11-20T10:00:00Z",
        "categories": ("record", "digits"),
    }
    return FeedEntry(**(known | changes))


def read(*entries, base="https://example.org"):
    feed = Feed(base, "/feed.atom", "/", "Finishline", entries)
    return ET.fromstring(atom_feed(feed))  # noqa: S314  it was written a line above


def text(element, path):
    found = element.find(path, ATOM_NAMES)
    assert found is not None
    assert found.text
    return found.text


def test_a_feed_has_what_rfc_4287_asks_of_it():
    # Section 4.1.1: one id, title and updated, an author, a link to itself; 4.1.2 for an entry.
    feed = read(entry(), entry(subject="record sub-2", updated="2026-11-21"))

    assert feed.tag == f"{{{ATOM}}}feed"
    assert text(feed, "a:updated") == "2026-11-21T00:00:00Z"
    assert text(feed, "a:author/a:name") == "Finishline"
    links = {link.get("rel"): link.get("href") for link in feed.findall("a:link", ATOM_NAMES)}
    assert links == {
        "self": "https://example.org/feed.atom",
        "alternate": "https://example.org/",
    }
    first = feed.find("a:entry", ATOM_NAMES)
    assert first is not None
    assert text(first, "a:title") == "Digits: record of 0.853 s by alice"
    assert text(first, "a:updated") == "2026-11-20T10:00:00Z"
    assert text(first, "a:author/a:name") == "alice"
    link = first.find("a:link", ATOM_NAMES)
    assert link is not None
    assert link.get("href") == "https://example.org/submissions/sub-1"
    assert [c.get("term") for c in first.findall("a:category", ATOM_NAMES)] == ["record", "digits"]


def test_an_id_stays_when_the_site_moves_and_no_two_are_alike():
    here, there = (
        [text(one, "a:id") for one in read(entry(), entry(subject="x"), base=base)[6:]]
        for base in ("http://127.0.0.1:8000", "https://example.org")
    )

    assert here == there
    assert len(set(here)) == 2
    assert all(one.startswith("urn:uuid:") for one in here)


def test_a_feed_without_entries_is_whole():
    assert text(read(), "a:updated") == "1970-01-01T00:00:00Z"


def test_a_record_tells_what_it_beat(make):
    first = record_entry(DIGITS, "closed", make["record"]())
    assert first.title == "Digits: record of 0.853\u00a0s by alice"
    assert first.summary.endswith("(closed division, measured), the first record.")

    elsewhere = record_entry(DIGITS, "closed", make["record"](evidence="published"))
    assert "(closed division, published)" in elsewhere.summary
    better = make["record"](beaten="sub-0", margin_percent=12.34, p_value=0.0123, tries=4)
    summary = record_entry(DIGITS, "closed", better).summary
    assert summary.endswith(
        ", 12.3\u00a0% below the record before, one-sided p = 0.012, at try 4 of its submitter."
    )


def test_a_verdict_tells_its_outcome_and_reason(make):
    told = verdict_entry(DIGITS, make["verdict_line"](kind="duel", outcome="not_separable"))

    assert told.title == "Digits: EPYC 7B13 by alice, duel: not separable"
    assert told.summary == "3 of 3 replays reached top1Accuracy 97.5"
    assert told.path == "/verifications/ver-1"
    unreasoned = verdict_entry(DIGITS, make["verdict_line"](reason=None))
    assert unreasoned.summary == "The outcome is: verified."


def test_every_asset_is_smaller_compressed_and_unpacks_to_itself():
    for name in asset_names():
        asset = static_asset(name)
        assert asset is not None
        assert gzip.decompress(asset.gzip_content) == asset.content
        if len(asset.content) > 1000:
            assert len(asset.gzip_content) < len(asset.content)


# Of plotly.js-basic-dist-min 4.1.1, as its authors publish it.
PLOTLY_SHA256 = "99784e3abfb07b142a15e521a439e6d9addceadb3f79553fd24c72774f0649ba"


def test_the_plotly_bundle_is_the_published_one_with_its_licence():
    asset = static_asset(static_url(BUNDLE_NAME).removeprefix("/static/"))
    assert asset is not None
    assert asset.immutable
    assert asset.media_type == "text/javascript; charset=utf-8"
    assert hashlib.sha256(asset.content).hexdigest() == PLOTLY_SHA256
    assert len(asset.gzip_content) < 400_000
    licence = static_asset("plotly-LICENSE.txt")
    assert licence is not None
    assert licence.content.startswith(b"MIT License\n\nCopyright (c) 2016-2024 Plotly Technologies")


def test_every_style_element_the_bundle_would_add_is_known():
    text = (STATIC_FOLDER / BUNDLE_NAME).read_text("utf-8")
    made = len(re.findall(r"""createElement\(["']style["']\)""", text))

    # One that its own rules are written into; the others are the sheets it carries whole.
    assert '"plotly.js-style-"' in text
    assert made == len(style_ids())


def test_addresses_change_with_the_content():
    first, second = make_asset("a.css", b"a{}"), make_asset("a.css", b"b{}")
    assert first.etag != second.etag
    assert first.etag == make_asset("a.css", b"a{}").etag


def test_an_outdated_address_gives_the_current_file_but_not_for_ever():
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
def test_nothing_but_the_listed_names_is_served(path):
    assert static_asset(path) is None


def test_an_unknown_name_has_no_address():
    with pytest.raises(FileNotFoundError, match=r"nothing\.css"):
        static_url("nothing.css")
