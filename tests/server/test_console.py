"""The console's pages: each works, for organisers only, and refuses what is missing or wrong."""

import json
import re
from html import unescape

import pytest

from finishline.rules.proof.hash_chain import check_chain
from server.base.database import utc_now
from server.base.models import Verification, WorkerRow
from server.people.audit import Administrator, Subject, record
from tests.support.pages import HOSTILE, ORIGIN, sign_in
from tests.support.workers import greet_as_servers, say_hello

PRICE = {
    "provider": "cloud", "instance": "gpu.8", "region": "north", "usd_per_hour": "12.5",
    "effective_on": "2026-03-01", "pricing": "on_demand", "supersedes": "", "note": "",
    "source_url": "https://cloud.example/prices",
}  # fmt: skip


class Console:
    def __init__(self, client, person):
        self.client = client
        sign_in(client, person)

    def get(self, path, **query):
        return self.client.get(path, params=query or None, headers={"Accept": "text/html"})

    def post(self, path, **fields):
        return self.client.post(path, data=fields, headers=ORIGIN, follow_redirects=False)

    def done(self, path, **fields):
        answer = self.post(path, **fields)
        if 'class="notice is-done"' in answer.text:  # With a secret, which no other page has.
            return answer.text
        assert answer.status_code == 303, answer.text
        page = self.get(answer.headers["location"]).text
        assert 'class="notice is-done"' in page
        # The notice is told once.
        assert 'class="notice is-done"' not in self.get(answer.headers["location"]).text
        return page


@pytest.fixture
def console(client, olivia):
    return Console(client, olivia)


@pytest.fixture
def waiting(replay, olivia):
    """A verified submission whose rerun was rejected and waits; `first` is the verified one."""
    assert replay.train().status_code == 200
    replay.first = replay.ask_again(olivia, reason=HOSTILE)
    assert replay.train(qualities=[10.0] * 8).status_code == 200
    return replay


@pytest.fixture
def records(olivia):
    return lambda: olivia.get("/api/v1/audit").json()["records"]


def error_of(page, field):
    found = re.search(rf'id="e-{field}"><span class="sr">Error: </span>(.*?)</strong>', page)
    return unescape(found.group(1)) if found else None


def test_organiser_sets_a_quota_and_sees_what_is_used(console, waiting, olivia, records):
    path, body = "/console/quotas", {"user": "alice", "reason": HOSTILE}
    for wrong, told in (
        (body, "Nothing to set"),
        (body | {"submissions_per_day": "5x"}, "Expected a whole number, unlimited or default."),
        (body | {"submissions_per_day": "0.4"}, "Expected a whole number, unlimited or default."),
        (body | {"gpu_seconds_per_month": "1e308"}, "unlimited or default."),
        (body | {"gpu_seconds_per_month": "-1"}, "greater than or equal to 0"),
        (body | {"submissions_per_day": "5", "user": ""}, "This field is required."),
        (body | {"submissions_per_day": "5", "reason": " "}, "This field is required."),
    ):
        refused = console.post(path, **wrong)
        assert (refused.status_code, told in refused.text) == (422, True), wrong
    nobody = console.post(path, **body | {"user": "nobody", "submissions_per_day": "5"})
    assert (nobody.status_code, "nobody" in nobody.text) == (404, True)
    console.done(path, **body, submissions_per_day="5", gpu_seconds_per_month="1.5")
    set_now = olivia.get("/api/v1/quotas/alice").json()["quotas"]
    assert [(q["measure"], q["allowed"]) for q in set_now] == [
        ("submissions_per_day", 5),
        ("gpu_seconds_per_month", 5400),
    ]
    shown = console.get(path, user="alice").text
    assert 'value="alice"' in shown
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", shown[shown.index('id="used"') :])
    assert cells[:4] == ["submissions in 24 hours", "1", "5", "now"]
    console.done(path, **body, submissions_per_day="default", gpu_seconds_per_month="unlimited")
    assert [row["action"] for row in records()[:2]] == ["quota.set", "quota.set"]
    assert records()[0]["after"]["source"] == "console"
    assert "no limit" in console.get(path).text


