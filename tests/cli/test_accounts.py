"""Accounts, tokens, quotas, webhooks, prices and phases, against a stand-in for the server."""

import json
from typing import Any

import pytest

from finishline.cli.errors import CliError
from finishline.cli.up.paths import prepare_var
from finishline.cli.up.services import read_token
from finishline.cli.up.start import ensure_tokens, tokens_in, write_token
from finishline.cli.up.workers import LocalWorker
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
    standin.answer("POST /api/v1/me/tokens", MADE | {"token": "fl_x"}, status=201)
    standin.answer("DELETE /api/v1/me/tokens/8", {"revoked": [8]})

    shown = finishline("account", "show").out
    assert "ann, Example Labs" in shown
    assert "role submitter; your account allows up to organiser" in shown
    listed = finishline("account", "tokens").out
    assert ("nightly" in listed, "2026-12-21 17:00" in listed) == (True, True)
    made = finishline("account", "make", "--role", "submitter", "--days", "0.5")
    assert made.out.splitlines()[0] == "fl_x"
    assert body_of(standin.asked[-1]) == {"role": "submitter", "expires_in_days": 0.5}
    assert finishline("account", "revoke", "8", "--json").json() == {"revoked": [8]}


def test_a_link_to_join_is_made_listed_and_revoked(finishline, standin):
    link = {"id": 3, "role": "submitter", "uses": 1, "uses_allowed": 200, "mail_domain": None,
            "expires_at": "2027-02-02T00:00:00Z", "organisation": None, "made_by": "ann",
            "state": "open", "link": "https://tta.example/join/3-x"}  # fmt: skip
    standin.answer("POST /api/v1/invitations", link, status=201)
    standin.answer("GET /api/v1/invitations", {"invitations": [link]})
    standin.answer("DELETE /api/v1/invitations/3", link | {"state": "revoked"})

    made = finishline("invite", "--uses", "200", "--until", "2027-02-01")
    assert made.out.splitlines() == ["https://tta.example/join/3-x"]
    assert body_of(standin.asked[-1]) == {
        "role": "submitter",
        "uses": 200,
        "last_day": "2027-02-01",
    }
    assert "1 of 200" in finishline("admin", "invitation", "list").out
    assert finishline("admin", "invitation", "revoke", "3").out == "Link 3 is revoked.\n"


def test_an_admin_keeps_users_over_every_page_of_them(finishline, standin):
    standin.answer("GET /api/v1/users", {"users": [USER], "next_after": "ann lee"})
    standin.answer("GET /api/v1/users", {"users": [USER | {"name": "bob"}], "next_after": None})
    standin.answer("POST /api/v1/users", USER, status=201)
    standin.answer("PATCH /api/v1/users/ann%20lee", USER | {"disabled_at": "2026-01-01T00:00:00Z"})

    listed = finishline("admin", "user", "list", "--json").json()["users"]
    assert [user["name"] for user in listed] == ["ann lee", "bob"]
    assert "after=ann+lee" in standin.asked[1].path
    added = finishline("admin", "user", "add", "ann lee", "--organisation", "Example Labs")
    assert ("ann lee" in added.out, "enabled" in added.out) == (True, True)
    assert "without a memory cgroup" in added.out
    assert added.out.endswith("finishline admin user approve 'ann lee'\n")
    assert body_of(standin.asked[-1]) == {
        "name": "ann lee", "role": "submitter", "organisation": "Example Labs", "email": None,
    }  # fmt: skip
    for arguments, sent in (
        (("set", "ann lee", "--role", "admin", "--no-email"), {"role": "admin", "email": None}),
        (("set", "ann lee", "--no-organisation"), {"organisation": None}),
        (("set", "ann lee", "--disable"), {"disabled": True}),
        (("set", "ann lee", "--enable"), {"disabled": False}),
    ):
        ran = finishline("admin", "user", *arguments)
        assert (ran.code, body_of(standin.asked[-1])) == (0, sent)
        assert "disabled" in ran.out
    asked = len(standin.asked)
    nothing = finishline("admin", "user", "set", "ann lee")
    assert (nothing.code, "--role" in nothing.err) == (2, True)
    assert len(standin.asked) == asked


