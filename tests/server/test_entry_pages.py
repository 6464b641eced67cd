"""Pages of entries: their words, source and runs, the race, the board, and handing one in."""

import re

from tests.server.test_entries import (  # noqa: F401  a fixture
    ANOTHER,
    FILES,
    MANIFEST,
    TRAIN,
    entries,
)
from tests.support.boards import rows_of
from tests.support.pages import ORIGIN, sign_in

TEACHER = {
    "training.toml": MANIFEST.replace('"digits"', '"teacher"').encode(),
    "train.py": TRAIN.encode(),
}


def words_of(client, path, person=None):
    answer = client.get(path, headers=person.headers if person else {})
    assert answer.status_code == 200, answer.text
    main = answer.text.partition("<main")[2].partition("</main>")[0]
    # The footer of every page and the addresses of charts are no words of this one.
    return " ".join(re.sub(r"<[^>]*>", " ", main).split())


def test_source_and_log_show_the_characters_that_would_steer_a_reader(entries, alice):
    hostile = "if access == '\u202e \u2066# none\u2069':\r\n\x1b[31m\x9b2J\u2028\t<script>\u200b"
    hidden = "if access == 'user\u200b':\r\n\t<script>"  # No other such character is accepted.
    files = FILES | {"notes.txt": hidden.encode()}
    entry_id = entries.hand_in(alice, files).json()["id"]
    entries.measure(entry_id, failed="entry_died", log=hostile)

    page = f"/submissions/{entry_id}?tab="
    verification = f"/verifications/{entries.measurement(entry_id)}"
    pages = [alice.get(path).text for path in (f"{page}system", f"{page}runs", verification)]

    for page in pages[1:]:
        assert r"\u202e \u2066# none\u2069" in page
        assert "\n" + r"\x1b[31m\x9b2J\u2028" + "\t&lt;script&gt;" + r"\u200b" in page
        assert not set("\u202e\u2066\u2069\u2028\u200b\x1b\x9b").intersection(page)
    assert 'notes.txt</span> <small class="soft">2 lines' in pages[0]
    assert r"&#39;user\u200b&#39;" in pages[0]
    raw = alice.get(f"/api/v1/submissions/{entry_id}/package/files/notes.txt")
    assert raw.content == hidden.encode()
    assert raw.headers["content-type"].startswith("text/plain")
    assert raw.headers["x-content-type-options"] == "nosniff"


def test_a_verification_shows_both_halves_where_they_judge(entries, alice, client):
    entry_id = entries.hand_in(alice, TEACHER).json()["id"]
    entries.measure(entry_id)
    verification_id = entries.measurement(entry_id)

    runs = client.get(f"/api/v1/verifications/{verification_id}/race").json()["runs"]
    assert runs[0]["evaluations"][1]["second_half"] == 97.9


def test_a_board_marks_packages_and_says_whether_answers_are_public(entries, alice, bob, client):
    first = entries.hand_in(alice).json()["id"]
    entries.measure(first)
    entries.hand_in(bob, ANOTHER)
    entries.hand_in(alice, TEACHER)

    digits = words_of(client, "/benchmarks/digits?division=open")
    page = client.get("/benchmarks/digits?division=open").text
    rows = rows_of(client.get("/api/v1/leaderboards/digits?division=open").json())

    assert f'href="/submissions/{first}?tab=system#source"' in page
    assert f"{rows[0]['package_bytes']} bytes" in digits
    assert (rows[0]["epochs_to_target"], rows[1]["unranked_reason"]) == (
        None,
        "its measurement is queued",
    )
    assert "The answers of Digits are public" in digits
    teacher = words_of(client, "/benchmarks/teacher")
    assert "the data are chosen at random after code is handed in" in teacher
    assert "run logs" not in teacher


def test_entries_are_compared_by_their_measured_runs(entries, alice, bob, client):
    first = entries.hand_in(alice).json()["id"]
    entries.measure(first)
    second = entries.hand_in(bob, ANOTHER).json()["id"]
    entries.measure(second, seconds=3.0)
    waits = entries.hand_in(bob, FILES | {"net.py": b"WIDTH = 66\n"}).json()["id"]

    found = client.get(f"/api/v1/compare?submissions={first},{second}").json()

    assert [len(each["run_seconds"]) for each in found["submissions"]] == [5, 5]
    assert found["pairs"][0]["told_apart"]
    assert client.get(f"/compare?ids={first},{waits}").status_code == 200


