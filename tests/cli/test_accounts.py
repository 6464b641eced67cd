"""Accounts, tokens, quotas, webhooks, prices and phases, against a stand-in for the server."""

import json

import pytest

from server.base.schema import migrate
from server.commands.administer import keep_token, opened
from server.commands.paths import prepare_var
from server.commands.services import LocalWorker
from server.commands.up import ensure_tokens
from server.people.accounts import find_token
from tests.support.submission_folder import write_submission

MADE = {
    "id": 7, "user": "ann", "role": "submitter", "label": "nightly",
    "expires_at": "2026-12-21T18:00:59+01:00", "revoked_at": None, "last_used_at": None,
}  # fmt: skip
USER = {
    "name": "ann lee", "role": "organiser", "organisation": "Example Labs", "email": None,
    "tokens": 2, "last_used_at": None, "disabled_at": None,
}  # fmt: skip


def body_of(asked):
    return json.loads(asked.body)


def test_own_tokens_are_shown_made_and_revoked(finishline, standin):
    me = {"user": "ann", "organisation": "Example Labs", "highest_role": "organiser",
          "token_id": 7, "label": None, "role": "submitter", "expires_at": None}  # fmt: skip
    standin.answer("GET /api/v1/me", me)
    standin.answer("GET /api/v1/me/tokens", {"tokens": [MADE]})
    standin.answer("GET /api/v1/me/quota", ALICE)
    standin.answer("POST /api/v1/me/tokens", MADE | {"token": "fl_x"}, status=201)
    standin.answer("DELETE /api/v1/me/tokens/8", {"revoked": [8]})

    shown = finishline("account").out
    assert "ann, Example Labs" in shown
    assert "role submitter; your account allows up to organiser" in shown
    listed = finishline("account", "token", "list").out
    assert ("nightly" in listed, "2026-12-21 17:00" in listed) == (True, True)
    made = finishline("account", "token", "add", "--role", "submitter", "--days", "0.5")
    assert made.out.splitlines()[0] == "fl_x"
    assert body_of(standin.asked[-1]) == {"role": "submitter", "expires_in_days": 0.5}
    assert finishline("account", "token", "remove", "8", "--json").json() == {"revoked": [8]}


def test_a_link_to_join_is_made_listed_and_revoked(finishline, standin):
    link = {"id": 3, "role": "submitter", "uses": 1, "uses_allowed": 200, "mail_domain": None,
            "expires_at": "2027-02-02T00:00:00Z", "organisation": None, "made_by": "ann",
            "state": "open", "link": "https://tta.example/join/3-x"}  # fmt: skip
    standin.answer("POST /api/v1/invitations", link, status=201)
    standin.answer("GET /api/v1/invitations", {"invitations": [link]})
    standin.answer("DELETE /api/v1/invitations/3", link | {"state": "revoked"})

    made = finishline("admin", "invite", "add", "--uses", "200", "--until", "2027-02-01")
    assert made.out.splitlines() == ["https://tta.example/join/3-x"]
    sent = {"role": "submitter", "uses": 200, "last_day": "2027-02-01"}
    assert body_of(standin.asked[-1]) == sent
    assert "1 of 200" in finishline("admin", "invite", "list").out
    assert finishline("admin", "invite", "remove", "3").out == "Link 3 is revoked.\n"


def test_an_admin_keeps_users_over_every_page_of_them(finishline, standin):
    known = {"name": "bob", "known_at": "2026-01-01T00:00:00Z"}
    standin.answer("GET /api/v1/users", {"users": [USER], "next_after": "ann lee"})
    standin.answer("GET /api/v1/users", {"users": [USER | known], "next_after": None})
    standin.answer("POST /api/v1/users", USER, status=201)
    standin.answer("PATCH /api/v1/users/ann%20lee", USER | {"disabled_at": "2026-01-01T00:00:00Z"})
    standin.answer("PUT /api/v1/users/ann%20lee/known", known | {"name": "ann lee"})

    listed = finishline("admin", "user", "list", "--json").json()["users"]
    assert [user["name"] for user in listed] == ["ann lee", "bob"]
    assert "after=ann+lee" in standin.asked[1].path
    assert "enabled, known" in finishline("admin", "user", "list").out
    added = finishline("admin", "user", "add", "ann lee", "--organisation", "Example Labs")
    assert added.out.endswith("finishline admin user approve 'ann lee'\n")
    sent = {"name": "ann lee", "role": "submitter", "organisation": "Example Labs"}
    assert body_of(standin.asked[-1]) == sent
    for arguments, sent in (
        ("set --role admin --email=", {"role": "admin", "email": None}),
        ("set --organisation=", {"organisation": None}),
        ("set --disable", {"disabled": True}),
        ("set --enable", {"disabled": False}),
        ("approve", {"known": True}),
        ("approve --undo", {"known": False}),
    ):
        ran = finishline("admin", "user", *arguments.split(), "ann lee")
        assert (ran.code, body_of(standin.asked[-1])) == (0, sent)
    asked = len(standin.asked)
    assert finishline("admin", "user", "set", "ann lee").code == 2
    assert len(standin.asked) == asked