def test_an_organiser_approves_users(finishline, standin):
    known = {"name": "ann lee", "known_at": "2026-01-01T00:00:00Z"}
    standin.answer("PUT /api/v1/users/ann%20lee/known", known)
    standin.answer("GET /api/v1/users", {"users": [USER | known], "next_after": None})

    for order, sent, told in (
        ("approve", True, "ann lee is known to the organisers.\n"),
        ("disapprove", False, "ann lee is not known to the organisers.\n"),
    ):
        ran = finishline("admin", "user", order, "ann lee")
        assert (ran.code, ran.out, body_of(standin.asked[-1])) == (0, told, {"known": sent})
    assert "enabled, known" in finishline("admin", "user", "list").out


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
    finishline("admin", "token", "make", "ann", "--role", "worker", "--days", "30")
    assert body_of(standin.asked[-1]) == {
        "user": "ann", "role": "worker", "expires_in_days": 30.0,
    }  # fmt: skip
    assert finishline("admin", "token", "revoke", "7").out == (
        "Token 7 is revoked.\nAlso revoked: 2 tokens made with it: 9, 12.\n"
    )


@pytest.mark.parametrize(
    ("status", "code"), [(401, 5), (403, 5), (404, 6), (409, 1), (422, 1), (503, 4)]
)
def test_a_refusal_is_told_with_its_exit_code(status, code, finishline, standin):
    standin.refuse("PATCH /api/v1/users/ann", status, "Not so.")
    ran = finishline("admin", "user", "set", "ann", "--disable")
    assert (ran.code, "Not so." in ran.err, ran.out) == (code, True, "")


def test_a_token_file_is_for_its_owner_alone(tmp_path):
    path = tmp_path / "demo.token"
    path.write_text("old")
    path.chmod(0o644)
    write_token(path, "fl_secret")
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_token(path) == "fl_secret"


def test_missing_tokens_are_made_with_their_roles(tmp_path, standin):
    made = []

    def make(owners):
        made.extend(owners)
        return [f"fl_{user}" for user, _ in owners]

    workers = [LocalWorker("", "cpu"), LocalWorker("-cuda-1", "cuda:1", "GPU-1")]
    files = ensure_tokens(prepare_var(tmp_path), workers, url=standin.url, make_tokens=make)
    assert made == [
        ("admin", "admin"),
        ("organiser", "organiser"),
        ("demo", "submitter"),
        ("worker", "worker"),
        ("worker", "worker"),
    ]
    assert {name: path.read_text() for name, path in files.items()} == {
        "admin": "fl_admin\n",
        "organiser": "fl_organiser\n",
        "demo": "fl_demo\n",
        "worker": "fl_worker\n",
        "worker-cuda-1": "fl_worker\n",
    }


def test_kept_tokens_are_used_again_unless_the_server_refuses_them(tmp_path, standin):
    paths = prepare_var(tmp_path)
    names = ("admin", "organiser", "demo")
    for name in names:
        write_token(paths.tokens / f"{name}.token", f"fl_old_{name}")
    standin.answer("GET /api/v1/me", {"user": "admin", "role": "admin"})
    standin.refuse("GET /api/v1/me", 401, "Unknown token.")
    standin.answer("GET /api/v1/me", {"user": "demo", "role": "submitter"})

    def make(owners):
        return [f"fl_new_{user}" for user, _ in owners]

    files = ensure_tokens(paths, [], url=standin.url, make_tokens=make)
    assert [read_token(path) for path in files.values()] == [
        "fl_old_admin",
        "fl_new_organiser",
        "fl_old_demo",
    ]
    assert [asked.headers["Authorization"] for asked in standin.asked] == [
        f"Bearer fl_old_{name}" for name in names
    ]


def test_tokens_are_found_among_other_lines():
    output = 'a library says hello\n{"id": "1", "token": "fl_x", "role": "worker"}\n'
    assert tokens_in(output, count=1) == ["fl_x"]
    with pytest.raises(CliError, match="printed 0 of 1 tokens"):
        tokens_in("nothing\n{}\n", count=1)


USES = [
    {"measure": "submissions_per_day", "allowed": 200, "used": 200.0, "reserved": 0.0,
     "room_at": "2030-01-01T10:00:00Z"},
    {"measure": "gpu_seconds_per_month", "allowed": None, "used": 5400.0, "reserved": 1800.0,
     "room_at": None},
]  # fmt: skip


