"""Markdown to HTML for the documents: no tag of the text gets through, no style comes out."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from itertools import takewhile

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

LONGEST_DESCRIPTION = 200
_OPTION = re.compile("(?<![^ ])-[^ ]+")
_PHONE_COLUMNS = 40  # A code line longer than this has to be scrolled on a phone.


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
    tokens = _parser().parse(text)
    title, tokens = _without_title(tokens)
    headings = tuple(_anchored(tokens))
    for token in _everything(tokens):
        _lead(token, address_of)
        _align_by_class(token)
    html = _parser().renderer.render(tokens, _parser().options, {})
    return Page(title, _first_paragraph(tokens), html, headings)


def anchor_of(words: str) -> str:
    """The anchor of a heading, as GitHub makes it: `## Run logs` is found at `#run-logs`."""
    return re.sub(r"[^\w\- ]", "", words.strip().lower()).replace(" ", "-")


@cache
def _parser() -> MarkdownIt:
    made = MarkdownIt("commonmark", {"html": False}).enable("table")
    for name, rule in RULES.items():
        made.add_render_rule(name, rule)
    return made


def _without_title(tokens: list[Token]) -> tuple[str, list[Token]]:
    if tokens and tokens[0].type == "heading_open" and tokens[0].tag == "h1":
        return _words_of(tokens[1]), tokens[3:]
    return "", tokens


def _anchored(tokens: Sequence[Token]) -> Iterator[Heading]:
    """Every heading, once its tokens carry an anchor of their own."""
    taken: set[str] = set()
    for place, token in enumerate(tokens):
        if token.type != "heading_open":
            continue
        words = _words_of(tokens[place + 1])
        wanted = anchor_of(words)
        # The addresses of a page's own parts are not for its text to take.
        names = [wanted, *(f"{wanted}-{number}" for number in range(1, len(tokens)))]
        anchor = next(name for name in names if name not in taken and name not in ("", "main"))
        taken.add(anchor)
        token.attrSet("id", anchor)
        tokens[place + 2].meta["anchor"] = anchor
        yield Heading(int(token.tag[1:]), words, anchor)


def _everything(tokens: Sequence[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from token.children or ()


def _lead(token: Token, address_of: Callable[[str], str]) -> None:
    name = {"link_open": "href", "image": "src"}.get(token.type)
    if name is not None:
        token.attrSet(name, address_of(str(token.attrGet(name))))


def _align_by_class(token: Token) -> None:
    """Aligned cells get a class: the pages allow no style attribute."""
    style = token.attrs.pop("style", None)
    if style == "text-align:right":
        token.attrSet("class", "r num")


def _words_of(inline: Token) -> str:
    kept = (child for child in inline.children or () if child.type in ("text", "code_inline"))
    return "".join(child.content for child in kept)


def _first_paragraph(tokens: Sequence[Token]) -> str:
    for place, token in enumerate(tokens):
        if token.type == "paragraph_open":
            inline = tokens[place + 1]
            words = " ".join(
                child.content if child.type in ("text", "code_inline") else " "
                for child in inline.children or ()
                if child.type in ("text", "code_inline", "softbreak", "hardbreak")
            )
            return _cut(re.sub(r"\s+([.,;:)])", r"\1", re.sub(r"\s+", " ", words)).strip())
    return ""


def _cut(words: str) -> str:
    if len(words) <= LONGEST_DESCRIPTION:
        return words
    return words[:LONGEST_DESCRIPTION].rsplit(" ", 1)[0].rstrip(",;:") + " …"


def _table_open(
    _self: RendererHTML, tokens: Sequence[Token], place: int, _options: OptionsDict, _env: EnvType
) -> str:
    number = sum(token.type == "table_open" for token in tokens[: place + 1])
    columns = ", ".join(_column_names(tokens[place:]))
    label = escape(f"Table {number}: {columns}" if columns else f"Table {number}")
    return f'<div class="scroll" tabindex="0" role="group" aria-label="{label}">\n<table>\n'


def _column_names(table: Sequence[Token]) -> list[str]:
    """Column names of a table's head, from the tokens that begin with the table."""
    head = takewhile(lambda token: token.type != "thead_close", table)
    return [words for token in head if token.type == "inline" and (words := _words_of(token))]


def _table_close(
    _self: RendererHTML, _tokens: Sequence[Token], _place: int, _options: OptionsDict, _env: EnvType
) -> str:
    return "</table>\n</div>\n"


def _heading_close(
    _self: RendererHTML, tokens: Sequence[Token], place: int, _options: OptionsDict, _env: EnvType
) -> str:
    # The contents beside the text lead there too, so this is for the mouse alone.
    anchor = tokens[place].meta["anchor"]
    mark = f' <a class="anchor" href="#{escape(anchor)}" aria-hidden="true" tabindex="-1">#</a>'
    return f"{mark}</{tokens[place].tag}>\n"


def _code(
    _self: RendererHTML, tokens: Sequence[Token], place: int, _options: OptionsDict, _env: EnvType
) -> str:
    content = tokens[place].content
    is_wide = any(len(line) > _PHONE_COLUMNS for line in content.splitlines())
    reach = ' tabindex="0"' if is_wide else ""
    return f'<pre class="command"{reach}><code>{escape(content, quote=False)}</code></pre>\n'


def _inline_code(
    _self: RendererHTML, tokens: Sequence[Token], place: int, _options: OptionsDict, _env: EnvType
) -> str:
    # A browser may end a line after any hyphen. An option keeps its two.
    words = escape(tokens[place].content, quote=False)
    kept = _OPTION.sub(lambda match: f"<span>{match[0]}</span>", words)
    return f"<code>{kept}</code>"


RULES = {
    "code_inline": _inline_code,
    "table_open": _table_open,
    "table_close": _table_close,
    "heading_close": _heading_close,
    "fence": _code,
    "code_block": _code,
}
