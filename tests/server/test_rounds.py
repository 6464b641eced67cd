"""Pages across boards: rounds, accelerators, submitters."""

import re

import pytest

from web.home_words import round_matrix

BROWSER = {"Accept": "text/html"}


@pytest.fixture
def systems(digits_submission, submit):
    """The submissions of two systems: 16 V100 in prose, and a laptop."""
    ids = []
    for name, processor in (("2 p3.16xlarge", "2 p3.16xlarge"), ("laptop", "x86_64")):
        digits_submission.claim["system"] |= {"name": name, "processor": processor}
        digits_submission.claim["model"] = name
        answer = submit(digits_submission)
        assert answer.status_code == 201, answer.text
        ids.append(str(answer.json()["id"]))
    return ids


def test_a_round_shows_its_systems_by_its_benchmarks(systems, client):
    page = client.get("/rounds/open").text
    cell = f'href="/submissions/{systems[0]}" class="evidence is-'

    assert page.count('<th scope="row"') == 2
    assert '<a href="/accelerators/V100">16\u00a0×\u00a0V100</a>' in page
    assert re.search(r'<a href="/benchmarks/digits\?division=closed">[^<]+</a>', page)
    assert cell in page
    for show, words in (("per-accelerator", "Minutes times"), ("speed-up", "1×")):
        assert words in client.get(f"/rounds/open?show={show}").text
    assert client.get("/rounds/open?show=other").status_code == 422
    assert client.get("/rounds/v99.0").status_code == 404


def test_an_accelerator_and_a_submitter_list_their_results(systems, client):
    assert "did you mean &#39;alice&#39;" in client.get("/submitters/alic", headers=BROWSER).text
    v100 = client.get("/accelerators/v100").text
    alice = client.get("/submitters/alice").text

    assert "<h1>V100</h1>" in v100
    assert systems[0] in v100
    assert systems[1] not in v100
    assert "<h1>alice</h1>" in alice
    assert all(name in alice for name in systems)
    assert "0 of 2" in alice
    for address in ("/accelerators/unknown", "/submitters/nobody/at all"):
        assert client.get(address, headers=BROWSER).status_code == 404
    board = client.get("/benchmarks/digits").text
    assert 'href="/submitters/alice"' in board
    assert 'href="/accelerators/V100">' in board


def test_a_result_is_listed_once_with_the_number_of_its_own_board(measured, client):
    """Three classes: each row is first on its own board, and listed on the two others."""
    ids = [measured() for _ in range(3)]
    page = client.get("/submitters/alice").text
    for each in ids:
        (line,) = re.findall(rf'<tr[^>]*>(?:(?!</tr>).)*/submissions/{each}".*?</tr>', page, re.S)
        assert '<td class="r num rank">1</td>' in line


def test_a_system_has_its_fastest_result_and_figures_per_accelerator():
    class V100:
        words, count = "8 × V100", 8

    def result(seconds, system="a"):
        return {
            "benchmark": "x", "submitter": "s", "system": {"name": system}, "accelerator": V100,
            "evidence": "claimed", "tta_seconds": seconds, "measured_seconds": None,
        }  # fmt: skip

    found = [result(120.0), result(60.0), result(600.0, "b")]
    for show, figures in (
        ("minutes", ["1.00", "10.00"]),
        ("per-accelerator", ["8.0", "80.0"]),
        ("speed-up", ["10×", "1×"]),
    ):
        matrix = round_matrix([{"id": "x"}, {"id": "unused"}], found, show)
        assert [one["id"] for one in matrix.benchmarks] == ["x"]
        assert [row.cells[0] and row.cells[0].text for row in matrix.systems] == figures
