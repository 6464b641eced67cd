"""Markdown to HTML for the documents: no tag of the text gets through, no style comes out."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from markdown_it import MarkdownIt
from markdown_it.token import Token

LONGEST_DESCRIPTION = 200
PARSER = MarkdownIt("commonmark", {"html": False}).enable("table")
_OPTION = re.compile("(?<![^ ])-[^ ]+")
_INLINE_CODE = re.compile("(?<!<pre>)<code>([^<]*)</code>")
# The text is escaped, so these tags are the parser's.
LOOKS = (
    (r"<table>", '<div class="scroll" tabindex="0" role="group" aria-label="Table">\n<table>'),
    (r"</table>", "</table>\n</div>"),
    (r"<pre><code[^>]*>", '<pre class="command" tabindex="0"><code>'),
    (r' style="text-align:right"', ' class="r num"'),
    (r' style="[^"]*"', ""),
    # The contents lead there too, so this is for the mouse alone.
    (
        r'(<h[2-6] id="([^"]*)">.*)(</h[2-6]>)',
        r'\1 <a class="anchor" href="#\2" aria-hidden="true" tabindex="-1">#</a>\3',
    ),
)


@dataclass(frozen=True)
class Heading:
    """A heading below the title, and the anchor that leads to it."""

    level: int
    words: str
    anchor: str


@dataclass(frozen=True)
class Page:
    """A text as HTML. `title` is its first heading and not in `html`. `description` is plain."""

    title: str
    description: str
    html: str
    headings: tuple[Heading, ...]


def markdown_page(text: str, *, address_of: Callable[[str], str] = str) -> Page:
    """A Markdown text (CommonMark and tables) as HTML, each link and image led by `address_of`."""
    tokens = PARSER.parse(text)
    title = ""
    if tokens and tokens[0].type == "heading_open" and tokens[0].tag == "h1":
        title, tokens = _words_of(tokens[1]), tokens[3:]
    headings = tuple(_anchored(tokens))
    for token in (child for each in tokens for child in each.children or ()):
        if name := {"link_open": "href", "image": "src"}.get(token.type):
            token.attrSet(name, address_of(str(token.attrGet(name))))
    html = PARSER.renderer.render(tokens, PARSER.options, {})
    html = _INLINE_CODE.sub(_unbroken_options, html)
    for found, look in LOOKS:
        html = re.sub(found, look, html)
    return Page(title, _first_paragraph(tokens), html, headings)


def anchor_of(words: str) -> str:
    """The anchor of a heading, as GitHub makes it: `## Run logs` is found at `#run-logs`."""
    return re.sub(r"[^\w\- ]", "", words.strip().lower()).replace(" ", "-")


def _anchored(tokens: Sequence[Token]) -> Iterator[Heading]:
    """Every heading, once its token carries an anchor of its own."""
    taken = {"", "main"}  # The addresses of a page's own parts are not for its text to take.
    for place, token in enumerate(tokens):
        if token.type != "heading_open":
            continue
        words = _words_of(tokens[place + 1])
        wanted = anchor_of(words)
        names = [wanted, *(f"{wanted}-{number}" for number in range(1, len(tokens)))]
        anchor = next(name for name in names if name not in taken)
        taken.add(anchor)
        token.attrSet("id", anchor)
        yield Heading(int(token.tag[1:]), words, anchor)


def _words_of(inline: Token) -> str:
    kept = (child for child in inline.children or () if child.type in ("text", "code_inline"))
    return "".join(child.content for child in kept)


def _first_paragraph(tokens: Sequence[Token]) -> str:
    for place, token in enumerate(tokens):
        if token.type == "paragraph_open":
            words = "".join(
                child.content or " " * child.type.endswith("break")
                for child in tokens[place + 1].children or ()
                if child.type != "image"
            )
            return _cut(words)
    return ""


def _cut(words: str) -> str:
    if len(words) <= LONGEST_DESCRIPTION:
        return words
    return words[:LONGEST_DESCRIPTION].rsplit(" ", 1)[0].rstrip(",;:") + " …"


def _unbroken_options(code: re.Match[str]) -> str:
    # A browser may end a line after any hyphen. An option keeps its two.
    kept = _OPTION.sub(lambda match: f"<span>{match[0]}</span>", code[1])
    return f"<code>{kept}</code>"