def test_overview_names_what_waits(console, waiting, client, olivia, walter, database):
    say_hello(client, walter)
    body = {"benchmark": "digits", "batch_sizes": [64], "runs": 1}
    olivia.post("/api/v1/calibrations", body)
    failure = {"kind": "infrastructure", "code": "node_lost", "message": "The fan stopped.",
               "next_step": "Mend the fan."}  # fmt: skip
    with database.write() as session:
        session.get_one(WorkerRow, "walter-1").drift = "5 % slower than its baseline"
        failed = session.get_one(Verification, waiting.first)
        failed.state, failed.ended_at = "failed", utc_now()
        failed.attempts[-1].failure = failure
    page = console.get("/console").text

    counts = re.findall(r'#([\w-]+)">[^<]+</a></dt><dd><b class="num">(\d+)</b>', page)
    assert dict(counts) == {
        "pending": "1", "under-way": "1", "out": "1", "failed": "1", "calibrations": "1",
    }  # fmt: skip
    assert f'href="/console/decide/{waiting.verification_id}"' in page
    assert "Mend the fan." in page


def test_what_is_confirmed_is_what_was_shown(
    console, waiting, digits_submission, submit, records, row_counts, client
):
    free = submit(digits_submission).json()["id"]
    before = row_counts()
    chosen = {"kind": "replay", "preview": "yes", "benchmark": "digits", "status": ""}
    page = console.get("/console/verify", **chosen).text
    assert row_counts() == before
    assert "Queue 2" in page
    shown = re.findall(r'name="submissions" value="([^"]*)"', page)[0].split()
    assert sorted(shown) == sorted([free, waiting.submission_id])
    later = submit(digits_submission).json()["id"]  # It was not shown, so it is not queued.

    fields = {"preview": "yes", "kind": "replay", "submissions": " ".join(shown)}
    missing = console.post("/console/verify", **fields, reason=" ")
    assert missing.status_code == 422
    assert error_of(missing.text, "reason") == "This field is required."
    assert "Queue 2" in missing.text
    fields["reason"] = "new driver"
    assert "2 verifications are queued." in console.done("/console/verify", **fields)
    logged = records()[0]
    assert (logged["action"], logged["actor"], logged["reason"]) == (
        "verification.batch", "olivia", "new driver",
    )  # fmt: skip
    assert logged["after"]["source"] == "console"
    assert set(logged["after"]["queued"]) == set(shown)
    assert client.get(f"/api/v1/submissions/{later}").json()["status"] == "claimed"
    assert "Skipped since" in console.done("/console/verify", **fields)
    queued = logged["after"]["queued"][free]
    page = console.done(f"/console/verifications/{queued}/cancel")
    assert f"Verification {queued} is cancelled." in page
    assert (records()[0]["action"], records()[0]["after"]["source"]) == (
        "verification.cancel", "console",
    )  # fmt: skip
    assert console.post(f"/console/verifications/{queued}/cancel").status_code == 409
    assert console.post("/console/verifications/nothing/cancel").status_code == 404


def test_a_choice_that_is_not_clear_is_refused_and_kept(console):
    for query, field in (
        ({"kind": "replay"}, "submissions"),
        ({"kind": "replay", "submissions": "a", "benchmark": "digits"}, "submissions"),
        ({"kind": "replay", "submissions": "a,b", "status": "verified"}, "submissions"),
        ({"kind": "training", "benchmark": "digits"}, "kind"),
        ({"kind": "replay", "benchmark": "digits", "status": "good"}, "status"),
    ):
        answer = console.get("/console/verify", preview="yes", **query)
        assert answer.status_code == 422, query
        assert error_of(answer.text, field), query
        assert f'<a href="#f-{field}">' in answer.text
        if "," in query.get("submissions", ""):
            assert "\na,b</textarea>" in answer.text
    unknown = console.get("/console/verify", preview="yes", kind="replay", benchmark="nothing")
    assert unknown.status_code == 404
    assert console.post("/console/verify", kind="replay", reason="x").status_code == 422