def test_owner_has_it_measured_again_within_the_quota(entries, alice, bob, olivia, client):
    entry_id = entries.hand_in(alice).json()["id"]
    sign_in(client, alice)
    path = f"/submissions/{entry_id}"
    assert "Measure again" not in client.get(path).text  # One is under way.

    for _ in range(2):
        entries.measure(entry_id)
        assert "Measure again" in client.get(path).text
        answer = client.post(
            f"{path}/verify", data={"kind": "entry"}, headers=ORIGIN, follow_redirects=False
        )
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/verifications/")
    entries.measure(entry_id)
    page = client.get(path).text
    assert '<button class="main">Measure again' not in page
    assert "You made 3 requests for this submission" in page
    sign_in(client, bob)
    assert "Measure again" not in client.get(path).text
    sign_in(client, olivia)
    waiting = client.get(f"/api/v1{path}").json()["pending_decisions"]
    listed = re.findall(r'href="(/console/decide/[^"]+)"', client.get("/console/decide").text)
    assert {f"/console/decide/{each}" for each in waiting} == set(listed)
    assert (len(waiting), client.get(listed[0]).status_code) == (2, 200)


def choose(client, *parts, **fields):
    return client.post(
        "/submit",
        data={"hardware_class": "", **fields},
        files=[*parts, ("files", ("", b""))],
        headers=ORIGIN,
        follow_redirects=False,
    )


def test_a_package_is_previewed_and_handed_in_from_the_browser(entries, alice, client):
    sign_in(client, alice)
    assert "cpu-test (numpy-2.4)" in client.get("/submit").text
    folder = [("folder", (f"mine/{name}", content)) for name, content in FILES.items()]
    left_out = ("folder", ("mine/__pycache__/train.pyc", b"\0"))
    below = ("folder", ("mine/model/net.py", b"pass\n"))

    page = choose(client, *folder, left_out, below, hardware_class="cpu-test")

    assert page.status_code == 200, page.text
    assert "<dt>Measured on</dt><dd><b>cpu-test</b>" in page.text
    assert client.get("/api/v1/submissions").json()["submissions"] == []
    sent = {"hardware_class": "cpu-test", "send": "yes"}
    answer = choose(client, *folder, left_out, below, **sent)
    assert answer.status_code == 303, answer.text
    entry = alice.get(f"/api/v1{answer.headers['location']}/package").json()
    names = [file["name"] for file in entry["files"]]
    assert names == ["model/net.py", "train.py", "training.toml"]
    known = choose(client, *folder, below)
    assert (known.status_code, "was handed in before" in known.text) == (409, True)


def test_the_problems_of_a_package_are_listed_with_file_and_line(entries, alice, client):
    sign_in(client, alice)
    broken = ("files", ("train.py", b"def prepare(task): ...\nimport <b>\n"))

    refused = choose(client, broken, ("files", ("training.toml", b"schema = 1")))

    assert refused.status_code == 422
    text = " ".join(re.sub(r"<[^>]*>", " ", refused.text).split())
    assert "train.py line 2:" in text
    assert "training.toml , benchmark" in text
    assert "train.py: no submission.json and no training.toml" in choose(client, broken).text
    nothing = choose(client)
    assert nothing.status_code == 422
    assert "training.toml among them" in nothing.text
    twice = [("files", ("train.py", b"")), ("folder", ("mine/train.py", b""))]
    assert "train.py was chosen twice" in choose(client, *twice).text


def test_workers_say_whose_packages_they_train(entries, client, olivia):
    def remark_on(**link):
        return olivia.post("/api/v1/invitations", link).json()["remark"]

    assert remark_on() is None
    assert "trains code submissions of anyone: numpy-2.4" in words_of(client, "/workers")
    assert "trains code submissions of anyone: numpy-2.4" in words_of(client, "/workers/walter-1")
    entries.greet(entries="known")
    assert "approved users: numpy-2.4" in words_of(client, "/workers")
    assert "--approve" in str(remark_on(uses=200))
    assert remark_on(uses=200, known=True) is None
    entries.greet(entries="off")
    assert "trains no code submissions" in words_of(client, "/workers")
