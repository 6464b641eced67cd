"""Lists of submissions and verifications, the search, and pages across boards."""

import re

import pytest

from tests.support.build import taken
from tests.support.pages import BROWSER, HOSTILE, sign_in, words_of
from web.home_words import round_matrix


@pytest.fixture
def three(digits_submission, submit, bob):
    """Two submissions of alice, on eight H100 the second, and a hostile one of bob."""
    ids = [submit(digits_submission).json()["id"]]
    claim, system = digits_submission.claim, digits_submission.claim["system"]
    gpu = {"accelerator": "NVIDIA H100 80GB", "accelerator_count": 8}
    claim |= {"model": "wide net", "system": system | gpu}
    ids.append(submit(digits_submission).json()["id"])
    claim |= {"model": HOSTILE, "system": system | {"name": HOSTILE, "processor": HOSTILE}}
    return [*ids, submit(digits_submission, by=bob).json()["id"]]


def listed(client, address):
    page = client.get(address, headers=BROWSER)
    assert page.status_code == 200, page.text
    body = page.text.partition("<tbody>")[2].partition("</tbody>")[0]
    return re.findall(r'<td class="model"><a href="/submissions/(\w+)">', body)


def test_submissions_are_listed_newest_first_and_filtered(three, client):
    for query, expected in (
        ("", three[::-1]), ("benchmark=digits", three[::-1]), ("benchmark=imagenet", []),
        ("submitter=bob", three[2:]), ("accelerator=h100", three[1:2]), ("accelerator=L4", []),
        ("accelerator=not+stated", three[2:]),
        ("evidence=claimed&verdict=claimed", three[::-1]), ("evidence=measured", []),
        ("since=2100-01-01", []), ("until=2100-01-01", three[::-1]),
        ("since=&submitter=", three[::-1]),
    ):  # fmt: skip
        assert listed(client, f"/submissions?{query}") == expected, query
    assert "0 matches." in client.get("/submissions?submitter=nobody").text
    assert client.get("/submissions?evidence=gold").status_code == 422


def test_a_page_of_a_list_leads_to_the_older_ones(three, client, monkeypatch):
    monkeypatch.setattr("server.submissions.lists.PAGE", 2)
    first = client.get("/submissions?submitter=").text
    older = re.findall(r'<a class="next" href="([^"]+)">Older', first)[0].replace("&amp;", "&")

    assert listed(client, "/submissions") == three[:0:-1]
    assert listed(client, older) == three[:1]
    assert "Newest" in client.get(older).text
    # What no column chooses is looked at in chunks, and the page says where it stopped.
    monkeypatch.setattr("server.base.paging.CHUNK", 1)
    monkeypatch.setattr("server.base.paging.MOST_LOOKED_AT", 1)
    assert "None among the latest." in client.get("/submissions?accelerator=H100").text


def test_verifications_are_listed_by_verdict(replay, client):
    def ids(query):
        return re.findall(r'class="proof" href="/verifications/(\w+)"', client.get(query).text)

    assert ids("/verifications") == [replay.verification_id]
    assert ids("/verifications?verdict=queued&benchmark=digits") == [replay.verification_id]
    assert ids("/verifications?verdict=verified") == []


def test_a_search_finds_names_of_every_kind_or_the_nearest(three, client):
    def found(words):
        return words_of(client.get(f"/search?q={words}", headers=BROWSER).text)

    assert "Benchmarks 1 Digits Image classification" in found("digi")
    assert "Submitters 1 alice 2 submissions" in found("alice")
    assert "Hardware 1 H100 1 submission" in found("h100")
    assert "wide net by alice" in found("WIDE")
    assert "digits reference" in found(three[0])
    assert "0 matches for “alicia”. Nearest: alice" in found("alicia")
    assert "0 matches" not in found("")
    for words in ("alice", "h100"):
        page = client.get(f"/search?q={words}").text
        named = re.findall(r'<a href="(/(?:submitters|accelerators)/[^"]+)"', page)
        assert [client.get(address).status_code for address in named] == [200]