def test_latencies_are_measured_by_the_batch(console, digits, digits_submission, submit, client):
    one = submit(digits_submission).json()["id"]
    page = console.get("/console/verify", kind="latency", preview="yes", submissions=one).text
    assert "run limit" in page
    # One training and its measurement, each as long as they may take.
    seconds = digits.replay.run_limit_seconds + digits.latency.limit_seconds
    assert f"{seconds / 60:g}\u00a0min" in page
    console.done("/console/verify", kind="latency", submissions=one, reason="a look")
    found = client.get("/api/v1/verifications").json()["verifications"]
    assert [(item["kind"], item["submission_id"]) for item in found] == [("latency", one)]
    again = console.get("/console/verify", kind="latency", preview="yes", submissions=one).text
    assert f"Verification {found[0]['id']} of this submission (latency) is under way" in again


@pytest.mark.parametrize(("decision", "status"), [("publish", "rejected"), ("keep", "verified")])
def test_verdict_is_decided_beside_the_published_one(console, waiting, records, decision, status):
    path = f"/console/decide/{waiting.verification_id}"
    for fields, wrong in (
        ({"reason": "x"}, "decision"),
        ({"decision": decision, "reason": " \n"}, "reason"),
        ({"decision": "maybe", "reason": "x"}, "decision"),
    ):
        refused = console.post(path, **fields)
        assert refused.status_code == 422
        assert error_of(refused.text, wrong)
    kept = console.post(path, decision="maybe", reason=HOSTILE).text
    assert f"\n{HOSTILE}" in unescape(kept)
    assert waiting.status() == "verified"

    assert "All done." in console.done(path, decision=decision, reason="throttled host")
    assert waiting.status() == status
    logged = records()[0]
    assert (logged["action"], logged["reason"]) == ("verification.decide", "throttled host")
    assert logged["after"]["source"] == "console"
    twice = console.post(path, decision=decision, reason="x")
    assert twice.status_code == 409
    assert "throttled host" in twice.text
    assert "The decision on this verdict was" in console.get(path).text


def test_a_head_to_head_is_asked_for(console, digits_submission, submit, records):
    one, two = (submit(digits_submission, batch_size=size).json()["id"] for size in (64, 32))
    fields = {"challenger": one, "holder": two, "reason": ""}
    for change, status in (
        ({"holder": one}, 422), ({"holder": "nothing"}, 404), ({"pairs": "4"}, 422),
        ({"holder": " "}, 422),
    ):  # fmt: skip
        assert console.post("/console/head-to-heads", **fields | change).status_code == status, (
            change
        )
    assert records() == []
    asked = {name: fields[name] for name in ("challenger", "holder")}
    # Nothing was replayed yet, so a run may take its limit of 60 s.
    preview = console.get("/console/head-to-heads", **asked).text
    assert "60 runs, about 3,600 device seconds (1 hour)" in preview
    assert " is queued" in console.done("/console/head-to-heads", **fields)
    logged = records()[0]
    assert (logged["action"], logged["after"]["challenger"], logged["after"]["source"]) == (
        "head_to_head.request", one, "console",
    )  # fmt: skip
    assert console.post("/console/head-to-heads", **fields).status_code == 409


def test_a_calibration_is_started_cancelled_continued_and_not_adopted_too_soon(console, records):
    path = "/console/calibrations"
    fields = {"benchmark": "digits", "batch_sizes": "64, 32", "runs": "2", "reason": "new torch"}
    for field, value, status in (
        ("batch_sizes", "64 64", 422), ("batch_sizes", "many", 422), ("batch_sizes", "", 422),
        ("runs", "0", 422), ("runs", "", 422), ("benchmark", "nothing", 404),
    ):  # fmt: skip
        refused = console.post(path, **fields | {field: value})
        assert refused.status_code == status, (field, value)
        if value in ("many", ""):
            assert error_of(refused.text, field), (field, value)
    page = console.done(path, **fields)
    one = re.findall(rf'action="({path}/\w+)/cancel"', page)[0]
    assert console.post(f"{one}/adopt", reason="x").status_code == 409
    assert console.post(f"{one}/adopt", reason="").status_code == 422
    assert console.post(f"{one}/continue").status_code == 409
    console.done(f"{one}/cancel")
    assert console.post(f"{one}/cancel").status_code == 409
    console.done(f"{one}/continue")

    assert [(r["action"], r["reason"], r["after"]["source"]) for r in records()] == [
        ("calibration.continue", None, "console"),
        ("calibration.cancel", None, "console"),
        ("calibration.start", "new torch", "console"),
    ]
    assert records()[2]["after"]["batch_sizes"] == [32, 64]


