"""What pages say of a time: whose it is, how it is known, and where its numbers can be read."""

import html
import re

import pytest

from tests.server.test_measured_rows import verify  # noqa: F401  a fixture
from tests.support.boards import rows_of
from tests.support.pages import BROWSER, words_of

FIGURES = ("{seconds:.3f}", "{seconds:.2f}")


def read(client, address):
    answer = client.get(address, headers=BROWSER)
    assert answer.status_code == 200, answer.text
    return html.unescape(answer.text)


def row_of(page, submission_id):
    rows = re.findall(r"<tr.*?</tr>", page, re.DOTALL)
    (row,) = [row for row in rows if f'href="/submissions/{submission_id}' in row]
    return words_of(row)


@pytest.fixture
def claim(digits_submission, submit, client):
    return client.get(f"/api/v1/submissions/{submit(digits_submission).json()['id']}").json()


def test_claimed_time_is_never_shown_as_measured(claim, client):
    here = f"/submissions/{claim['id']}"
    assert (claim["evidence"], round(claim["result"]["tta_seconds"], 3)) == ("claimed", 0.944)
    for address in ("/benchmarks/digits", "/submissions", "/accelerators/CPU", "/submitters/alice"):
        row = row_of(read(client, address), claim["id"])
        assert "claimed" in row, address
        assert "measured" not in row.replace("not measured", ""), address
    assert "Claimed" in words_of(read(client, here))
    # What is shared as our word shows no claimed time.
    for address in (f"{here}/badge.svg", f"{here}/badge.json", "/feed.atom"):
        text = read(client, address)
        assert not [each for each in FIGURES if each.format(seconds=0.944) in text], address
    home = words_of(read(client, "/"))
    assert "No time yet" in home
    assert "0.944" not in home


def test_measured_time_is_ours(replay, make_report, client):
    report = make_report(replay.seeds(), seconds_per_epoch=0.2)
    assert replay.report(replay.claim().json(), report).is_success
    (entry,) = rows_of(client.get("/api/v1/leaderboards/digits").json())
    assert entry["evidence"] == "measured"
    times = entry["measured_seconds"], entry["claimed_seconds"]
    assert times == pytest.approx((1.648, 0.944))
    row = row_of(read(client, "/benchmarks/digits"), replay.submission_id)
    assert "1.65 s 1.47 to 1.85 s" in row
    assert "claimed 0.944 s" in row
    assert "measured" in row
    assert "1.65 s" in words_of(read(client, f"/submissions/{replay.submission_id}"))
    for address in (f"/submissions/{replay.submission_id}/badge.svg", "/feed.atom"):
        text = read(client, address)
        assert "1.65" in text, address
        assert "0.944" not in text, address
    home = words_of(read(client, "/"))
    assert "1.65 s measured" in home
    page = read(client, f"/submissions/{replay.submission_id}")
    preview = re.search('og:description" content="([^"]*)', page)[1]
    assert "1.65\xa0s to accuracy on digits, measured" in preview


def test_board_leads_to_its_numbers_as_filtered(claim, client):
    page = read(client, "/benchmarks/digits?division=closed&q=digits&sort=cv")

    for address in ("/api/v1/leaderboards/digits.csv", "/api/v1/leaderboards/digits"):
        links = re.findall(f'href="({re.escape(address)}\\?[^"]*)"', page)
        assert any("division=closed&q=digits&sort=cv" in link for link in links), address
    assert 'href="/benchmarks/digits/charts?division=closed&q=digits&sort=cv"' in page


def test_result_tab_shows_the_runs_that_make_the_time(verify, replay, client):
    verify()
    here = f"/submissions/{replay.submission_id}"
    assert "The 3 runs that make" in read(client, here)
    verify(replay.submission_id)
    page = read(client, here)
    runs = client.get(f"/api/v1{here}").json()["measured_runs"]

    assert "runs that make" in page
    drawn = page.split("runs that make")[1].split("</section>")[0]
    assert all(f"run {number}" in drawn for number in range(1, runs + 1))
    rows = drawn.split("<tbody>")[1].count("<tr>")  # The same curves, without scripts.
    assert rows >= 2 * runs


def test_measured_time_follows_from_the_runs_tab(verify, replay, client):
    """The runs that count, as the page shows them, have the mean that ranks."""
    verify()
    verify(replay.submission_id)
    here = f"/submissions/{replay.submission_id}"
    table = read(client, f"{here}?tab=runs").split("</table>")[0]
    rows = [words_of(row) for row in re.findall(r"<tr.*?</tr>", table, re.S)]
    rows = [row for row in rows if row.strip().startswith("Run ")]
    counted = [float(re.search(r"([\d.]+) s counts", row)[1]) for row in rows if "counts" in row]
    shown = client.get(f"/api/v1{here}").json()

    assert len(rows) == shown["measured_runs"] + 1
    assert sum("dropped as" in row for row in rows) == shown["measured_runs"] - len(counted)
    assert sum(counted) / len(counted) == pytest.approx(shown["measured_seconds"], abs=0.001)
    drawn = words_of(read(client, here).split("runs that make")[1].split("</section>")[0])
    assert f"The time is the mean of the {len(counted)} runs left after dropping" in drawn