def test_an_admin_keeps_organisations_and_tokens(finishline, standin):
    standin.answer("GET /api/v1/organisations", {"organisations": [{"name": "Labs", "users": 3}]})
    standin.answer("POST /api/v1/organisations", {"id": 1, "name": "Labs", "users": 0}, status=201)
    standin.answer("GET /api/v1/tokens", {"tokens": [MADE]})
    standin.answer("POST /api/v1/tokens", MADE | {"token": "fl_x"}, status=201)
    standin.answer("DELETE /api/v1/tokens/7", {"revoked": [7, 9, 12]})

    assert "Labs" in finishline("admin", "organisation", "list").out
    assert finishline("admin", "organisation", "add", "Labs").code == 0
    assert body_of(standin.asked[-1]) == {"name": "Labs"}
    assert "fl_" not in finishline("admin", "token", "list", "--user", "ann").out
    assert standin.asked[-1].path == "/api/v1/tokens?user=ann"
    finishline("admin", "token", "add", "ann", "--role", "worker", "--days", "30")
    sent = {"user": "ann", "role": "worker", "expires_in_days": 30.0}
    assert body_of(standin.asked[-1]) == sent
    assert finishline("admin", "token", "remove", "7").out == "Revoked tokens: [7, 9, 12].\n"


def test_missing_or_refused_tokens_are_made_with_their_roles(tmp_path):
    paths, said = prepare_var(tmp_path), []
    workers = [LocalWorker("", "cpu"), LocalWorker("-cuda-1", "cuda:1", "GPU-1")]
    with opened(paths.database_url) as database:
        migrate(database)
        kept = keep_token(database, paths.token("admin"), "admin", "admin")
        paths.token("organiser").write_text("fl_of_another_database\n")
        files = ensure_tokens(paths, database, workers, said.append)
        tokens = {name: path.read_text().strip() for name, path in files.items()}
        roles = {name: find_token(database, token).role for name, token in tokens.items()}
    assert said == ["made tokens for organiser (organiser), demo (submitter), worker (worker)"]
    assert tokens["admin"] == kept.secret
    assert roles == {
        "admin": "admin", "organiser": "organiser", "demo": "submitter",
        "worker": "worker", "worker-cuda-1": "worker",
    }  # fmt: skip
    assert {path.stat().st_mode & 0o777 for path in files.values()} == {0o600}


USES = [
    {"measure": "submissions_per_day", "allowed": 200, "used": 200.0, "reserved": 0.0,
     "room_at": "2030-01-01T10:00:00Z"},
    {"measure": "gpu_seconds_per_month", "allowed": None, "used": 5400.0, "reserved": 1800.0,
     "room_at": None},
]  # fmt: skip
ALICE = {"user": "al [x]", "quotas": USES}


