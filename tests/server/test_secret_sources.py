"""The source of a package is its submitter's and the organisers' until its first verdict."""

from sqlalchemy import update

from server.base.models import Attempt, Submission, WorkerRow
from server.operations.export import export
from server.verifications.queue import take_due
from tests.server.test_entries import (  # noqa: F401  a fixture
    FILES,
    MANIFEST,
    TRAIN,
    Entries,
    entries,
)
from tests.server.test_lineage import child_of
from tests.support.services import services_of

# Nothing else has it: in a factor, in a file and in what the runs wrote.
WORD = "xylopyrography"
SECRET = FILES | {
    "training.toml": MANIFEST.replace("Random features instead of a linear", WORD).encode(),
    "train.py": f"{TRAIN}RATE = 2  # {WORD}\n".encode(),
}


def verify(client, entry_id, person, kind):
    path = f"/api/v1/submissions/{entry_id}/verifications"
    return client.post(path, json={"kind": kind}, headers=person.headers)


def test_export_has_no_source_before_its_verdict(entries, alice, client, tmp_path):
    entry = entries.hand_in(alice, SECRET).json()["id"]
    entries.measure(entry, failed="entry_died", log=f"  x = {WORD}")

    folder, _ = export(services_of(client), tmp_path)

    exported = (each for each in folder.rglob("*") if each.is_file())
    assert WORD.encode() not in b"".join(each.read_bytes() for each in exported)


def test_nothing_is_based_on_a_secret_source(entries, alice, bob, olivia, client):
    public = entries.hand_in(alice).json()
    entries.measure(public["id"])
    entry = entries.hand_in(alice, child_of(public["package"]["sha256"]) | SECRET).json()
    entries.measure(entry["id"], failed="entry_died")

    copied = entries.hand_in(bob, SECRET | {"train.py": SECRET["train.py"] + b"# other\n"})
    assert copied.json()["duplicate_of"] is None
    assert entries.hand_in(bob, child_of(entry["package"]["sha256"])).status_code == 422
    assert verify(client, entry["id"], olivia, "ablation").status_code == 409


def test_code_under_an_embargo_goes_to_organisers_workers_alone(entries, alice, database):
    entry = entries.hand_in(alice).json()["id"]

    def due(*, embargoed, confirmed_by):
        with database.write() as session:
            session.get_one(Submission, entry).embargoed = embargoed
            session.execute(update(WorkerRow).values(confirmed_by=confirmed_by))
            again = {"sent_to": None, "send_after": Attempt.created_at}
            session.execute(update(Attempt).values(again))
            session.flush()
            return len(take_due(session))

    assert due(embargoed=True, confirmed_by=WorkerRow.user_id) == 0
    assert due(embargoed=True, confirmed_by=None) == 1
    assert due(embargoed=False, confirmed_by=WorkerRow.user_id) == 1
