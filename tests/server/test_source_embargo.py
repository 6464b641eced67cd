"""Embargo of a package: its source stays its submitter's until a day after the verdict."""

from dataclasses import replace
from datetime import datetime, timedelta

from sqlalchemy import update

from server.base.database import utc_now
from server.base.models import Attempt, TrainingPackage
from server.operations.export import export_everything
from tests.server.test_console import Console
from tests.server.test_entries import (  # noqa: F401  a fixture
    FILES,
    MANIFEST,
    TRAIN,
    Entries,
    boxed_report,
    entries,
)
from tests.server.test_lineage import child_of
from tests.support.every_address import NAMES, addresses, ask, text_of
from tests.support.services import services_of

# Nothing else has it: in a factor, in a file and in what the runs wrote.
WORD = "xylopyrography"
SECRET = FILES | {
    "training.toml": MANIFEST.replace("Random features instead of a linear", WORD).encode(),
    "train.py": f"{TRAIN}# {WORD}\n".encode(),
}


def in_days(days):
    return f"{utc_now() + timedelta(days=days):%Y-%m-%d}"


def end_embargo(database):
    with database.write() as session:
        now = utc_now()
        session.execute(update(TrainingPackage).values(embargo_until=now, published_at=now))


def test_a_source_under_embargo_is_told_at_no_address_until_its_day(
    entries, alice, bob, olivia, client, database, tmp_path
):
    public = entries.hand_in(alice).json()
    entries.measure(public["id"])
    until = in_days(20)
    made = entries.hand_in(
        alice, child_of(public["package"]["sha256"]) | SECRET, embargo_until=until
    )
    assert made.status_code == 201, made.text
    entry = made.json()
    assert entry["package"]["embargo_until"].startswith(until)
    assert entry["package"]["published_at"] is None
    lease = entries.lease(entry["id"])
    failed = boxed_report([1], failed="entry_died", log=f"  x = {WORD}")
    assert entries.report(lease, failed).status_code == 200
    asked = client.post(
        f"/api/v1/submissions/{entry['id']}/verifications",
        json={"kind": "entry"},
        headers=olivia.headers,
    )
    assert asked.status_code == 201, asked.text
    lease = entries.lease(entry["id"])
    with database.read() as session:
        seeds = session.get_one(Attempt, lease["attempt_id"]).verification.seeds
    report = boxed_report(seeds)
    report = replace(report, runs=[replace(run, log_tail=WORD) for run in report.runs])
    assert entries.report(lease, report).status_code == 200
    measured = entries.measurement(entry["id"])
    known = NAMES | {
        "submission_id": entry["id"],
        "public": public["id"],
        "verification_id": measured,
        "rerun": asked.json()["id"],
        "waiting": entries.measurement(public["id"]),
        "duel": "none",
        "hashes": f"{public['package']['sha256']}..{entry['package']['sha256']}",
        "name:path": "train.py",
    }

    seen = client.get(f"/api/v1/submissions/{entry['id']}").json()
    assert (seen["status"], seen["package"]["published_at"][:10]) == ("verified", until)
    everywhere = {address for _, address in addresses(client, known)}
    everywhere |= {f"/submissions/{entry['id']}?tab={tab}" for tab in ("runs", "system")}
    for address in sorted(everywhere):
        assert WORD not in text_of(ask(client, address, bob.headers)), address
    export_everything(services_of(client), tmp_path / "all")
    exported = (each for each in (tmp_path / "all").rglob("*") if each.is_file())
    assert WORD.encode() not in b"".join(each.read_bytes() for each in exported)

    page = f"/submissions/{entry['id']}?tab=system"
    assert f"It is public from {until} on." in client.get(page).text
    for reader in (alice, olivia):
        own = Console(client, reader).get(page).text
        assert WORD in own
        assert f"It is public from {until} on." in own
    source = f"/api/v1/submissions/{entry['id']}/package/files/train.py"
    assert client.get(source, headers=alice.headers).status_code == 200
    refused = client.get(source, headers=bob.headers)
    assert (refused.status_code, until in refused.json()["detail"]) == (404, True)
    # No other package can be told from it, nor be based on it.
    copied = entries.hand_in(bob, SECRET | {"train.py": f"{TRAIN}# other\n".encode()})
    assert copied.json()["package"]["same_program_as"] != entry["id"]
    assert entries.hand_in(bob, child_of(entry["package"]["sha256"])).status_code == 422
    ablation = client.post(
        f"/api/v1/submissions/{entry['id']}/verifications",
        json={"kind": "ablation"},
        headers=alice.headers,
    )
    assert (ablation.status_code, until in ablation.json()["detail"]) == (409, True)

    end_embargo(database)
    assert client.get(source, headers=bob.headers).status_code == 200
    assert WORD in client.get(page).text
    assert WORD in client.get("/benchmarks/digits/ideas").text


def test_an_embargo_ends_within_thirty_days_and_is_chosen_in_the_browser_too(
    entries, alice, client, database
):
    for wrong in ("tomorrow", in_days(0), in_days(-1), in_days(31)):
        answer = entries.hand_in(alice, embargo_until=wrong)
        assert answer.status_code == 422, wrong
        (problem,) = answer.json()["problems"]
        assert problem["field"] == "embargo_until"
        assert f"at the latest {in_days(30)}" in problem["expected"]
    preview = entries.hand_in(alice, dry_run=True, embargo_until=in_days(30))
    assert preview.json()["package"]["embargo_until"].startswith(in_days(30))
    entry = entries.hand_in(alice, embargo_until=in_days(1)).json()
    with database.write() as session:
        session.get_one(TrainingPackage, entry["id"]).embargo_until = utc_now()

    entries.measure(entry["id"])

    seen = client.get(f"/api/v1/submissions/{entry['id']}/package").json()
    assert datetime.fromisoformat(seen["published_at"]) <= utc_now()
    assert len(seen["files"]) == 2
    assert 'name="embargo_until"' in Console(client, alice).get("/submit").text


def test_lines_that_runs_wrote_are_no_more_public_than_the_source(entries, alice, client):
    entry = entries.hand_in(alice).json()["id"]
    entries.measure(entry, failed="entry_died", log=f"  x = {WORD}")
    measurement = entries.measurement(entry)
    for address in (f"/api/v1/verifications/{measurement}", f"/submissions/{entry}?tab=runs"):
        assert WORD not in client.get(address).text, address
        assert WORD in client.get(address, headers=alice.headers).text, address