def test_marked_rows_lead_to_a_preview_and_a_head_to_head(three, client, olivia):
    sign_in(client, olivia)
    page = client.get("/console/submissions?submitter=alice").text
    assert re.findall(r'name="ids" value="(\w+)"', page) == three[1::-1]

    marked = f"ids={three[1]}&ids={three[0]}"
    preview = client.get(f"/console/verify?preview=yes&kind=replay&{marked}").text
    assert "exactly this list is queued" in preview
    assert all(name in preview for name in three[:2])
    head_to_head = client.get(f"/console/head-to-heads?{marked}").text
    assert f'name="challenger" value="{three[0]}"' in head_to_head
    assert f'name="holder" value="{three[1]}"' in head_to_head
    alone = client.get(f"/console/head-to-heads?challenger={three[0]}").text
    assert f'<option value="{three[2]}"' in alone


@pytest.fixture
def systems(digits_submission, submit):
    ids = []
    for name, processor in (("2 p3.16xlarge", "2 p3.16xlarge"), ("laptop", "x86_64")):
        digits_submission.claim["system"] |= {"name": name, "processor": processor}
        digits_submission.claim["model"] = name
        ids.append(taken(submit(digits_submission))["id"])
    return ids


def test_a_round_shows_its_systems_by_its_benchmarks(systems, client):
    page = client.get("/rounds/open").text
    cell = f'href="/submissions/{systems[0]}" class="evidence is-'

    assert page.count('<th scope="row"') == 2
    assert '<a href="/accelerators/V100">16\u00a0×\u00a0V100</a>' in page
    assert re.search(r'<a href="/benchmarks/digits\?division=closed">[^<]+</a>', page)
    assert cell in page
    first = words_of(client.get("/rounds/open?show=first").text)
    assert "The first five of each benchmark, in the closed division." in first
    assert "– 2 p3.16xlarge by alice" in first
    for show, words in (("per-accelerator", "Accelerator-minutes are"), ("speed-up", "1×")):
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
    assert "0 of them measured" in alice
    for address in ("/accelerators/unknown", "/submitters/nobody/at all"):
        assert client.get(address, headers=BROWSER).status_code == 404
    board = client.get("/benchmarks/digits").text
    assert 'href="/submitters/alice"' in board
    assert 'href="/accelerators/V100">' in board


def test_a_submitter_without_a_time_has_a_page(client, enter):
    missed = enter(reached=False, by="ACME")
    page = client.get("/submitters/ACME")

    assert page.status_code == 200
    assert "No time of this submitter is on a board yet." in page.text
    address = re.search(r'href="(/submissions\?submitter=[^"]+)"', page.text)[1]
    assert f"/submissions/{missed}" in client.get(address).text


def test_a_result_is_listed_once_with_the_number_of_its_own_board(measured, client):
    """Three classes: each row is first on its own board, and listed on the two others."""
    ids = [measured() for _ in range(3)]
    page = client.get("/submitters/alice").text
    for each in ids:
        (line,) = re.findall(rf'<tr[^>]*>(?:(?!</tr>).)*/submissions/{each}".*?</tr>', page, re.S)
        assert '<td class="r num rank">1</td>' in line


def test_a_system_has_its_fastest_result():
    class V100:
        words, count = "8 × V100", 8

    def result(seconds, system="a"):
        return {
            "benchmark": "x", "submitter": "s", "system": {"name": system}, "accelerator": V100,
            "evidence": "claimed", "tta_seconds": seconds, "measured_seconds": None,
        }  # fmt: skip

    found = [result(120.0), result(60.0), result(600.0, "b")]
    matrix = round_matrix([{"id": "x"}, {"id": "unused"}], found)
    assert matrix.is_full
    elsewhere = [result(60.0, name) | {"benchmark": name} for name in ("y", "z")]
    assert not round_matrix([{"id": name} for name in "xyz"], [*found, *elsewhere]).is_full
    assert [one["id"] for one in matrix.benchmarks] == ["x"]
    assert [cells["x"]["tta_seconds"] for cells in matrix.systems] == [60.0, 600.0]
    assert (matrix.fastest["x"], matrix.slowest["x"]) == (60.0, 600.0)
