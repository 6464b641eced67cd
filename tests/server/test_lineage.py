"""Lineage of packages: parents that are there, and the difference from them on a page."""

import time

import pytest

from finishline.rules.canonical import sha256_of
from finishline.rules.trainings.package import package_index
from server.base.models import Verification
from server.boards.lineage import gap_of_runs, seconds_saved
from server.submissions.code import MOST_LINES, difference
from tests.server.test_entries import (  # noqa: F401  a fixture
    FILES,
    MANIFEST,
    TRAIN,
    entries,
    paced_report,
)
from web.entries import idea_lines, why_no_gain

PARENT = sha256_of(package_index(FILES))


def child_of(sha256, **files):
    manifest = MANIFEST.replace("[factors]", f'based_on = "sha256:{sha256}"\n[factors]')
    made = {"training.toml": manifest.encode(), "train.py": TRAIN.encode() + b"# more\nx = 1\n"}
    return made | {name.replace("_py", ".py"): content for name, content in files.items()}


def test_an_entry_leads_to_its_parent_and_to_the_difference_from_it(entries, alice, bob, client):
    parent = entries.hand_in(alice).json()["id"]
    entries.measure(parent)
    files = child_of(PARENT, net_py=b'HOSTILE = "<script>alert(1)</script>\xe2\x80\x8b"\n')
    answer = entries.hand_in(bob, files)
    assert answer.status_code == 201, answer.text
    child = answer.json()
    entries.measure(child["id"])

    entry = client.get(f"/submissions/{child['id']}?tab=system").text
    address = f"/packages/{PARENT}..{child['package']['sha256']}"
    assert f'href="{address}"' in entry
    assert f'href="/submissions/{parent}?tab=system"' in entry
    page = client.get(address).text
    assert '<span class="added">+x = 1\n</span>' in page
    assert f'<span class="added">+based_on = &#34;sha256:{PARENT}&#34;\n</span>' in page
    assert "+HOSTILE = &#34;&lt;script&gt;alert(1)&lt;/script&gt;\\u200b&#34;" in page
    led = client.get(f"/packages/{PARENT}", follow_redirects=False)
    assert (led.status_code, led.headers["location"]) == (303, f"/submissions/{parent}?tab=system")
    back = client.get(f"/packages/{child['package']['sha256']}..{PARENT}").text
    assert '<span class="removed">-x = 1\n</span>' in back


def test_a_difference_of_sources_that_are_not_published_is_its_submitters(entries, alice, client):
    made = entries.hand_in(alice).json()
    child = entries.hand_in(alice, child_of(PARENT))
    assert child.status_code == 201, child.text
    address = f"/packages/{PARENT}..{child.json()['package']['sha256']}"

    assert alice.get(address).status_code == 200
    hidden = client.get(address)
    assert (hidden.status_code, made["id"] in hidden.text) == (404, False)
    assert "There is no published code" in hidden.text
    alone = client.get(f"/packages/{PARENT}", follow_redirects=False)
    assert (alone.status_code, made["id"] in alone.text) == (404, False)
    assert client.get("/packages/1..2").status_code in (404, 422)


@pytest.mark.parametrize("handed_in", [False, True])
def test_missing_or_unpublished_parent_is_refused(entries, alice, bob, handed_in):
    if handed_in:
        assert entries.hand_in(alice).status_code == 201

    answer = entries.hand_in(bob, child_of(PARENT))

    assert answer.status_code == 422
    (problem,) = answer.json()["problems"]
    assert (problem["file"], problem["line"], problem["field"]) == ("training.toml", 8, "based_on")
    assert problem["message"] == f"no published code submission sha256:{PARENT}"
    assert "Hand the parent in first, or remove the line" in answer.json()["hint"]


def test_files_that_are_equal_are_left_out_and_long_ones_are_not_compared():
    old = {"a.py": "x = 1\ny = 2\n", "b.py": "", "c.py": "z\n"}
    new = {"a.py": "x = 1\ny = 3\n", "c.py": "z\n", "d.txt": "1\n" * (MOST_LINES + 1)}

    found = {each.name: each.lines for each in difference(old, new)}

    assert list(found) == ["a.py", "b.py", "d.txt"]
    assert [kind for kind, _ in found["a.py"]] == ["place", "same", "removed", "added", "same"]
    assert found["a.py"][2:4] == (("removed", "-y = 2"), ("added", "+y = 3"))
    assert found["d.txt"] is None