ALICE = {"user": "al [x]", "quotas": USES}


def test_ones_own_quota_is_shown_in_hours(finishline, standin):
    standin.answer("GET /api/v1/me/quota", ALICE)
    ran = finishline("quota", "--token", "fl_a")

    assert ran.code == 0
    assert standin.asked[0].headers["Authorization"] == "Bearer fl_a"
    for shown in ("al [x]", "200", "2030-01-01 10:00Z", "1.50", "0.50", "no limit"):
        assert shown in ran.out
    assert json.loads(finishline("quota", "--json").out)["quotas"] == USES
    standin.answers["GET /api/v1/me/quota"] = [(401, {"detail": "Who?"})]
    assert finishline("quota").code == 5


def test_an_organiser_sets_shows_and_lists(finishline, standin):
    standin.answer("PUT /api/v1/quotas/al%20x", ALICE)
    given = ["quota", "set", "al x"]
    ran = finishline(
        *given, "--reason", "course", "--submissions-per-day", "5", "--gpu-hours-per-month", "1.5"
    )
    assert ran.code == 0, ran.err
    assert json.loads(standin.asked[0].body) == {
        "reason": "course", "submissions_per_day": 5, "gpu_seconds_per_month": 5400,
    }  # fmt: skip
    finishline(*given, "--reason", "r", "--submissions-per-day", "default")
    assert json.loads(standin.asked[1].body) == {"reason": "r", "submissions_per_day": "default"}

    standin.answer("GET /api/v1/quotas/bob", ALICE)
    assert "no limit" in finishline("quota", "show", "bob").out
    rows = [{"user": "bob", "quotas": {"submissions_per_day": 777}}]
    listed = {"defaults": {"gpu_seconds_per_month": 360000}, "overrides": rows}
    standin.answer("GET /api/v1/quotas", listed)
    out = finishline("quota", "list").out
    assert "100.00" in out
    assert "777" in out


@pytest.mark.parametrize(
    "options", [["--submissions-per-day", "x"], ["--gpu-hours-per-month", "-1"]]
)
def test_what_is_no_amount_is_told_before_anything_is_sent(options, finishline, standin):
    ran = finishline("quota", "set", "bob", "--reason", "r", *options)

    assert ran.code == 2
    assert standin.asked == []


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
    add = ("webhook", "add", "https://a.example", "--kind", "record.set")
    ran = finishline(*add, "--kind", "submission.verified", "--token", "fl_a")

    assert ran.code == 0
    assert ran.out.splitlines()[0] == "whsec_x"
    assert json.loads(standin.asked[0].body) == {
        "url": "https://a.example",
        "kinds": ["record.set", "submission.verified"],
        "scope": "own",
        "benchmark": None,
    }
    finishline(*add, "--benchmark", "digits")
    finishline(*add, "--all")
    scopes = [json.loads(asked.body)["scope"] for asked in standin.asked]
    assert scopes == ["own", "benchmark", "all"]
    assert finishline("webhook", "add", "https://a.example").code == 2  # No kind.


def test_webhooks_and_deliveries_are_listed(finishline, standin):
    standin.answer("GET /api/v1/webhooks", {"webhooks": [HOOK]})
    listed = finishline("webhook", "list")
    assert "https://hooks.example/[a]" in listed.out
    assert "It returned 410 Gone." in listed.out
    standin.answer("GET /api/v1/webhooks/h1/deliveries", {"deliveries": [DELIVERY]})
    sent = finishline("webhook", "deliveries", "h1", "--state", "waiting")
    assert "No answer." in sent.out
    assert standin.asked[-1].path == "/api/v1/webhooks/h1/deliveries?state=waiting&limit=50"
    standin.answers["GET /api/v1/webhooks"] = [(200, {"webhooks": []})]
    assert "No webhooks yet" in finishline("webhook", "list").out