def test_a_price_is_added_and_corrected(console, records, client):
    path = "/console/prices"
    for field, value in (("usd_per_hour", "0"), ("provider", " "), ("effective_on", "soon"),
                         ("source_url", "javascript:alert(1)"), ("supersedes", "x")):  # fmt: skip
        refused = console.post(path, **PRICE | {field: value, "region": "kept"})
        assert refused.status_code == 422
        assert error_of(refused.text, field)
        assert 'value="kept"' in refused.text
    refused = console.post(path, **PRICE | {"usd_per_hour": "0"})
    assert '<a href="#f-usd_per_hour">US dollars per hour</a>' in refused.text
    assert "Price 1 added." in console.done(path, **PRICE)
    assert console.post(path, **PRICE).status_code == 409
    assert 'value="12.5"' in console.get(path, supersedes="1").text
    for supersedes, status in (("9", 404), ("0", 422), (str(2**63), 422)):
        assert console.get(path, supersedes=supersedes).status_code == status
    console.done(path, **PRICE | {"usd_per_hour": "1.25", "supersedes": "1"})
    assert console.post(path, **PRICE | {"supersedes": "1", "note": "again"}).status_code == 409

    prices = client.get("/api/v1/prices").json()["prices"]
    assert [(p["id"], p["usd_per_hour"], p["superseded_by"]) for p in prices] == [
        (2, 1.25, None), (1, 12.5, 2),
    ]  # fmt: skip
    assert [(r["action"], r["after"]["source"]) for r in records()] == [
        ("price.add", "console")
    ] * 2


def test_token_is_shown_once_and_ends_its_sessions(console, client, ada, records):
    path = "/console/tokens"
    assert ada.post("/api/v1/users", {"name": "zoe"}).is_success
    for change in ({"user": ""}, {"user": "<b>"}, {"role": "king"}, {"expires_in_days": "-1"}):
        fields = {"user": "zoe", "role": "submitter", "expires_in_days": ""}
        assert console.post(path, **fields | change).status_code == 422, change
    sent = {"user": "zoe", "role": "submitter", "expires_in_days": "30"}
    answer = console.post(path, **sent)
    secret = re.findall(r"fl_[\w-]{43}", answer.text)[0]
    assert secret not in str(answer.headers) + str(dict(client.cookies))
    assert answer.headers["cache-control"] == "no-store"
    assert secret not in console.get(path).text
    token = client.get("/api/v1/me", headers={"Authorization": f"Bearer {secret}"})
    assert (token.json()["user"], token.json()["role"]) == ("zoe", "submitter")

    number = records()[0]["subject_id"]
    assert secret not in json.dumps(records())
    olivias = dict(client.cookies)
    client.cookies.clear()
    zoes = Console(client, type("Zoe", (), {"secret": secret}))
    at_zoes = dict(client.cookies)
    client.cookies.clear()
    client.cookies.update(olivias)
    assert f"Token {number} is revoked." in console.done(f"{path}/{number}/revoke")
    assert [(r["action"], r["after"]["source"]) for r in records()[:2]] == [
        ("token.revoke", "console"), ("token.create", "console"),
    ]  # fmt: skip
    assert console.post(f"{path}/99/revoke").status_code == 404
    assert console.post(f"{path}/0/revoke").status_code == 422
    client.cookies.clear()
    client.cookies.update(at_zoes)
    assert zoes.post(path, **sent).status_code == 401