def test_the_slowest_difference_keeps_nobody_waiting():
    """Every other line is in both files, many times, and no two of them stand together."""
    lines = MOST_LINES // 4
    old, new = (
        {"a.txt": "\n".join(f"{n % (lines // 20)}\n{side}{n}" for n in range(lines))}
        for side in ("a", "b")
    )
    began = time.process_time()

    (found,) = difference(old, new)

    assert found.lines is not None
    assert time.process_time() - began < 6  # 1 s; it grows with the third power of the lines.


def test_lineage_says_the_seconds_that_each_gained(entries, alice, bob, client):
    address = "/benchmarks/digits/ideas"
    assert "Start a lineage" in client.get(address).text
    parent = entries.hand_in(alice).json()["id"]
    entries.measure(parent, seconds=4.0)
    child = entries.hand_in(bob, child_of(PARENT)).json()
    assert child["id"] not in client.get(address).text  # Its source is not published yet.
    entries.measure(child["id"], seconds=2.0)

    page = client.get(address).text.replace("\N{NO-BREAK SPACE}", " ")
    assert f'href="{address}"' in client.get("/benchmarks/digits").text
    assert page.index(f"/submissions/{parent}") < page.index(f"/submissions/{child['id']}")
    assert f'href="/packages/{PARENT}..{child["package"]["sha256"]}"' in page
    # Five runs of 4.00 to 4.16 s, and of half as long: half of 4.08 s in the mean.
    assert "gained <b>2.04 s</b>" in page
    assert "5 and 5 runs of two measurements" in page
    assert "record 20" in page
    (found,) = client.get(f"/api/v1{address}").json()["classes"]
    assert found["hardware_class"] == "cpu-test"
    before, after = found["packages"]
    assert (before["sha256"], before["parent"], before["gain"]) == (PARENT, None, None)
    assert (after["submission_id"], after["parent"], after["runs"]) == (child["id"], PARENT, 5)
    assert after["low_seconds"] < after["seconds"] < after["high_seconds"]
    gain = after["gain"]
    assert gain["seconds"] == pytest.approx(before["seconds"] - after["seconds"], rel=0.02)
    assert gain["low"] < gain["seconds"] < gain["high"]
    assert (gain["pairs"], gain["runs"], gain["parent_runs"]) == (None, 5, 5)
    entry = client.get(f"/submissions/{child['id']}?tab=system").text
    assert "gained <b>2.04" in entry

    asked = entries.ask(child["id"], kind="ablation", repeats=3)
    lease = entries.lease(child["id"])
    with entries.database.read() as session:
        planned = list(session.get_one(Verification, asked.json()["id"]).trainings)
        report = paced_report(planned, lambda run: 2.0 if run.settings else 1.0)
    assert entries.report(lease, report).status_code == 200
    page = client.get(address).text
    assert "3 pairs on equal seeds and data" in page
    assert "runs of two measurements" not in page


def test_no_gain_is_told_where_a_run_missed_the_target():
    slow, fast = [4.0, 4.1, 4.2], [2.0, 2.1, 2.2]

    gap = gap_of_runs(fast, slow)

    assert gap is not None
    saved = seconds_saved(4.1, gap)
    assert saved["seconds"] == pytest.approx(4.1 * (1 - 1 / gap.ratio))
    assert saved["low"] < saved["seconds"] < saved["high"]
    assert gap_of_runs([*fast, None], slow) is None
    assert gap_of_runs(fast[:1], slow) is None


def test_a_package_without_a_gain_says_why():
    def why(sha256, parent):
        node = {"sha256": sha256, "parent": parent, "gain": None}
        return why_no_gain(node, measured={"a", "c", "d"})

    elsewhere = "its parent has no measured figure on this hardware class"
    assert why("a", "z") == why("c", "b") == elsewhere
    assert why("b", "a") == "it has no measured figure yet"
    assert "a run of one of the two missed" in why("d", "c")


def lines_of(parents):
    return idea_lines([{"sha256": each, "parent": parent} for each, parent in parents.items()])


def test_a_line_goes_on_with_the_child_that_most_descend_from():
    parents = {"a": None, "b": "a", "c": "a", "d": "c", "e": "b", "f": "e", "z": "gone"}
    lines = lines_of(parents)
    assert [[each["sha256"] for each in line] for line in lines] == [["a", "b", "e", "f"], ["z"]]
    (branch,) = lines[0][0]["branches"]
    assert [each["sha256"] for each in branch] == ["c", "d"]

    deep = {0: None}
    for number in range(1, 2000):
        deep |= {number: number - 1, -number: number - 1}
    (line,) = lines_of(deep)
    branches = [branch for each in line for branch in each["branches"]]
    assert (len(line), len(branches)) == (2000, 1999)
    assert all(len(branch) == 1 for branch in branches)