def test_what_is_asked_of_one_webhook(finishline, standin):
    own = "/api/v1/webhooks/h1"
    standin.answer(f"POST {own}/test", DELIVERY, status=202)
    standin.answer(f"POST {own}/secret", HOOK | {"secret": "whsec_y"})
    standin.answer(f"POST {own}/enable", HOOK)
    standin.answer(f"POST {own}/deliveries/7/resend", DELIVERY, status=202)
    standin.answer(f"DELETE {own}", None, status=200)
    for words in ("test h1", "secret h1", "enable h1", "resend h1 7", "delete h1"):
        assert finishline("webhook", *words.split()).code == 0, words

    assert [asked.path.removeprefix(own) for asked in standin.asked] == [
        "/test", "/secret", "/enable", "/deliveries/7/resend", "",
    ]  # fmt: skip
    standin.refuse(f"POST {own}/test", 404, "You have no webhook 'h1'.")
    finishline("webhook", "test", "h1")
    assert finishline("webhook", "test", "h1").code == 6


PRICE = {
    "id": 7, "provider": "cloud [x]", "instance": "gpu.8", "region": "north",
    "pricing": "on_demand", "usd_per_hour": 12.5, "effective_on": "2026-03-01",
    "source_url": "https://a.example", "note": None, "supersedes": None, "superseded_by": 9,
}  # fmt: skip


SENT = {
    "provider": "cloud", "instance": "gpu.8", "region": "north", "pricing": "on_demand",
    "usd_per_hour": 12.5, "effective_on": "2026-03-01", "source_url": "https://a.example",
    "note": None, "supersedes": None,
}  # fmt: skip


HEADER = "provider,instance,region,usd_per_hour,effective_on,source_url"


ROW = "cloud,gpu.8,north,12.5,2026-03-01,https://a.example"


def test_prices_are_listed_with_what_supersedes_them(finishline, standin):
    standin.answer("GET /api/v1/prices", {"prices": [PRICE, PRICE | {"pricing": "spot"}]})
    ran = finishline("prices", "list", "--instance", "gpu.8", "--on", "2026-03-02")

    assert ran.code == 0
    assert standin.asked[0].path == "/api/v1/prices?instance=gpu.8&on=2026-03-02"
    assert "cloud [x]" in ran.out
    assert "superseded by 9" in ran.out
    standin.answers["GET /api/v1/prices"] = [(200, {"prices": []})]
    assert "No prices yet" in finishline("prices", "list").out


def test_a_price_is_added_with_its_source_and_day(finishline, standin):
    standin.answer("POST /api/v1/prices", PRICE, status=201)
    given = ["cloud", "gpu.8", "north", "12.5", "--from", "2026-03-01"]
    ran = finishline("prices", "add", *given, "--source", "https://a.example", "--token", "fl_o")

    assert (ran.code, ran.out) == (0, "Price 7 added: 12.5 USD per hour.\n")
    assert json.loads(standin.asked[0].body) == SENT
    assert standin.asked[0].headers["Authorization"] == "Bearer fl_o"
    assert finishline("prices", "add", *given).code == 2  # No source.
    standin.refuse("POST /api/v1/prices", 409, "It is in the book already.")
    assert finishline("prices", "add", *given, "--source", "https://a.example").code == 0
    assert finishline("prices", "add", *given, "--source", "https://a.example").code == 1


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


def test_csv_and_toml_are_imported_alike(finishline, standin, tmp_path):
    standin.answer("POST /api/v1/prices/import", {"added": [PRICE, PRICE], "already_there": 1})
    table = tmp_path / "prices.csv"
    header = f"\ufeff{HEADER},note,supersedes"
    table.write_bytes(f"{header}\r\n{ROW},,\r\n\r\n{ROW},n,3".encode())
    toml = tmp_path / "prices.toml"
    toml.write_text(
        '[[prices]]\nprovider = "cloud"\ninstance = "gpu.8"\nregion = "north"\n'
        'usd_per_hour = 12.5\neffective_on = 2026-03-01\nsource_url = "https://a.example"\n'
        '[[prices]]\nprovider = "cloud"\ninstance = "gpu.8"\nregion = "north"\nnote = "n"\n'
        'usd_per_hour = 12.5\neffective_on = "2026-03-01"\nsource_url = "https://a.example"\n'
        "supersedes = 3\n"
    )
    ran = finishline("prices", "import", str(table))
    finishline("prices", "import", str(toml))

    assert (ran.code, ran.out) == (0, "2 prices added, 1 skipped as already known.\n")
    bodies = [json.loads(asked.body)["prices"] for asked in standin.asked]
    assert bodies == [[SENT, SENT | {"note": "n", "supersedes": 3}]] * 2


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
        ("p.toml", "[[prices]", "TOML"),
        (
            "p.toml",
            "[[price]]",
            "p.toml, field price: unknown field (did you mean 'prices'?); expected [[prices]]",
        ),
        ("p.toml", "prices = 1", "p.toml, field prices: not a list of tables"),
        ("p.toml", "", "no price"),
        (
            "p.csv",
            f"{HEADER.replace('usd_per_hour', 'usd_per_hr')}\n{ROW}\n",
            "p.csv line 2, field usd_per_hour: missing (did you mean 'usd_per_hour' where it says "
            "'usd_per_hr'?)",
        ),
        ("p.toml", "prices = [1]", "field prices[1]"),
        ("p.toml", '[[prices]]\nprovider = "x"', "field prices[1].instance: missing"),
    ],
)
def test_a_bad_file_is_refused_with_line_and_field_and_nothing_is_sent(
    finishline, standin, tmp_path, name, content, told
):
    path = tmp_path / name
    path.write_text(content)
    ran = finishline("prices", "import", str(path))

    assert (ran.code, ran.out, standin.asked) == (1, "", [])
    assert told in ran.err