def test_quotas_are_shown_in_hours_and_set(finishline, standin):
    standin.answer("GET /api/v1/me", {"user": "al [x]", "role": "submitter"})
    standin.answer("GET /api/v1/me/quota", ALICE)
    standin.answer("GET /api/v1/quotas/bob", ALICE)
    rows = [{"user": "bob", "quotas": {"submissions_per_day": 777}}]
    listed = {"defaults": {"gpu_seconds_per_month": 360000}, "overrides": rows}
    standin.answer("GET /api/v1/quotas", listed)
    for arguments, shown in (
        ("account", ("200", "2030-01-01 10:00Z", "1.50", "0.50", "no limit")),
        ("admin quota show bob", ("al [x]", "no limit")),
        ("admin quota list", ("100.00", "777")),
    ):
        out = finishline(*arguments.split()).out
        assert [word for word in shown if word not in out] == []
    assert finishline("account", "--json").json()["quotas"] == USES

    standin.answer("PUT /api/v1/quotas/al%20x", ALICE)
    for options, sent in (
        ("--submissions-per-day 5 --gpu-hours-per-month 1.5",
         {"submissions_per_day": 5, "gpu_seconds_per_month": 5400}),
        ("--submissions-per-day default", {"submissions_per_day": "default"}),
    ):  # fmt: skip
        ran = finishline("admin", "quota", "set", "al x", "--reason", "r", *options.split())
        assert (ran.code, body_of(standin.asked[-1])) == (0, sent | {"reason": "r"})
    asked = len(standin.asked)
    for options in ("--submissions-per-day x", "--gpu-hours-per-month -1"):
        assert (
            finishline("admin", "quota", "set", "bob", "--reason", "r", *options.split()).code == 2
        )
    assert len(standin.asked) == asked


HOOK = {
    "id": "h1", "url": "https://hooks.example/[a]", "kinds": ["record.set"], "scope": "benchmark",
    "benchmark": "digits", "failing_since": None, "disabled_because": "It returned 410 Gone.",
}  # fmt: skip
TRY = {"at": "2030-01-01T00:00:00Z", "status": None, "milliseconds": 12.5, "answer": "",
       "error": "No answer."}  # fmt: skip
DELIVERY = {
    "id": 7, "kind": "record.set", "state": "waiting", "due_at": "2030-01-01", "tries": [TRY],
}  # fmt: skip


def test_a_webhook_is_made_and_its_secret_shown(finishline, standin):
    standin.answer("POST /api/v1/webhooks", HOOK | {"secret": "whsec_x"}, status=201)
    add = ("account", "webhook", "add", "https://a.example", "--kind", "record.set")
    ran = finishline(*add, "--kind", "submission.verified")

    assert (ran.code, ran.out.splitlines()[0]) == (0, "whsec_x")
    kinds = ["record.set", "submission.verified"]
    sent = {"url": "https://a.example", "kinds": kinds, "scope": "own", "benchmark": None}
    assert body_of(standin.asked[0]) == sent
    finishline(*add, "--benchmark", "digits")
    finishline(*add, "--all")
    assert [body_of(asked)["scope"] for asked in standin.asked] == ["own", "benchmark", "all"]
    assert finishline("account", "webhook", "add", "https://a.example").code == 2  # No kind.


def test_webhooks_and_deliveries_are_listed_and_changed(finishline, standin):
    own = "/api/v1/webhooks/h1"
    standin.answer("GET /api/v1/webhooks", {"webhooks": [HOOK]})
    listed = finishline("account", "webhook", "list").out
    assert ("https://hooks.example/[a]" in listed, "410 Gone." in listed) == (True, True)
    standin.answer(f"GET {own}/deliveries", {"deliveries": [DELIVERY]})
    assert (
        "No answer."
        in finishline("account", "webhook", "deliveries", "h1", "--state", "waiting").out
    )
    assert standin.asked[-1].path == f"{own}/deliveries?state=waiting&limit=50"
    for words, request, answer in (
        ("test h1", f"POST {own}/test", DELIVERY),
        ("secret h1", f"POST {own}/secret", HOOK | {"secret": "whsec_y"}),
        ("set h1 enable", f"PATCH {own}", HOOK),
        ("resend h1 7", f"POST {own}/deliveries/7/repeat", DELIVERY),
        ("remove h1", f"DELETE {own}", None),
    ):
        standin.answer(request, answer)
        assert finishline("account", "webhook", *words.split()).code == 0, words
        assert f"{standin.asked[-1].method} {standin.asked[-1].path}" == request


