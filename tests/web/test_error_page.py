"""What an error page says: what happened, and what to do about it."""

from collections.abc import Callable
from typing import Any

import pytest

from web.render import render

Read = Callable[[str], str]


def error_page(status: int, *, detail: str = "It went wrong.", field: str | None = None) -> str:
    problem: dict[str, Any] = {"field": field, "message": "not one of those there are"}
    problems = [problem] if field is not None else []
    return render("error.html", status=status, title="T", detail=detail, problems=problems)


@pytest.mark.parametrize(
    ("status", "field", "link", "words"),
    [
        (404, None, '<a href="/docs">', "among the benchmarks"),
        (422, "query.sort", '<a href="?">', "without its filters"),
        (422, "claim.runs", '<a href="/">', "Back to the benchmarks"),
        (500, None, '<a href="">', "report to this server's operator"),
        (429, None, '<a href="">', "again in a moment"),
        (503, None, '<a href="">', "again in a moment"),
        (403, None, '<a href="/">', "Back to the benchmarks"),
    ],
)
def test_an_error_page_says_what_to_do(
    status: int, field: str | None, link: str, words: str, read: Read
) -> None:
    page = error_page(status, field=field)
    main = page[page.index("<main") : page.index("</main>")]

    assert "It went wrong." in main
    assert link in main
    assert words in read(main)
    assert '<meta name="robots" content="noindex">' in page


def test_an_unknown_address_is_told_in_a_sentence(read: Read) -> None:
    assert "There is nothing at this address." in read(error_page(404, detail="Not Found"))
    assert "no benchmark mnist" in read(error_page(404, detail="There is no benchmark mnist."))