def test_a_file_that_is_not_there_is_refused(finishline, tmp_path):
    assert finishline("prices", "import", str(tmp_path / "gone.csv")).code == 1


def test_the_help_of_an_import_names_the_tables_of_its_toml(finishline):
    assert "[[prices]]" in finishline("prices", "import", "--help").out


PATH = "/api/v1/benchmarks/digits/phases"


DATES = {
    "opens_at": "2026-12-01T09:00:00Z",
    "freezes_at": None,
    "closes_at": "2027-01-15T00:00:00Z",
    "embargo_until": None,
    "frozen_sha256": None,
}


FOUND: dict[str, Any] = {
    "benchmark": "digits",
    "phases": DATES
    | {"phase": "announced", "sentence": "Not open yet.", "takes_submissions": False},
    "history": [
        DATES
        | {"reason": "the [winter] round", "set_by": "olivia", "set_at": "2026-11-21T18:00:00Z"}
    ],
}


def test_phases_are_shown_with_their_history(finishline, standin):
    standin.answer(f"GET {PATH}", FOUND)
    ran = finishline("benchmark", "phases", "digits")
    assert ran.code == 0
    for word in ("Not open yet.", "2026-12-01 09:00Z", "the [winter] round", "olivia"):
        assert word in ran.out
    assert [asked.method for asked in standin.asked] == ["GET"]


def test_a_date_that_is_not_given_stays_and_none_takes_it_away(finishline, standin):
    standin.answer(f"GET {PATH}", FOUND)
    standin.answer(f"POST {PATH}", FOUND["phases"], status=201)
    command = (
        "benchmark",
        "phases",
        "digits",
        "--closes",
        "none",
        "--freezes",
        "2026-12-02T00:00Z",
    )
    assert finishline(*command).code == 2  # No reason.
    ran = finishline(*command, "--reason", "open end", "--token", "fl_o")
    assert ran.code == 0
    [posted] = [asked for asked in standin.asked if asked.method == "POST"]
    assert json.loads(posted.body) == {
        "opens_at": "2026-12-01T09:00:00Z",
        "freezes_at": "2026-12-02T00:00Z",
        "closes_at": None,
        "embargo_until": None,
        "reason": "open end",
        "unfreeze": False,
    }
    assert posted.headers["Authorization"] == "Bearer fl_o"


@pytest.mark.parametrize(
    ("more", "end", "told"),
    [
        ((), "withdrawal", "is withdrawn; its page stays"),
        (("--undo",), "reinstatement", "ranks again"),
    ],
)
def test_a_submission_is_withdrawn_with_a_reason_and_comes_back_by_an_organiser(
    more, end, told, finishline, standin
):
    standin.answer(f"POST /api/v1/submissions/abc/{end}", {"id": "abc"})
    ran = finishline("withdraw", "abc", "--reason", "wrong clock", *more, "--token", "fl_a")
    assert ran.code == 0
    assert told in ran.out
    assert json.loads(standin.asked[0].body) == {"reason": "wrong clock"}
    assert finishline("withdraw", "abc", *more).code == 2


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