PRICE = {
    "id": 7, "provider": "cloud [x]", "instance": "gpu.8", "region": "north",
    "pricing": "on_demand", "usd_per_hour": 12.5, "effective_on": "2026-03-01",
    "source_url": "https://a.example", "note": None, "supersedes": None, "superseded_by": 9,
}  # fmt: skip
SENT = {
    "provider": "cloud", "instance": "gpu.8", "region": "north", "pricing": "on_demand",
    "usd_per_hour": 12.5, "effective_on": "2026-03-01", "source_url": "https://a.example",
    "note": None, "supersedes": None, "hardware_class": None,
}  # fmt: skip
HEADER = "provider,instance,region,usd_per_hour,effective_on,source_url"
ROW = "cloud,gpu.8,north,12.5,2026-03-01,https://a.example"


def test_prices_are_listed(finishline, standin):
    standin.answer("GET /api/v1/prices", {"prices": [PRICE, PRICE | {"pricing": "spot"}]})
    ran = finishline("admin", "price", "list", "--instance", "gpu.8", "--on", "2026-03-02")
    assert standin.asked[0].path == "/api/v1/prices?instance=gpu.8&on=2026-03-02"
    assert ("cloud [x]" in ran.out, "superseded by 9" in ran.out) == (True, True)


OWNED = (
    "--purchase-usd", "250000", "--years", "4", "--utilisation", "0.6", "--watts", "10200",
    "--pue", "1.3", "--usd-per-kwh", "0.12",
)  # fmt: skip


def test_owned_system_has_price_and_formula(finishline):
    """A quarter of a million dollars over 21,024 hours of work, and 13.26 kW at 12 cents."""
    formula = "250000 / (4 * 8760 * 0.6) + 10200 / 1000 * 1.3 * 0.12"
    ran = finishline("admin", "price", "owned", *OWNED)
    assert (ran.code, ran.out) == (0, f"13.4824 USD per hour = {formula}\n")
    found = finishline("admin", "price", "owned", *OWNED, "--json").json()
    assert found["formula"] == formula
    assert found["usd_per_hour"] == pytest.approx(250_000 / 21_024 + 13.26 * 0.12)


@pytest.mark.parametrize(
    "wrong", [("--utilisation", "1.1"), ("--years", "0"), ("--pue", "0.9"), ("--watts", "nan")]
)
def test_impossible_owned_system_is_refused(finishline, wrong):
    ran = finishline("admin", "price", "owned", *OWNED, *wrong)
    assert (ran.code, wrong[0] in ran.err) == (2, True)


def test_prices_of_a_csv_are_added(finishline, standin, tmp_path):
    standin.answer("POST /api/v1/prices/import", {"added": [PRICE, PRICE], "already_there": 1})
    table = tmp_path / "prices.csv"
    header = f"\ufeff{HEADER},note,supersedes"
    table.write_bytes(f"{header}\r\n{ROW},,\r\n\r\n{ROW},n,3".encode())
    ran = finishline("admin", "price", "add", str(table))

    assert (ran.code, ran.out) == (0, "2 prices added, 1 skipped as already known.\n")
    assert body_of(standin.asked[0])["prices"] == [SENT, SENT | {"note": "n", "supersedes": 3}]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("p.csv", "", "header"),
        ("p.csv", f"{HEADER}\n", "no price"),
        ("p.csv", f"{HEADER},region\n{ROW},x\n", "'region' twice"),
        ("p.csv", f"{HEADER}\n{ROW}\n{ROW},more\n", "p.csv line 3: 7 cells; expected 6"),
        ("p.csv", f'{HEADER}\n{ROW}"\n"never closed\n', "p.csv line 3"),
        ("p.csv", f"{HEADER}\n\n{ROW.replace('12.5', 'NaN')}\n", "line 3, field usd_per_hour"),
        ("p.csv", f"{HEADER}\n{ROW.replace('12.5', '$12')}\n", "line 2, field usd_per_hour"),
        ("p.csv", f"{HEADER},price\n{ROW},1\n", "field price"),
        (
            "p.csv",
            f"{HEADER.replace('usd_per_hour', 'usd_per_hr')}\n{ROW}\n",
            "p.csv line 2, field usd_per_hour: missing (did you mean 'usd_per_hour' where it says "
            "'usd_per_hr'?)",
        ),
    ],
)
def test_bad_price_file_is_refused(finishline, standin, tmp_path, name, content, told):
    path = tmp_path / name
    path.write_text(content)
    ran = finishline("admin", "price", "add", str(path))

    assert (ran.code, ran.out, standin.asked) == (1, "", [])
    assert told in ran.err