def test_the_log_is_filtered_paged_and_downloaded_whole(console, waiting, database):
    with database.write() as session:
        for number in range(50):
            subject = Subject("test", str(number))
            record(session, Administrator(), "test", subject)
    console.post("/console/prices", **PRICE)
    page = console.get("/console/audit").text
    assert page.count("Show<span") == 50
    assert page.count('<small class="soft">console</small>') == 1
    older = unescape(re.findall(r'class="next" href="([^"]+)"', page)[0])
    assert console.get(older).text.count("Show<span") == 3
    only = console.get("/console/audit", action="verification.request", actor="olivia").text
    assert (only.count("Show<span"), "Older records" in only) == (2, False)
    assert "0 matches" in console.get("/console/audit", actor="nobody").text
    assert console.get("/console/audit", subject=waiting.submission_id).text.count("Show<span") == 2
    assert console.get("/console/audit", before="x").status_code == 422
    answer = console.get("/console/audit/log.json")
    assert answer.headers["content-disposition"] == 'attachment; filename="log.json"'
    chain = check_chain(answer.json()["records"])
    assert (chain.records, chain.problems) == (53, ())


def test_workers_have_pages_and_a_chosen_one_is_offered_on_each(console, database):
    for number in range(101):  # The last heard comes first.
        greet_as_servers(database, f"w-{101 - number}.")
    first = console.get("/console/workers").text
    second = console.get(unescape(re.findall(r'class="next" href="([^"]+)"', first)[0])).text

    for page, name, other in ((first, "w-1.", "w-101."), (second, "w-101.", "w-1.")):
        assert f'<a href="/workers/{name}">' in page
        assert f"/workers/{other}" not in page
    assert 'class="next"' not in second
    assert 'href="/console/workers">First page' in second
    (link,) = re.findall(r'href="(/console/workers\?[^"]+)#change"', second)
    for chosen in (unescape(link), "/console/workers?what=worker:w-101."):
        assert '<option value="worker:w-101." selected>' in console.get(chosen).text


def test_workers_and_everything_are_paused(console, walter, records):
    name = HOSTILE.replace("/", "")  # No address can hold a slash in a name.
    say_hello(console.client, walter, worker=name)
    page = console.get("/console/workers", what=f"worker:{name}").text
    assert page.count("selected") == 1

    order = {"what": f"worker:{name}", "action": "pause", "reason": HOSTILE}
    pages = [page, console.done("/console/workers", **order)]
    for action in ("resume", "baseline"):
        pages.append(console.done("/console/workers", **order | {"action": action}))
    assert not [page for page in pages if name in page or HOSTILE in page]
    assert "by olivia since" in pages[1]
    order = {"what": "everything", "action": "pause", "reason": "the move"}
    console.done("/console/workers", **order)
    assert "Every queue is paused by olivia" in console.get("/console/workers").text
    assert [record["action"] for record in records()[:4]] == [
        *("queue.pause", "worker.baseline", "worker.resume", "worker.pause"),
    ]
    assert records()[0]["after"] == {"paused": True, "source": "console"}

    wrong = console.post("/console/workers", what="all", action="stop", reason="")
    assert wrong.status_code == 422
    assert error_of(wrong.text, "reason")
    assert error_of(wrong.text, "what")
    refused = console.post("/console/workers", **order | {"action": "confirm"})
    assert refused.status_code == 409
    gone = console.post("/console/workers", **order | {"what": "worker:gone"})
    assert gone.status_code == 404


@pytest.mark.parametrize(
    ("who", "pages"),
    [
        ("walter", {"/account"}),
        ("alice", {"/account", "/console/notices"}),
        ("olivia", {"/account", "/console", "/console/workers", "/console/users"}),
    ],
)
def test_the_navigation_has_what_a_role_may_open(who, pages, client, request):
    sign_in(client, request.getfixturevalue(who))
    page = client.get("/account").text
    bars = re.findall(r'<nav aria-label="[^"]+" class="console-nav.*?</nav>', page, re.S)
    links = set(re.findall(r'href="([^"]+)"', "".join(bars)))

    assert pages <= links
    assert who == "olivia" or links == pages
