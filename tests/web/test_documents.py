from pathlib import Path

import pytest

from web.documents import read_documents, site_address

NAMES = {"README", "rules", "decisions/0001-one"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
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


def test_documents_stand_in_the_order_of_the_index(folder: Path) -> None:
    documents = read_documents(folder)

    assert [document.name for document in documents.chapters()] == ["b", "a", "aa"]
    assert [document.name for document in documents.decisions()] == ["decisions/0001-one"]


def test_links_between_files_lead_to_pages_and_those_to_images_to_images(folder: Path) -> None:
    documents = read_documents(folder)

    html = documents.by_name["a"].page.html
    assert '<img src="/docs/images/p.svg"' in html
    assert 'href="/docs/decisions/0001-one#why"' in html
    assert 'href="gone.md"' in html
    assert 'href="/docs/a"' in documents.by_name["decisions/0001-one"].page.html


def test_nothing_but_documents_and_images_is_in_the_list(folder: Path) -> None:
    documents = read_documents(folder)

    assert set(documents.by_name) == {"README", "a", "aa", "b", "decisions/0001-one"}
    assert set(documents.images) == {"p.svg"}


def test_a_missing_folder_holds_nothing(tmp_path: Path) -> None:
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
def test_a_link_of_the_index_leads(href: str, expected: str) -> None:
    assert site_address(href, origin="README", names=NAMES, images={"p.svg"}) == expected