PATH = "/api/v1/benchmarks/digits/phases"
DATES = {
    "opens_at": "2026-12-01T09:00:00Z", "freezes_at": None,
    "closes_at": "2027-01-15T00:00:00Z", "embargo_until": None,
}  # fmt: skip
NOW = {"phase": "announced", "sentence": "Not open yet.", "takes_submissions": False}
SET = {"reason": "the [winter] round", "set_by": "olivia", "set_at": "2026-11-21T18:00:00Z"}
FOUND = {
    "benchmark": "digits",
    "phases": DATES | NOW | {"frozen_sha256": None},
    "history": [DATES | SET],
}


def test_phases_are_shown_and_a_date_that_is_not_given_stays(finishline, standin):
    standin.answer(f"GET {PATH}", FOUND)
    standin.answer(f"POST {PATH}", FOUND["phases"], status=201)
    phases = ("benchmark", "phase", "digits")
    shown = finishline(*phases).out
    for word in ("Not open yet.", "2026-12-01 09:00Z", "the [winter] round", "olivia"):
        assert word in shown
    change = (*phases, "--closes", "none", "--freezes", "2026-12-02T00:00Z")
    assert finishline(*change).code == 2  # No reason.
    assert finishline(*change, "--reason", "open end").code == 0
    [posted] = [asked for asked in standin.asked if asked.method == "POST"]
    sent = {"freezes_at": "2026-12-02T00:00Z", "closes_at": None, "reason": "open end"}
    assert body_of(posted) == DATES | sent | {"unfreeze": False}


@pytest.mark.parametrize(
    ("named", "end", "sent"),
    [("submit --withdraw abc", "withdrawal", {}), ("admin withdraw abc", "withdrawal", {}),
     ("admin withdraw abc --undo", "reinstatement", {}),
     ("admin waive abc no_seed", "waivers", {"rule": "no_seed"}),
     ("admin waive abc no_seed --undo", "waivers/no_seed/revocation", {})],
)  # fmt: skip
def test_withdrawals_and_waivers_need_a_reason(named, end, sent, finishline, standin):
    standin.answer(f"POST /api/v1/submissions/abc/{end}", {"id": "abc"})
    ran = finishline(*named.split(), "--reason", "wrong clock", "--token", "fl_a")
    assert (ran.code, "abc" in ran.out) == (0, True)
    assert body_of(standin.asked[0]) == {"reason": "wrong clock"} | sent
    assert finishline(*named.split()).code == 2


def test_check_tells_the_phase_of_a_server_that_is_asked(finishline, standin, tmp_path):
    path = str(write_submission(tmp_path / "digits"))
    standin.answer("GET /api/v1/benchmarks/digits", {"sha256": "0" * 64, "phases": FOUND["phases"]})
    ran = finishline("check", path, "--url", standin.url)
    assert ran.code == 0
    assert "Not open yet." in ran.out
    assert "another definition, 000000000000" in ran.out
    document = json.loads(finishline("check", path, "--url", standin.url, "--json").out)
    assert document["server"]["phases"]["phase"] == "announced"
    asked = len(standin.asked)
    assert "server" not in json.loads(finishline("check", path, "--json").out)
    assert len(standin.asked) == asked
    standin.answers.clear()
    away = finishline("check", path, "--url", standin.url)
    assert away.code == 0
    assert "The phase of digits is not known" in away.out


@pytest.mark.parametrize(
    ("phases", "said"),
    [
        (FOUND["phases"], "warning: digits takes no submissions at"),
        (NOW | {"sentence": "Closed since noon."}, "now. Closed since noon."),
        ({"takes_submissions": True, "sentence": "Open."}, ""),
        (None, "The phase of digits is not known"),
    ],
)
def test_run_tells_the_phase_before_it_trains(finishline, standin, tmp_path, phases, said):
    if phases is not None:
        standin.answer("GET /api/v1/benchmarks/digits", {"phases": phases})
    ran = finishline("run", "digits", "--out", str(tmp_path / "out"), "--", "no-such-program")
    lines = ran.err.splitlines()
    # The program comes afterwards, with or without a notice of one line.
    assert "no-such-program" in ran.err.replace(lines[0], "") if said else "no-such" in lines[0]
    assert said in lines[0]
