"""The documents of the site: all there, every link of them answered, nothing else of the disk."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from server.app import create_app
from server.base.places import SOURCE
from server.base.settings import Settings

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
DOCS = SOURCE / "docs"


class Anchors(HTMLParser):
    """The links and the ids of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]
        self.ids += [value or "" for name, value in attrs if name == "id"]


def addresses() -> Iterator[str]:
    for path in sorted(DOCS.rglob("*.md")):
        name = path.relative_to(DOCS).with_suffix("").as_posix()
        yield "/docs" if name == "README" else f"/docs/{name}"


def test_every_document_is_a_page_and_every_link_of_it_leads_somewhere(client: TestClient) -> None:
    pages = {address: client.get(address, headers=BROWSER) for address in addresses()}
    read = {address: Anchors(page.text) for address, page in pages.items()}

    sources = {f"/docs/{path.relative_to(DOCS).as_posix()}" for path in DOCS.rglob("*.md")}
    assert len(pages) > 10
    for address, page in pages.items():
        assert page.status_code == 200, address
        assert len(set(read[address].ids)) == len(read[address].ids), address
        assert "style=" not in page.text, address
        for link in read[address].links:
            path, _, fragment = link.partition("#")
            if fragment:
                assert fragment in read[path or address].ids, f"{address} links to {link}"
            if link.startswith("/docs") and not path.startswith("/docs/images/"):
                assert path in (*pages, "/docs/api", *sources), f"{address} links to {link}"
            else:
                assert not path.endswith(".md"), f"{address} links to {link}"


def test_every_link_of_the_readme_leads_to_a_file_and_a_part_of_it(client: TestClient) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#([^)]+))?\)", (SOURCE / "README.md").read_text())

    assert len(links) > 15
    for link, part in links:
        assert (SOURCE / link).is_file(), link
        if part:
            page = client.get(f"/{link.removesuffix('.md')}", headers=BROWSER)
            assert part in Anchors(page.text).ids, f"{link}#{part}"


def test_the_index_leads_to_every_document_and_lists_decisions_last(client: TestClient) -> None:
    page = client.get("/docs", headers=BROWSER).text
    article = page[page.index("<article") : page.index("</article>")]

    links = Anchors(article).links
    assert set(addresses()) - {"/docs"} <= set(links)
    decisions = [place for place, link in enumerate(links) if "/decisions/" in link]
    assert decisions == list(range(len(links) - len(decisions) - 1, len(links) - 1))
    assert "<title>Documents · Finishline</title>" in page


def test_a_document_says_what_a_shared_link_shows(client: TestClient) -> None:
    page = client.get("/docs/submitting", headers=BROWSER).text

    sentence = "A submission is one JSON file and one log for each run."
    assert f'<meta name="description" content="{sentence}">' in page
    assert f'<meta property="og:description" content="{sentence}">' in page
    assert '<meta property="og:title" content="Submitting · Finishline">' in page
    assert '<link rel="canonical" href="/docs/submitting">' in page


def test_a_document_is_there_as_it_was_written(client: TestClient) -> None:
    response = client.get("/docs/rules.md")

    assert response.headers["content-type"] == "text/markdown; charset=utf-8"
    assert response.text == (DOCS / "rules.md").read_text()


def test_an_image_is_served_and_asked_for_once(client: TestClient) -> None:
    image = "/docs/images/leaderboard.png"
    response = client.get(image)

    assert response.status_code == 200
    assert response.headers["content-type"].startswith("image/png")
    known = {"If-None-Match": response.headers["etag"]}
    assert client.get(image, headers=known).status_code == 304


@pytest.mark.parametrize(
    "path",
    [
        "nothing",
        "../pyproject.toml",
        "%2e%2e/README.md",
        "..%2f..%2fREADME.md",
        "images/..%2frules.md",
        "images/nothing.png",
        "decisions",
        "%00",
    ],
)
def test_nothing_but_documents_is_served(path: str, client: TestClient) -> None:
    assert client.get(f"/docs/{path}", headers=BROWSER).status_code == 404


def test_a_server_without_its_documents_says_so(settings: Settings, tmp_path: Path) -> None:
    bare = settings.model_copy(update={"docs_dir": tmp_path / "nothing"})
    with TestClient(create_app(bare, dispatch=False)) as client:
        page = client.get("/docs", headers=BROWSER)

        assert page.status_code == 404
        assert "FINISHLINE_DOCS_DIR" in page.text
        assert client.get("/docs/api").status_code == 200


def test_crawlers_and_old_browsers_are_answered(client: TestClient) -> None:
    robots = client.get("/robots.txt")
    assert robots.headers["content-type"].startswith("text/plain")
    assert "Disallow: /api/" in robots.text

    icon = client.get("/favicon.ico")
    assert icon.headers["content-type"] == "image/svg+xml"
