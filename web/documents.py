"""A folder of Markdown files as the documents of the site: a closed list, read once."""

import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from web.assets import Asset, make_asset

if TYPE_CHECKING:
    from web.markdown import Page

PREFIX = "/docs"
INDEX = "README"
DECISIONS = "decisions/"
IMAGES = "images/"
IMAGE_TYPES = (".svg", ".png")


@dataclass(frozen=True)
class Document:
    """One file: the name in its address, its text as it was written, and as a page."""

    name: str
    text: str
    page: "Page"

    @property
    def address(self) -> str:
        """Address of the document on the site."""
        return address(self.name)


@dataclass(frozen=True)
class Documents:
    """Content of a folder: documents by name in the order to read them, and images by name."""

    by_name: Mapping[str, Document] = field(default_factory=dict)
    images: Mapping[str, Asset] = field(default_factory=dict)

    def chapters(self) -> list[Document]:
        """Documents other than the index and the decisions, in the order of the index."""
        return [d for d in self.by_name.values() if d.name != INDEX and not is_decision(d.name)]

    def parts(self) -> list[tuple[str, list[Document]]]:
        """Documents under the headings of the index that link to them. Others come last."""
        linked = self.by_name[INDEX].page if INDEX in self.by_name else None
        found: dict[str, list[Document]] = {}
        for document in self.chapters():
            above = ""
            if linked is not None and (at := linked.html.find(f'href="{document.address}"')) >= 0:
                for heading in linked.headings:
                    if linked.html.find(f'id="{heading.anchor}"') < at:
                        above = heading.words
            found.setdefault(above, []).append(document)
        return list(found.items())

    def find(self, name: str) -> Document | None:
        """The document of that name, or the index of a folder of that name."""
        return self.by_name.get(name) or self.by_name.get(f"{name}/{INDEX}")


def is_decision(name: str) -> bool:
    """Whether a document is a decision record."""
    return name.startswith(DECISIONS)


def address(name: str) -> str:
    """The path of a document by name. The index is the folder's own."""
    return f"{PREFIX}/{name}".removesuffix(f"/{INDEX}")


@cache
def read_documents(folder: Path) -> Documents:
    """Everything in a folder, read once a process. Empty if there is no such folder."""
    texts = {
        path.relative_to(folder).with_suffix("").as_posix(): path.read_text(encoding="utf-8")
        for path in sorted([*folder.glob("*.md"), *folder.glob(f"{DECISIONS}*.md")])
    }
    images = {
        path.name: make_asset(path.name, path.read_bytes())
        for path in sorted(folder.glob(f"{IMAGES}*"))
        if path.suffix in IMAGE_TYPES
    }
    documents = [_document(name, text, texts, images) for name, text in texts.items()]
    by_name = {document.name: document for document in documents}
    return Documents({name: by_name[name] for name in _in_order(by_name)}, images)


def site_address(href: str, *, origin: str, names: Iterable[str], images: Iterable[str]) -> str:
    """Address on the site of a link in the document `origin`.

    A relative path to another file of the folder becomes its address. Any other link is kept.
    """
    parts = urlsplit(href)
    if parts.scheme or parts.netloc or not parts.path or parts.path.startswith("/"):
        return href
    path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), parts.path))
    name, suffix = posixpath.splitext(path)
    fragment = f"#{parts.fragment}" if parts.fragment else ""
    if suffix == ".md" and name in names:
        return address(name) + fragment
    if path.removeprefix(IMAGES) in images:
        return f"{PREFIX}/{path}"
    return href


def _document(
    name: str, text: str, texts: Mapping[str, str], images: Mapping[str, Asset]
) -> Document:
    # The first reader of a document waits for the parser's import, not the start of every server.
    from web.markdown import markdown_page

    page = markdown_page(
        text,
        address_of=lambda href: site_address(href, origin=name, names=texts, images=images),
    )
    return Document(name, text, page)


def _in_order(by_name: Mapping[str, Document]) -> list[str]:
    """The index, its linked documents in its order, the rest by name, the decisions by number."""
    linked = by_name[INDEX].page.html if INDEX in by_name else ""

    def place(name: str) -> tuple[bool, int, str]:
        found = linked.find(f'href="{address(name)}"')
        return is_decision(name), found if found >= 0 else len(linked), name

    return sorted(by_name, key=lambda name: (name != INDEX, *place(name)))
