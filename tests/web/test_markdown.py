from web.markdown import anchor_of, markdown_page

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


def test_a_text_becomes_a_title_a_description_and_what_follows() -> None:
    page = markdown_page(TEXT)

    assert page.title == "A title with code"
    assert page.description == "The first paragraph, over two lines, with a link."
    assert "<h1" not in page.html
    assert page.html.startswith("<p>The first paragraph")


def test_two_headings_alike_have_anchors_of_their_own() -> None:
    page = markdown_page(TEXT)

    assert [heading.anchor for heading in page.headings] == ["run-logs", "run-logs-1"]
    assert '<h2 id="run-logs">' in page.html
    assert '<h2 id="run-logs-1">' in page.html


def test_an_anchor_is_the_one_github_makes() -> None:
    # Of headings with links to them on GitHub: spaces to hyphens, other marks gone.
    assert anchor_of("What is in it?") == "what-is-in-it"
    assert anchor_of("`up --json`, twice") == "up---json-twice"


def test_a_heading_never_takes_an_address_of_the_page_itself() -> None:
    assert [h.anchor for h in markdown_page("## Main\n\n## ?\n").headings] == ["main-1", "-1"]


def test_links_and_images_are_led() -> None:
    page = markdown_page(TEXT, address_of=lambda href: f"/here/{href}")

    assert 'href="/here/other.md#part"' in page.html
    assert '<img src="/here/images/a.svg" alt="what it shows"' in page.html


def test_a_table_scrolls_alone_and_has_no_style_attribute() -> None:
    page = markdown_page(TEXT)

    label = 'role="group" aria-label="Table 1: key, seconds"'
    assert f'<div class="scroll" tabindex="0" {label}>\n<table>' in page.html
    assert '<td class="r num">12</td>' in page.html
    assert "style=" not in page.html


def test_code_is_text_as_it_was_written() -> None:
    page = markdown_page("```\na < b && c\n```\n")

    assert page.html == '<pre class="command"><code>a &lt; b &amp;&amp; c\n</code></pre>\n'


def test_an_option_keeps_its_hyphens_on_one_line() -> None:
    html = markdown_page("`verify A-B --dry-run <x> -q`").html

    assert html == (
        "<p><code>verify A-B <span>--dry-run</span> &lt;x&gt; <span>-q</span></code></p>\n"
    )


def test_code_too_wide_for_a_phone_can_be_scrolled_by_keyboard() -> None:
    assert '<pre class="command" tabindex="0"><code>finishline' in markdown_page(TEXT).html


def test_no_tag_and_no_script_of_a_text_gets_through() -> None:
    page = markdown_page(
        "# <b>x</b>\n\n<script>alert(1)</script>\n\n[a](javascript:alert(1)) <img src=x>\n\n"
        '## <i onclick="x">\n\n| <b> |\n|---|\n| "><script> |\n'
    )

    for tag in ("<script", "<img", "<b>", "<i", 'href="javascript'):
        assert tag not in page.html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page.html
    assert page.title == "<b>x</b>"


def test_a_long_description_ends_at_a_word() -> None:
    description = markdown_page("word " * 100).description

    assert len(description) <= 202
    assert description.endswith("word …")
